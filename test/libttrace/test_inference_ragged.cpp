// SPDX-License-Identifier: Apache-2.0
// Pieces of sizes that no extent tells: rows that were routed to ranks. A last resort, and nothing
// that explains a bug away.
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"
#include "test/libttrace/inference_bench.hpp"

namespace ttrace::testing {
namespace {

const std::string kTokens = "it0/mb0/forward/layers.0.experts/input.0";
const std::string kAround = "it0/mb0/forward/layers.0/output.0";

// Rows [first[r], first[r + 1]) on the r-th rank along ep.
Cutter rows(const Indices& first) {
  return [first](const Tensor& tensor, const Coordinates& where) {
    const std::uint64_t r = at(where, "ep");
    return take(tensor, 0, range(first[r], first[r + 1]));
  };
}

Tensor tokens() { return random_tensor({64, 16}, 5); }

}  // namespace

TEST_CASE("pieces in the order of coordinates that add up are ragged") {
  Bench bench({{"ep", 2}});
  bench.add(kTokens, tokens(), rows({0, 31, 64}));
  CHECK(bench.layout(kTokens) == "[ep:ragged] -");
  CHECK(bench.inference.findings.empty());
  const LogicalTensor placed = bench.placed(kTokens);
  REQUIRE(placed.proved());
  REQUIRE(placed.shards.size() == 2);
  CHECK(placed.shards[0].pieces[0].global == Box{{0, 0}, {31, 16}});
  CHECK(placed.shards[1].pieces[0].global == Box{{31, 0}, {33, 16}});
}

TEST_CASE("a rank may have no rows, and another dimension may be cut evenly") {
  Bench bench({{"ep", 4}, {"tp", 2}});
  bench.add(kTokens, tokens(), [](const Tensor& tensor, const Coordinates& where) {
    return part(rows({0, 20, 20, 33, 64})(tensor, where), 1, at(where, "tp"), 2);
  });
  CHECK(bench.layout(kTokens) == "[ep:ragged] [tp]");
  CHECK(bench.placed(kTokens).proved());
}

TEST_CASE("equal pieces are a plain cut") {
  Bench bench({{"ep", 2}});
  bench.add(kTokens, tokens(), rows({0, 32, 64}));
  CHECK(bench.layout(kTokens) == "[ep] -");
}

TEST_CASE("a row that no rank has, or that two have, leaves no layout") {
  const std::uint64_t taken = GENERATE(30, 32);
  Bench bench({{"ep", 2}});
  bench.add(kTokens, tokens(), [taken](const Tensor& tensor, const Coordinates& where) {
    return take(tensor, 0, at(where, "ep") == 0 ? range(0, taken) : range(31, 64));
  });
  CHECK(bench.layout(kTokens) == "unknown");
  CHECK(bench.inference.findings.size() == 1);
}

TEST_CASE("ranks that should hold copies must hold as many rows") {
  Bench bench({{"ep", 2}, {"dp", 2}});
  bench.add(kTokens, tokens(), [](const Tensor& tensor, const Coordinates& where) {
    const Indices first = at(where, "dp") == 0 ? Indices{0, 31, 64} : Indices{0, 30, 64};
    return rows(first)(tensor, where);
  });
  CHECK(bench.layout(kTokens) == "unknown");
}

TEST_CASE("parameters may be cut otherwise than torch.chunk does, as torch.tensor_split") {
  const std::string weight = "it0/param/layers.0.weight/value";
  Bench bench({{"ep", 4}});
  bench.add(weight, random_tensor({26, 16}, 5), rows({0, 7, 14, 20, 26}));
  CHECK(bench.layout(weight) == "[ep:ragged] -");
  CHECK(bench.placed(weight).proved());
}

TEST_CASE("exchanged ranks do not agree with the reference") {
  Bench bench({{"ep", 2}});
  bench.add(kAround, random_tensor({32, 16}, 6), whole);
  bench.add(kTokens, tokens(), [](const Tensor& tensor, const Coordinates& where) {
    return take(tensor, 0, at(where, "ep") == 0 ? range(31, 64) : range(0, 31));
  });
  CHECK(bench.layout(kTokens) == "unknown");  // the module around it is right: a local order
  CHECK(bench.count(FindingKind::layout_unknown) == 1);
}

TEST_CASE("exchanged ranks are compared where what follows is wrong, too") {
  Bench bench({{"ep", 2}});
  bench.add_reference(kAround, random_tensor({32, 16}, 6));
  bench.add_shards(kAround, random_tensor({32, 16}, 7), whole);
  bench.add(kTokens, tokens(), [](const Tensor& tensor, const Coordinates& where) {
    return take(tensor, 0, at(where, "ep") == 0 ? range(31, 64) : range(0, 31));
  });
  CHECK(bench.layout(kTokens) == "[ep:ragged] -");
  CHECK(bench.decision(kTokens).fit < 0.2);
}

TEST_CASE("ragged cuts as text take their sizes from the shards") {
  Layout layout = parse_dims("t[ep:ragged] h");
  CHECK(to_string(layout) == "[ep:ragged] -");
  const Coordinates first{{"ep", {0, 2}}}, second{{"ep", {1, 2}}};
  CHECK_THROWS_AS(runs_of(5, layout.dims[0], first), Trouble);
  CHECK_THROWS_AS(measure_ragged(layout, {{first, {2, 4}}}), Trouble);
  CHECK_THROWS_AS(measure_ragged(layout, {{first, {2, 4}}, {second, {3, 4}}, {second, {2, 4}}}),
                  Trouble);
  measure_ragged(layout, {{first, {2, 4}}, {second, {3, 4}}});
  CHECK(runs_of(5, layout.dims[0], second) == std::vector<Run>{{0, 3, 2}});
  CHECK_THROWS_AS(runs_of(6, layout.dims[0], second), Trouble);
}

TEST_CASE("a merge without a reference takes declared ragged sizes from the shards") {
  TraceBuilder builder("declared");
  builder.mesh({{"ep", 2}});
  for (const auto& [rank, where] : builder.places()) {
    builder.add(
        rank,
        {key_of(kTokens), DType::float32, RecordKind::full, R"({"dims":"t[ep:ragged] h"})", 0},
        rows({0, 31, 64})(tokens(), where));
  }
  const Trace trace = builder.write();
  const ShardGroups groups = group_shards(trace, 0, number_microbatches(trace, 0));
  const LogicalTensors tensors = place_all(groups, declared_layouts(groups, {}));
  const LogicalTensor& merged = tensors.at(key_of(kTokens));
  REQUIRE(merged.proved());
  CHECK(merged.shape == Shape{64, 16});
  std::vector<float> values(64 * 16);
  read_box(merged, {{0, 0}, {64, 16}}, reinterpret_cast<std::byte*>(values.data()));
  CHECK(values == tokens().values);
}

}  // namespace ttrace::testing
