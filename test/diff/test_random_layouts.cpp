// SPDX-License-Identifier: Apache-2.0
// Shards that plain index lists cut from a known tensor, over random meshes and in random layouts,
// are proved to be the tensor and merge back bit for bit. So do the layouts of the field.
#include <cstdlib>
#include <cstring>

#include "diff/double_reader.hpp"
#include "libttrace/logical.hpp"
#include "test/catch.hpp"
#include "test/diff/mutated_run.hpp"
#include "test/diff/random_layouts.hpp"
#include "test/libttrace/segment_builder.hpp"

namespace ttrace::testing {
namespace {

const bool in_memory = [] {
  return std::filesystem::is_directory("/dev/shm") && setenv("TMPDIR", "/dev/shm", 0) == 0;
}();

using Bytes = std::vector<std::byte>;

// The shards of all ranks, as records of one file.
class ManyRanks {
 public:
  ManyRanks(const RandomLayout& layout, DType dtype) : layout_(layout), dtype_(dtype) {}

  // `content`: of the logical tensor, as this rank holds it (an addend, maybe).
  void add(const Coordinates& where, const Bytes& content, bool with_shape) {
    const HeldElements held = held_elements(layout_, where);
    const std::size_t size = size_of(dtype_);
    Bytes bytes;
    for (const std::uint64_t element : held.elements) {
      const auto at = content.begin() + static_cast<std::ptrdiff_t>(element * size);
      bytes.insert(bytes.end(), at, at + static_cast<std::ptrdiff_t>(size));
    }
    const std::string key = "it0/param/rank" + std::to_string(places_.size()) + "/value";
    Held declared;
    declared.dims = dims_text(layout_);
    if (with_shape) declared.shape = layout_.shape;
    if (!layout_.flat.empty()) {
      declared.flat = FlatRange{held.unflattened, held.start, held.elements.size()};
    }
    write(writer_, record_of(key, dtype_, held.shape), bytes, declaration_of(declared));
    places_.push_back(where);
  }

  LogicalTensor place() {
    writer_.close(true);
    reader_.emplace(file_);
    const Key key = key_of("it0/param/layer.weight/value");
    ShardGroups groups;
    for (std::size_t rank = 0; rank < places_.size(); ++rank) {
      groups[key].push_back({static_cast<std::int32_t>(rank), places_[rank], &*reader_,
                             &reader_->records().at(rank)});
    }
    return place_all(groups, declared_layouts(groups, {})).at(key);
  }

