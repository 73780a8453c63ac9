// SPDX-License-Identifier: Apache-2.0
// A comparison of experts that serve several micro-batches in one call: every tensor of the
// reference is compared once, and what goes wrong in one is found there.
#include "diff/compare.hpp"
#include "test/catch.hpp"
#include "test/libttrace/experts_bench.hpp"
#include "tolerance/bound.hpp"

namespace ttrace::testing {
namespace {

Report compared(ExpertsBench& bench) {
  bench.add_reference();
  bench.add_candidate();
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt, Growth::root);
  };
  const Trace reference = bench.reference.write();
  const Trace candidate = bench.candidate.write();
  return compare(reference, candidate, *make_cpu_backend(), options);
}

std::vector<std::string> keys_of(const Report& report) {
  std::vector<std::string> keys;
  for (const OrderedFinding& entry : report.findings) keys.push_back(to_string(entry.finding.key));
  return keys;
}

using Keys = std::vector<std::string>;

}  // namespace

TEST_CASE("every expert's tensors are compared, once for each micro-batch") {
  ExpertsBench bench(4, 2, 2);
  const Report report = compared(bench);
  CHECK(keys_of(report).empty());
  // Tokens, routing, what all experts take and what each makes, of 8 micro-batches.
  CHECK(report.expected() == 8 * (3 + kExperts));
  CHECK(report.compared() == report.expected());
}

TEST_CASE("a wrong row of a joint call is found in its micro-batch") {
  ExpertsBench bench(2, 2, 1);
  const std::string key = expert_key(0, 2);  // of rank 1, for micro-batches 0 and 1
  Tensor wrong = bench.joint(1, 0, 2, &Batch::made);
  wrong.values.back() += 1;  // the last row is of micro-batch 1
  bench.changed[{key, 1}] = wrong;
  CHECK(keys_of(compared(bench)) == Keys{expert_key(1, 2)});
}

TEST_CASE("exchanged micro-batches are found in both") {
  ExpertsBench bench(2, 2, 1);
  const std::string key = expert_key(0, 1);
  bench.changed[{key, 0}] = stacked({bench.batches[1].made(1), bench.batches[0].made(1)});
  CHECK(keys_of(compared(bench)) == Keys{key, expert_key(1, 1)});
}

TEST_CASE("a routing that differs comes first, what it changes is one finding") {
  ExpertsBench bench(2, 2, 1);
  bench.reroute(1);
  const Report report = compared(bench);
  REQUIRE(report.findings.size() >= 2);
  CHECK(to_string(report.findings[0].finding.key) == mark_key(1));
  CHECK_FALSE(report.findings[0].inherited);
  std::size_t unknown = 0;
  for (const OrderedFinding& entry : report.findings) {
    unknown += entry.finding.kind == FindingKind::layout_unknown ? 1 : 0;
    CHECK(entry.finding.kind != FindingKind::shape_differs);
    CHECK(entry.finding.kind != FindingKind::missing);
  }
  CHECK(unknown == 1);
}

}  // namespace ttrace::testing
