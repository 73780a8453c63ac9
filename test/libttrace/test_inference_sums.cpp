// SPDX-License-Identifier: Apache-2.0
// Outputs that ranks have still to add up: recognised where nothing else explains the class, and
// never in a way that would explain a bug away.
#include "test/catch.hpp"
#include "test/libttrace/inference_bench.hpp"

namespace ttrace::testing {
namespace {

std::string layer(int number) {
  return "it0/mb0/forward/layers." + std::to_string(number) + ".down/output.0";
}

// The r-th of two tensors whose sum is `tensor`, as exactly as float32 has it.
Tensor addend(const Tensor& tensor, std::uint64_t r, unsigned seed) {
  Tensor first = random_tensor(tensor.shape, seed);
  if (r == 0) return first;
  for (std::size_t i = 0; i < first.values.size(); ++i) {
    first.values[i] = tensor.values[i] - first.values[i];
  }
  return first;
}

Tensor output(int number) { return random_tensor({8, 4, 32}, 70 + static_cast<unsigned>(number)); }

}  // namespace

TEST_CASE("a class whose sums agree holds addends") {
  Bench bench({{"tp", 2}});
  for (int i = 0; i < 4; ++i) {
    bench.add(layer(i), output(i), [&](const Tensor& tensor, const Coordinates& where) {
      return addend(tensor, at(where, "tp"), 90 + static_cast<unsigned>(i));
    });
  }
  CHECK(bench.layout(layer(0)) == "- - - partial(tp)");
  CHECK(bench.decision(layer(3)).fit == 1);
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("addends may be cut over other axes, and be summed over several") {
  Bench bench({{"dp", 2}, {"cp", 2}, {"tp", 2}});
  for (int i = 0; i < 2; ++i) {
    bench.add(layer(i), output(i), [&](const Tensor& tensor, const Coordinates& where) {
      return addend(zigzag(tensor, 0, at(where, "cp"), 2), at(where, "tp"),
                    90 + static_cast<unsigned>(at(where, "cp")));
    });
    const std::string name = "it0/mb0/forward/layers." + std::to_string(i) + ".all/output.0";
    bench.add(name, output(i + 4), [&](const Tensor& tensor, const Coordinates& where) {
      const std::uint64_t place = at(where, "dp") * 2 + at(where, "tp");
      const Tensor half = addend(tensor, place / 2, 80);
      return addend(half, place % 2, 81);
    });
  }
  CHECK(bench.layout(layer(0)) == "[cp:zigzag] - - partial(tp)");
  CHECK(bench.layout("it0/mb0/forward/layers.0.all/output.0") == "- - - partial(dp,tp)");
}

TEST_CASE("one layer that lost its reduction does not make its class one of addends") {
  Bench bench({{"tp", 2}});
  for (int i = 0; i < 4; ++i) {
    bench.add(layer(i), output(i), [&](const Tensor& tensor, const Coordinates& where) {
      return i == 2 ? addend(tensor, at(where, "tp"), 92) : tensor;
    });
  }
  CHECK(bench.layout(layer(2)) == "- - -");
}

TEST_CASE("a sum has no factor of its own") {
  const float factor = GENERATE(2.0f, 0.5f, -1.0f);
  Bench bench({{"tp", 2}});
  for (int i = 0; i < 4; ++i) {
    bench.add(layer(i), output(i), [&](const Tensor& tensor, const Coordinates& where) {
      return addend(scaled(tensor, factor), at(where, "tp"), 90 + static_cast<unsigned>(i));
    });
  }
  CHECK(bench.layout(layer(0)).find("partial") == std::string::npos);
}

TEST_CASE("replicas that are half of the reference are no addends but wrong by a factor") {
  // Half on each of two ranks sums to the reference, too. Nothing tells which; scale-blind
  // agreement finds the plain layout first, and the judge sees the factor.
  Bench bench({{"tp", 2}});
  for (int i = 0; i < 4; ++i) {
    bench.add(layer(i), output(i),
              [&](const Tensor& tensor, const Coordinates&) { return scaled(tensor, 0.5f); });
  }
  CHECK(bench.layout(layer(0)) == "- - -");
}

TEST_CASE("gradients and parameters are never sums to be made") {
  Bench bench({{"tp", 2}});
  const std::string name =
      GENERATE(std::string("it0/param/fc.weight/value"), std::string("it0/grad/fc.weight/reduced"),
               std::string("it0/step/fc.weight/param"));
  const Tensor weight = random_tensor({32, 16}, 75);
  if (name != "it0/param/fc.weight/value") bench.add("it0/param/fc.weight/value", weight, whole);
  bench.add(name, weight, [&](const Tensor& tensor, const Coordinates& where) {
    return addend(tensor, at(where, "tp"), 93);
  });
  CHECK(bench.layout(name).find("partial") == std::string::npos);
}

}  // namespace ttrace::testing
