// SPDX-License-Identifier: Apache-2.0
// Calls for several micro-batches: each row goes to the micro-batch it came from, and what sizes do
// not prove stays unexplained.
#include "libttrace/joint_calls.hpp"
#include "test/catch.hpp"
#include "test/libttrace/experts_bench.hpp"

namespace ttrace::testing {
namespace {

struct Taken {
  explicit Taken(ExpertsBench& bench) {
    bench.add_reference();
    bench.add_candidate();
    reference.emplace(bench.reference.write());
    candidate.emplace(bench.candidate.write());
    const ShardGroups known = group_shards(*reference, 0, number_microbatches(*reference, 0));
    truth = place_all(known, declared_layouts(known, {}));
    groups = group_shards(*candidate, 0, bench.numbers);
    joint = take_joint_calls(truth, bench.numbers, {}, groups);
  }
  [[nodiscard]] bool has(const std::string& key) const {
    return joint.tensors.count(key_of(key)) != 0;
  }
  // The tensor that was put together, and the one that the reference recorded.
  [[nodiscard]] std::vector<float> values(const std::string& key) const {
    return read(joint.tensors.at(key_of(key)));
  }
  static std::vector<float> read(const LogicalTensor& tensor) {
    std::vector<float> values(element_count(tensor.shape));
    const Box all{Shape(tensor.shape.size(), 0), tensor.shape};
    read_box(tensor, all, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  std::optional<Trace> reference, candidate;
  LogicalTensors truth;
  ShardGroups groups;
  JointCalls joint;
};

}  // namespace

TEST_CASE("rows of joint calls go back to their micro-batches") {
  const auto [ranks, together] = GENERATE(std::pair(2, 2), std::pair(4, 2), std::pair(4, 4));
  ExpertsBench bench(ranks, together, 2);
  const Taken taken(bench);
  CHECK(taken.joint.findings.empty());
  CHECK(taken.joint.tensors.size() == bench.batches.size() * (1 + kExperts));
  for (const auto& [key, tensor] : taken.joint.tensors) CHECK(tensor.proved());
  for (std::size_t i = 0; i < bench.batches.size(); ++i) {
    const auto number = static_cast<std::int32_t>(i);
    CHECK(taken.values(sorted_key(number)) == bench.batches[i].sorted().values);
    for (std::uint64_t expert = 0; expert < kExperts; ++expert) {
      CHECK(taken.values(expert_key(number, expert)) == bench.batches[i].made(expert).values);
    }
  }
  CHECK(taken.groups.size() == bench.batches.size() * 2);  // root inputs and marks are left
}

TEST_CASE("micro-batches one at a time are left alone") {
  ExpertsBench bench(1, 1, 2);
  const Taken taken(bench);
  CHECK(taken.joint.tensors.empty());
}

TEST_CASE("a lost row is explained by nothing") {
  ExpertsBench bench(2, 2, 2);
  const std::string key = expert_key(1, 2);
  const Tensor all = bench.joint(1, 1, 2, &Batch::made);
  bench.changed[{key, 1}] = take(all, 0, range(0, all.shape[0] - 1));
  const Taken taken(bench);
  CHECK_FALSE(taken.has(expert_key(0, 0)));  // the class has no way of working together
  CHECK(taken.has(sorted_key(0)));
  CHECK(taken.groups.count(key_of(expert_key(3, 2))) == 1);
}

TEST_CASE("exchanged micro-batches are put where their place says, and so differ") {
  ExpertsBench bench(2, 2, 1);
  const std::string key = expert_key(0, 1);
  bench.changed[{key, 0}] = stacked({bench.batches[1].made(1), bench.batches[0].made(1)});
  const Taken taken(bench);
  REQUIRE(taken.has(key));
  CHECK(taken.values(key) != bench.batches[0].made(1).values);
  CHECK(taken.values(expert_key(0, 0)) == bench.batches[0].made(0).values);
}

TEST_CASE("exchanged ranks are not what the routing sends them") {
  ExpertsBench bench(2, 2, 1);
  std::vector<Tensor> calls;
  for (const std::int32_t rank : {0, 1}) {
    std::vector<Tensor> parts;
    for (const std::uint64_t expert : bench.experts_of(rank)) {
      parts.push_back(bench.joint(rank, 0, expert, &Batch::taken));
    }
    calls.push_back(stacked(parts));
  }
  REQUIRE(calls[0].shape != calls[1].shape);
  bench.changed[{sorted_key(0), 0}] = calls[1];
  bench.changed[{sorted_key(0), 1}] = calls[0];
  const Taken taken(bench);
  CHECK_FALSE(taken.has(sorted_key(0)));
  CHECK(taken.has(expert_key(0, 0)));
}

TEST_CASE("without a routing only calls of one column are explained") {
  ExpertsBench bench(2, 2, 1);
  for (Batch& batch : bench.batches) batch.marks = constant_tensor({kRows, kExperts}, 0);
  const Taken taken(bench);
  CHECK_FALSE(taken.has(sorted_key(0)));
  CHECK(taken.has(expert_key(1, 3)));
}

TEST_CASE("a routing that the candidate did not record still proves sizes") {
  ExpertsBench bench(2, 2, 1);
  bench.with_marks = false;
  const Taken taken(bench);
  CHECK(taken.values(sorted_key(1)) == bench.batches[1].sorted().values);
}

TEST_CASE("hashes of joint calls say nothing of their parts") {
  ExpertsBench bench(2, 2, 1);
  bench.kept = RecordKind::hash;
  const Taken taken(bench);
  CHECK(taken.joint.tensors.empty());
}

TEST_CASE("rows routed elsewhere are said once, for all that has other shapes by it") {
  ExpertsBench bench(2, 2, 2);
  const auto [from, to] = bench.reroute(1);
  const Taken taken(bench);
  REQUIRE(taken.joint.findings.size() == 1);
  const Finding& finding = taken.joint.findings.front();
  CHECK(finding.kind == FindingKind::layout_unknown);
  CHECK(finding.message.find("1 of 16 in " + mark_key(1)) != std::string::npos);
  // Experts that lost or gained the row, in both micro-batches that share the call.
  for (const std::uint64_t expert : {from, to}) {
    for (const std::int32_t number : {0, 1}) {
      CHECK_FALSE(taken.joint.tensors.at(key_of(expert_key(number, expert))).proved());
    }
    CHECK(taken.values(expert_key(2, expert)) == bench.batches[2].made(expert).values);
  }
  for (std::uint64_t expert = 0; expert < kExperts; ++expert) {
    if (expert == from || expert == to) continue;
    CHECK(taken.values(expert_key(0, expert)) == bench.batches[0].made(expert).values);
  }
  CHECK(taken.groups.size() == bench.batches.size() * 2);
}

TEST_CASE("pieces that add up but are not what the routing makes are a finding") {
  const Batch batch(7);
  const std::uint64_t half = batch.rows_of[0].size() + batch.rows_of[1].size();
  const std::uint64_t moved = GENERATE(0, 1);
  INFO("rows that the wrong rank holds: " << moved);
  TraceBuilder reference("reference"), candidate("candidate");
  reference.mesh({});
  candidate.mesh({{"ep", 2}});
  MicrobatchNumbers numbers;
  for (TraceBuilder* builder : {&reference, &candidate}) {
    for (const auto& [rank, where] : builder->places()) {
      const std::uint64_t cut = half + moved;
      const Indices rows = where.empty()               ? range(0, 2 * kRows)
                           : where.at("ep").coord == 0 ? range(0, cut)
                                                       : range(cut, 2 * kRows);
      ExpertsBench::put(*builder, rank, mark_key(0), batch.marks, DType::boolean);
      ExpertsBench::put(*builder, rank, sorted_key(0), take(batch.sorted(), 0, rows));
      numbers[{rank, 0}] = 0;
    }
  }
  REQUIRE(half + moved != kRows);
  const Trace left = reference.write(), right = candidate.write();
  const ShardGroups known = group_shards(left, 0, number_microbatches(left, 0));
  ShardGroups groups = group_shards(right, 0, numbers);
  const Assembled assembled =
      assemble(place_all(known, declared_layouts(known, {})), numbers, {}, groups);
  const LogicalTensor& tensor = assembled.tensors.at(key_of(sorted_key(0)));
  if (moved == 0) {
    CHECK(assembled.findings.empty());
    CHECK(Taken::read(tensor) == batch.sorted().values);
  } else {
    REQUIRE(assembled.findings.size() == 1);
    CHECK(assembled.findings[0].kind == FindingKind::shape_differs);
    CHECK_FALSE(tensor.proved());
  }
}

TEST_CASE("experts that are cut over ranks: columns and addends by content") {
  ExpertsBench bench(2, 2, 2, 2);
  const Taken taken(bench);
  for (std::size_t i = 0; i < bench.batches.size(); ++i) {
    const auto number = static_cast<std::int32_t>(i);
    CHECK(taken.values(sorted_key(number)) == bench.batches[i].sorted().values);
    for (std::uint64_t expert = 0; expert < kExperts; ++expert) {
      CHECK(taken.values(hidden_key(number, expert)) == bench.batches[i].taken(expert).values);
      const LogicalTensor& sum = taken.joint.tensors.at(key_of(expert_key(number, expert)));
      CHECK(sum.layout.partial == std::vector<std::string>{"tp"});
      CHECK(sum.shards.size() == 2);
    }
  }
}

TEST_CASE("exchanged columns of an expert differ, a lost addend is no sum") {
  ExpertsBench bench(2, 2, 1, 2);
  const std::string key = hidden_key(0, 1);
  const Tensor whole = bench.joint(0, 0, 1, &Batch::taken);
  bench.changed[{key, 0}] = bench.columns(whole, 1);
  bench.changed[{key, 1}] = bench.columns(whole, 0);
  for (std::int32_t rank = 0; rank < 4; ++rank) {  // the second part is the first again
    for (const std::uint64_t expert : bench.experts_of(rank)) {
      bench.changed[{expert_key(0, expert), rank}] =
          bench.addend(bench.joint(rank, 0, expert, &Batch::made), 0);
    }
  }
  const Taken taken(bench);
  CHECK(taken.values(key) != bench.batches[0].taken(1).values);
  CHECK(taken.values(hidden_key(0, 0)) == bench.batches[0].taken(0).values);
  CHECK(taken.joint.tensors.at(key_of(expert_key(0, 0))).layout.partial.empty());
}

}  // namespace ttrace::testing