 private:
  const RandomLayout& layout_;
  DType dtype_;
  ScratchFolder folder_;
  std::filesystem::path file_ = folder_ / "all.h5";
  SegmentWriter writer_{file_, {"run", 0, 0, true}};
  std::optional<SegmentReader> reader_;
  std::vector<Coordinates> places_;
};

std::string problems_of(const LogicalTensor& tensor) {
  std::string text;
  for (const Finding& problem : tensor.problems) {
    text += std::string(name_of(problem.kind)) + ": " + problem.message + "\n";
  }
  return text;
}

// How many of the shards that are no copies hold each element, according to their boxes.
std::vector<int> holders_of(const LogicalTensor& tensor) {
  std::vector<int> holders(element_count(tensor.shape), 0);
  for (const PlacedShard& placed : tensor.shards) {
    if (placed.copy) continue;
    for (const Piece& piece : placed.pieces) {
      for_each_index(piece.global.count, [&](const Shape& offset) {
        Shape index = piece.global.start;
        for (std::size_t dim = 0; dim < index.size(); ++dim) index[dim] += offset[dim];
        ++holders.at(linear(index, tensor.shape));
      });
    }
  }
  return holders;
}

Box random_box(const Shape& shape, std::mt19937_64& random) {
  Box box;
  for (const std::uint64_t extent : shape) {
    box.start.push_back(random() % extent);
    box.count.push_back(1 + random() % (extent - box.start.back()));
  }
  return box;
}

void check_box(const LogicalTensor& tensor, const Bytes& truth, const Box& box) {
  const std::size_t size = size_of(tensor.dtype);
  Bytes expected;
  for_each_index(box.count, [&](const Shape& offset) {
    Shape index = box.start;
    for (std::size_t dim = 0; dim < index.size(); ++dim) index[dim] += offset[dim];
    const auto at = truth.begin() + static_cast<std::ptrdiff_t>(linear(index, tensor.shape) * size);
    expected.insert(expected.end(), at, at + static_cast<std::ptrdiff_t>(size));
  });
  Bytes read(expected.size());
  read_box(tensor, box, read.data());
  REQUIRE(read == expected);
}

TEST_CASE("random layouts over random meshes are proved and merge back bit for bit") {
  for (unsigned seed = 1; seed <= 600; ++seed) {
    RandomLayout layout = LayoutGenerator(seed).make();
    layout.partial.clear();
    std::mt19937_64 random(seed);
    const std::vector<DType> types{DType::boolean, DType::bfloat16, DType::float32, DType::int64};
    const DType dtype = types[random() % types.size()];
    const Bytes truth = random_payload(dtype, layout.shape, seed);
    const bool with_shape = random() % 2 == 0;
    CAPTURE(seed, dims_text(layout), layout.shape, layout.flat, layout.ranks.size());
    ManyRanks ranks(layout, dtype);
    for (const Coordinates& where : layout.ranks) ranks.add(where, truth, with_shape);

    const LogicalTensor tensor = ranks.place();

    REQUIRE(problems_of(tensor) == "");
    REQUIRE(tensor.shape == layout.shape);
    REQUIRE(holders_of(tensor) == std::vector<int>(element_count(layout.shape), 1));
    check_box(tensor, truth, {Shape(layout.shape.size(), 0), layout.shape});
    for (int i = 0; i < 3; ++i) check_box(tensor, truth, random_box(layout.shape, random));
  }
}

TEST_CASE("addends over random axes are pending, and their sum is the known tensor") {
  int sums = 0;
  for (unsigned seed = 1; seed <= 900; ++seed) {
    const RandomLayout layout = LayoutGenerator(seed).make();
    if (layout.partial.empty() || !layout.flat.empty() || layout.swapped) continue;
    const std::string& axis = layout.partial.front();
    const std::uint64_t size = layout.ranks.front().at(axis).size;
    CAPTURE(seed, dims_text(layout), layout.shape, layout.ranks.size());
    // Whole numbers, so that sums are exact in any order.
    std::mt19937_64 random(seed);
    std::vector<std::vector<float>> addends(size);
    std::vector<double> truth(element_count(layout.shape), 0.0);
    for (std::vector<float>& addend : addends) {
      for (double& sum : truth) {
        addend.push_back(static_cast<float>(random() % 2001) - 1000.0f);
        sum += addend.back();
      }
    }
    ManyRanks ranks(layout, DType::float32);
    for (const Coordinates& where : layout.ranks) {
      const auto bytes = std::as_bytes(std::span(addends.at(where.at(axis).coord)));
      ranks.add(where, {bytes.begin(), bytes.end()}, true);
    }

    const LogicalTensor tensor = ranks.place();

    REQUIRE(tensor.problems.size() == (size > 1 ? 1 : 0));
    if (size > 1) REQUIRE(tensor.problems[0].kind == FindingKind::partial_incomplete);
    std::vector<double> values;
    DoubleReader(tensor).read({Shape(layout.shape.size(), 0), layout.shape}, values);
    REQUIRE(values == truth);
    ++sums;
  }
  CHECK(sums > 100);
}

TEST_CASE("one shard less is a hole, unless another rank holds its elements") {
  int holes = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    RandomLayout layout = LayoutGenerator(seed).make();
    layout.partial.clear();
    CAPTURE(seed, dims_text(layout), layout.shape, layout.flat);
    const Bytes truth = random_payload(DType::float32, layout.shape, seed);
    const std::size_t lost = seed % layout.ranks.size();
    ManyRanks ranks(layout, DType::float32);
    std::vector<int> held(element_count(layout.shape), 0);
    for (std::size_t rank = 0; rank < layout.ranks.size(); ++rank) {
      if (rank == lost && layout.ranks.size() > 1) continue;
      ranks.add(layout.ranks[rank], truth, true);
      for (const std::uint64_t element : held_elements(layout, layout.ranks[rank]).elements) {
        held[element] = 1;
      }
    }
    const LogicalTensor tensor = ranks.place();
    const bool whole_still = std::count(held.begin(), held.end(), 0) == 0;
    REQUIRE(tensor.proved() == whole_still);
    REQUIRE(holders_of(tensor) == held);
    if (!whole_still) REQUIRE(tensor.problems[0].kind == FindingKind::hole);
    holes += whole_still ? 0 : 1;
  }
  CHECK(holes > 100);
}

}  // namespace
}  // namespace ttrace::testing
