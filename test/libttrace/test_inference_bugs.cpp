// SPDX-License-Identifier: Apache-2.0
// What a bug did must not become a layout: permutations, lost reductions, shifted heads and cuts of
// a single layer stay visible to the comparison.
#include "test/catch.hpp"
#include "test/libttrace/inference_bench.hpp"

namespace ttrace::testing {
namespace {

std::string layer(int number, const std::string& rest) {
  return "it0/mb0/forward/layers." + std::to_string(number) + "." + rest;
}

// A gated output: rank r holds the r-th part of either half.
Tensor gated(const Tensor& tensor, const Coordinates& where) {
  const std::uint64_t r = at(where, "tp");
  const std::uint64_t part = tensor.shape[2] / 4;
  const std::uint64_t half = tensor.shape[2] / 2;
  return take(
      tensor, 2,
      joined(range(r * part, (r + 1) * part), range(half + r * part, half + (r + 1) * part)));
}

Tensor reversed(const Tensor& tensor, std::size_t dim) {
  Indices indices;
  for (std::uint64_t i = tensor.shape[dim]; i-- > 0;) indices.push_back(i);
  return take(tensor, dim, indices);
}

// Four layers; in layer 2 rank 1 holds what `bug` made of its shard.
Bench four_layers(const std::function<Tensor(const Tensor&)>& bug) {
  Bench bench({{"tp", 2}});
  for (int i = 0; i < 4; ++i) {
    const Tensor output = random_tensor({16, 2, 64}, 40 + static_cast<unsigned>(i));
    bench.add(layer(i, "fc1/output.0"), output,
              [&](const Tensor& tensor, const Coordinates& where) {
                const Tensor shard = gated(tensor, where);
                return i == 2 && at(where, "tp") == 1 ? bug(shard) : shard;
              });
  }
  return bench;
}

TEST_CASE("one buggy layer of four does not bend the layout of its class") {
  const auto bug = GENERATE(0, 1, 2, 3);
  Bench bench = four_layers([bug](const Tensor& shard) {
    if (bug == 0) return scaled(shard, 2);
    if (bug == 1) return scaled(shard, 0);
    if (bug == 2) return reversed(shard, 2);
    return random_tensor(shard.shape, 99);
  });

  for (int i = 0; i < 4; ++i) CHECK(bench.layout(layer(i, "fc1/output.0")) == "- - [tp:/2]");
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("a layer that is cut in another way than its class keeps the layout of the class") {
  Bench bench({{"tp", 2}});
  for (int i = 0; i < 4; ++i) {
    const Tensor output = random_tensor({16, 2, 64}, 50 + static_cast<unsigned>(i));
    bench.add(layer(i, "fc1/output.0"), output, i == 3 ? cut(2, "tp") : Cutter(gated));
  }

  CHECK(bench.layout(layer(3, "fc1/output.0")) == "- - [tp:/2]");
}

TEST_CASE("ranks in the wrong order are no layout") {
  Bench bench({{"tp", 4}});
  const Tensor weight = random_tensor({64, 32}, 60);
  bench.add("it0/param/fc.weight/value", weight,
            [](const Tensor& tensor, const Coordinates& where) {
              return part(tensor, 0, 3 - at(where, "tp"), 4);
            });
  bench.add("it0/mb0/forward/fc/output.0", random_tensor({16, 2, 64}, 61),
            [](const Tensor& tensor, const Coordinates& where) {
              return part(tensor, 2, at(where, "tp") ^ 1, 4);
            });

  CHECK(bench.decision("it0/param/fc.weight/value").fit < 0.3);
  CHECK(bench.decision("it0/mb0/forward/fc/output.0").fit < 0.3);
  CHECK(bench.layout("it0/mb0/forward/fc/output.0") != "unknown");
}

TEST_CASE("heads mapped to interleaved ranks are not a partly replicated axis") {
  Bench bench({{"tp", 4}});
  bench.add("it0/param/k.weight/value", random_tensor({32, 32}, 62),
            [](const Tensor& tensor, const Coordinates& where) {
              return part(tensor, 0, at(where, "tp") % 2, 2);
            });

  CHECK(bench.layout("it0/param/k.weight/value") == "[tp/outer2] -");
  CHECK(bench.decision("it0/param/k.weight/value").fit < 0.7);
}

TEST_CASE("a gradient without its reduction keeps its parameter's layout") {
  Bench bench({{"tp", 2}});
  bench.add("it0/param/norm.weight/value", constant_tensor({64}, 1), whole);
  const Tensor gradient = random_tensor({64}, 63);
  const Tensor first = random_tensor({64}, 64);
  Tensor second = gradient;
  for (std::size_t i = 0; i < 64; ++i) second.values[i] -= first.values[i];
  bench.add_reference("it0/grad/norm.weight/reduced", gradient);
  bench.add_shard(0, "it0/grad/norm.weight/reduced", first);
  bench.add_shard(1, "it0/grad/norm.weight/reduced", second);

  CHECK(bench.layout("it0/grad/norm.weight/reduced") == "-");
  const LogicalTensor placed = bench.placed("it0/grad/norm.weight/reduced");
  REQUIRE(placed.problems.size() == 1);
  CHECK(placed.problems[0].kind == FindingKind::replica_conflict);
}

TEST_CASE("gradients and updates that are cut like another layout stay with their parameter") {
  Bench bench({{"tp", 2}});
  const Cutter strided = [](const Tensor& tensor, const Coordinates& where) {
    const std::uint64_t r = at(where, "tp");
    return take(tensor, 0, joined(range(16 * r, 16 * r + 16), range(32 + 16 * r, 48 + 16 * r)));
  };
  bench.add("it0/param/fc1.weight/value", random_tensor({64, 32}, 65), strided);
  const auto slot = GENERATE("grad/fc1.weight/reduced", "grad/fc1.weight/local",
                             "step/fc1.weight/param", "step/fc1.weight/exp_avg");
  const std::string key = "it0/" + std::string(slot == std::string("grad/fc1.weight/local")
                                                   ? "mb0/grad/fc1.weight/local"
                                                   : slot);
  bench.add(key, random_tensor({64, 32}, 66), cut(0, "tp"));

  CHECK(bench.layout("it0/param/fc1.weight/value") == "[tp:/2] -");
  CHECK(bench.layout(key) == "[tp:/2] -");
  CHECK(bench.decision(key).reason == "like its parameter");
}

TEST_CASE("an activation gradient has the layout of its activation whatever it holds") {
  Bench bench({{"tp", 2}});
  bench.add("it0/mb0/forward/fc1/output.0", random_tensor({16, 2, 64}, 67), gated);
  bench.add("it0/mb0/backward/fc1/grad_output.0", random_tensor({16, 2, 64}, 68), cut(2, "tp"));

  CHECK(bench.layout("it0/mb0/backward/fc1/grad_output.0") == "- - [tp:/2]");
}

TEST_CASE("a sum that was not made is a problem of the tensor, whatever layout explains it") {
  Bench bench({{"tp", 2}});
  const Tensor output = random_tensor({16, 2, 64}, 69);
  const Tensor first = random_tensor({16, 2, 64}, 70);
  Tensor second = output;
  for (std::size_t i = 0; i < second.values.size(); ++i) second.values[i] -= first.values[i];
  bench.add_reference("it0/mb0/forward/fc2/output.0", output);
  bench.add_shard(0, "it0/mb0/forward/fc2/output.0", first);
  bench.add_shard(1, "it0/mb0/forward/fc2/output.0", second);

  CHECK(bench.layout("it0/mb0/forward/fc2/output.0") == "- - - partial(tp)");
  const LogicalTensor placed = bench.placed("it0/mb0/forward/fc2/output.0");
  REQUIRE(placed.problems.size() == 1);
  CHECK(placed.problems[0].kind == FindingKind::partial_incomplete);
}

TEST_CASE("activations are not padded") {
  Bench bench({{"tp", 4}});
  const Tensor tokens = random_tensor({103, 24}, 71);
  bench.add_reference("it0/mb0/forward/experts/output.0", tokens);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    bench.add_shard(rank, "it0/mb0/forward/experts/output.0",
                    random_tensor({32, 24}, 72 + static_cast<unsigned>(rank)));
  }

  CHECK(bench.layout("it0/mb0/forward/experts/output.0") == "unknown");
  CHECK(bench.count(FindingKind::shape_differs) == 1);
}

// Tokens of two experts, each rank in an order of its own; the module around them is `around`.
Bench local_order(const Cutter& around) {
  Bench bench({{"ep", 2}});
  bench.add("it0/mb0/forward/mlp/output.0", random_tensor({32, 2, 24}, 80), around);
  bench.add("it0/mb0/forward/mlp.experts.0/output.0", random_tensor({64, 24}, 81),
            [](const Tensor& tensor, const Coordinates& where) {
              Indices order;
              for (std::uint64_t i = 0; i < 64; ++i) order.push_back(37 * i + 11 & 63);
              return part(take(tensor, 0, order), 0, at(where, "ep"), 2);
            });
  return bench;
}

TEST_CASE("tokens in a local order are not comparable when the module around them agrees") {
  Bench bench = local_order(cut(0, "ep"));

  CHECK(bench.layout("it0/mb0/forward/mlp.experts.0/output.0") == "unknown");
  CHECK(bench.layout("it0/mb0/forward/mlp/output.0") == "[ep] - -");
  CHECK(bench.count(FindingKind::layout_unknown) == 1);
}

TEST_CASE("a tensor that agrees nowhere is compared when the module around it is wrong too") {
  Bench bench = local_order([](const Tensor& tensor, const Coordinates&) {
    return random_tensor({tensor.shape[0] / 2, tensor.shape[1], tensor.shape[2]}, 82);
  });

  CHECK(bench.layout("it0/mb0/forward/mlp.experts.0/output.0") != "unknown");
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("another hidden size is a finding with both shapes") {
  Bench bench({{"tp", 2}});
  bench.add_reference("it0/param/fc.weight/value", random_tensor({64, 32}, 83));
  bench.add_shards("it0/param/fc.weight/value", random_tensor({48, 32}, 84), cut(0, "tp"));

  CHECK(bench.layout("it0/param/fc.weight/value") == "unknown");
  REQUIRE(bench.count(FindingKind::shape_differs) == 1);
  const Finding& finding = bench.inference.findings.front();
  CHECK(finding.message.find("[64, 32]") != std::string::npos);
  CHECK(finding.message.find("[24, 32]") != std::string::npos);
}

TEST_CASE("decisions do not depend on luck: equal runs decide equally") {
  const auto run = [] {
    Bench bench = four_layers([](const Tensor& shard) { return scaled(shard, 3); });
    return bench.decision(layer(0, "fc1/output.0")).fit;
  };
  CHECK(run() == run());
}

}  // namespace
}  // namespace ttrace::testing
