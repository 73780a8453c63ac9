// SPDX-License-Identifier: Apache-2.0
// Coverage against counting every element, on shapes small enough for that.
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"
#include "test/catch.hpp"

using namespace ttrace;

namespace {

// How many of `boxes` hold each element, in row-major order.
std::vector<int> count_elements(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<int> counts;
  Shape index(shape.size(), 0);
  for (std::uint64_t i = 0; i < element_count(shape); ++i) {
    int holders = 0;
    for (const Box& box : boxes) {
      bool inside = true;
      for (std::size_t dim = 0; dim < shape.size(); ++dim) {
        inside =
            inside && index[dim] >= box.start[dim] && index[dim] < box.start[dim] + box.count[dim];
      }
      holders += inside ? 1 : 0;
    }
    counts.push_back(holders);
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      if (++index[dim] < shape[dim]) break;
      index[dim] = 0;
    }
  }
  return counts;
}

// `side` x `side` equal boxes of 3 x 5 elements.
std::vector<Box> grid(std::uint64_t side) {
  std::vector<Box> boxes;
  for (std::uint64_t row = 0; row < side; ++row) {
    for (std::uint64_t column = 0; column < side; ++column) {
      boxes.push_back({{3 * row, 5 * column}, {3, 5}});
    }
  }
  return boxes;
}

}  // namespace

TEST_CASE("holes and overlaps are exactly the elements held by none and by several boxes") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random(seed);
    CAPTURE(seed);
    Shape shape(1 + random() % 4);
    for (std::uint64_t& extent : shape) extent = 1 + random() % 5;
    std::vector<Box> boxes(random() % 7);
    for (Box& box : boxes) {
      for (const std::uint64_t extent : shape) {
        box.start.push_back(random() % extent);
        box.count.push_back(random() % (extent - box.start.back() + 1));
      }
    }

    const Coverage found = coverage(shape, boxes);

    const std::vector<int> truth = count_elements(shape, boxes);
    const std::vector<int> holes = count_elements(shape, found.holes);
    const std::vector<int> overlaps = count_elements(shape, found.overlaps);
    int wrong = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      wrong += holes[i] == (truth[i] == 0 ? 1 : 0) ? 0 : 1;
      wrong += overlaps[i] == (truth[i] > 1 ? 1 : 0) ? 0 : 1;
    }
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("a missing shard is one hole, also when its edges are cut by the others") {
  const std::vector<Box> boxes{{{0, 0}, {4, 3}}, {{0, 3}, {1, 5}}, {{1, 3}, {1, 5}},
                               {{4, 0}, {2, 8}}, {{6, 0}, {2, 4}}, {{6, 4}, {2, 4}}};
  const Coverage found = coverage({8, 8}, boxes);
  CHECK(found.holes == std::vector<Box>{{{2, 3}, {2, 5}}});
  CHECK(found.overlaps.empty());
}

TEST_CASE("a box given twice is one overlap") {
  std::vector<Box> boxes = grid(4);
  boxes.push_back(boxes[5]);
  const Coverage found = coverage({12, 20}, boxes);
  CHECK(found.overlaps == std::vector<Box>{boxes[5]});
  CHECK(found.holes.empty());
}

TEST_CASE("scalars and empty tensors") {
  CHECK(coverage({}, {Box{}}).exact());
  CHECK(coverage({}, {}).holes.size() == 1);
  CHECK(coverage({}, {Box{}, Box{}}).overlaps.size() == 1);
  CHECK(coverage({0, 4}, {}).exact());
  CHECK(coverage({3}, {}).holes == std::vector<Box>{{{0}, {3}}});
}

TEST_CASE("a box outside of the tensor is trouble") {
  CHECK_THROWS_AS(coverage({4}, {{{3}, {2}}}), Trouble);
  CHECK_THROWS_AS(coverage({4}, {{{0, 0}, {2, 2}}}), Trouble);
}

TEST_CASE("a hundred thousand boxes of a tensor of a terabyte take seconds at most") {
  constexpr std::uint64_t kSide = 316;
  const Shape shape{3 * kSide, 5 * kSide, 1000000};
  std::vector<Box> boxes = grid(kSide);
  for (Box& box : boxes) {
    box.start.push_back(0);
    box.count.push_back(1000000);
  }
  const auto start = std::chrono::steady_clock::now();
  CHECK(coverage(shape, boxes).exact());
  const Box lost = boxes[kSide * 100 + 7];
  boxes.erase(boxes.begin() + kSide * 100 + 7);
  boxes.push_back(boxes[0]);
  const Coverage found = coverage(shape, boxes);
  CHECK(found.holes == std::vector<Box>{lost});
  CHECK(found.overlaps == std::vector<Box>{boxes[0]});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}
