// SPDX-License-Identifier: Apache-2.0
// Verdicts against a replay: each limit just below and just above, the step in units in the last
// place, noise from a second replay, and what must hold without any limit.
#include <cmath>

#include "diff/pooling.hpp"
#include "test/catch.hpp"
#include "test/diff/step_trace.hpp"
#include "tolerance/own.hpp"

namespace ttrace {
namespace {

using testing::noisy;
using testing::only_finding;
using testing::random_tensor;
using testing::scaled;
using testing::StepTrace;
using testing::Tensor;
using testing::TraceBuilder;

constexpr double kEpsilon = 0x1p-23;
const std::string kOutput = "it0/mb0/forward/layers.0.fc/output.0";
const std::string kGradient = "it0/mb0/backward/layers.0.fc/grad_output.0";
const std::string kWeight = "it0/param/layers.0.fc.weight/value";
const std::string kUpdated = "it0/step/layers.0.fc.weight/param";
const std::string kMaster = "it0/step/layers.0.fc.weight/master";

StepTrace step(DType type = DType::float32) {
  StepTrace trace;
  trace.add("it0/mb0/forward/@root/input.0", testing::constant_tensor({4}, 7), DType::int64);
  trace.add(kOutput, random_tensor({64, 32}, 2), type);
  trace.add(kGradient, random_tensor({64, 32}, 3), type);
  trace.add(kWeight, random_tensor({32, 16}, 4), type);
  trace.add(kUpdated, random_tensor({32, 16}, 5), type);
  return trace;
}

Trace written(TraceBuilder& builder, const StepTrace& trace) {
  builder.mesh({});
  for (const auto& [field, tensor] : trace.fields()) builder.add(0, field, tensor);
  return builder.write();
}

Report judged(const StepTrace& own, const StepTrace& candidate, const StepTrace* high = nullptr) {
  TraceBuilder left("own.trace"), right("candidate.trace"), above("high.trace");
  CompareOptions options;
  options.limits = own_limits;
  const Trace own_trace = written(left, own);
  const Trace candidate_trace = written(right, candidate);
  std::optional<Trace> high_trace;
  if (high != nullptr) high_trace.emplace(written(above, *high));
  options.high = high_trace ? &*high_trace : nullptr;
  return compare(own_trace, candidate_trace, *make_cpu_backend(), options);
}

TEST_CASE("an error in one module is judged in epsilons of its own") {
  // Twice the largest healthy error: 1.9 epsilons of an activation, 5.9 of a gradient.
  const auto [key, epsilons] = GENERATE(std::pair{kOutput, 3.8}, std::pair{kGradient, 11.8});
  // float32 holds the factor to half a unit, so the error is known to a few per cent only.
  for (const double share : {0.8, 1.2}) {
    StepTrace candidate = step();
    Tensor wrong = candidate.get(key);
    // Half of the elements up, half down: no gradient seed can take it out.
    const double change = share * epsilons * kEpsilon;
    for (std::size_t i = 0; i < wrong.values.size(); ++i) {
      wrong.values[i] = static_cast<float>(wrong.values[i] * (1 + (i % 2 == 0 ? change : -change)));
    }
    candidate.set(key, wrong);
    const Report report = judged(step(), candidate);
    CHECK(report.same() == (share < 1));
    if (share > 1) CHECK(to_string(only_finding(report).key) == key);
  }
}

TEST_CASE("a step from equal gradients may be off by eight units in the last place") {
  for (const int units : {7, 9}) {
    StepTrace candidate = step();
    Tensor moved = candidate.get(kUpdated);
    // Units of what the element was and is, together.
    const double size = std::fabs(candidate.get(kWeight).values[40]) + std::fabs(moved.values[40]);
    moved.values[40] += static_cast<float>(units * kEpsilon * size);
    candidate.set(kUpdated, moved);
    const Report report = judged(step(), candidate);
    CHECK(report.same() == (units < 8));
    if (units > 8) CHECK(only_finding(report).kind == FindingKind::over_limit);
  }
}

TEST_CASE("a second replay shows the noise, and a small factor stands out of it") {
  const StepTrace high = step();
  StepTrace own = step(), candidate = step();
  own.set(kOutput, noisy(high.fields()[1].second, 1e-6, 11));
  candidate.set(kOutput, noisy(high.fields()[1].second, 1e-6, 12));
  CHECK(judged(own, candidate, &high).same());
  // In its own precision alone, twice the error would be seen; a third of it is, in this light.
  candidate.set(kOutput, scaled(candidate.get(kOutput), 1 + 2e-6F));
  const Report report = judged(own, candidate, &high);
  CHECK(only_finding(report).message.find("scale") != std::string::npos);
  const TensorLine& line = testing::line_of(report, kOutput);
  CHECK(line.statistic == "scale");
  REQUIRE(line.resolution);
  CHECK(line.resolution->factor.value_or(1) < 2e-6);
}

TEST_CASE("beside measured noise an error takes nothing away from what explains it") {
  // Addends of noise 1e-3: their sum is not the truth to the last bit, but within that noise.
  const std::string key = "it0/grad/layers.0.fc.weight/reduced";
  const Tensor truth = random_tensor({32, 16}, 6), addend = random_tensor({32, 16}, 7);
  Tensor rest = noisy(truth, 1e-3, 13);
  for (std::size_t i = 0; i < rest.values.size(); ++i) rest.values[i] -= addend.values[i];
  const StepTrace plain = step();
  StepTrace high = plain, own = plain;
  high.add(key, truth);
  own.add(key, noisy(truth, 1e-3, 12));
  TraceBuilder left("own.trace"), above("high.trace"), right("candidate.trace");
  right.mesh({{"tp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    for (const auto& [field, tensor] : plain.fields()) right.add(rank, field, tensor);
    right.add(rank, {testing::key_of(key), DType::float32, RecordKind::full, "", 0},
              rank == 0 ? addend : rest);
  }
  const Trace own_trace = written(left, own), high_trace = written(above, high);
  const Trace candidate_trace = right.write();
  CompareOptions options;
  options.limits = own_limits;
  options.high = &high_trace;
  const Report report = compare(own_trace, candidate_trace, *make_cpu_backend(), options);
  REQUIRE_FALSE(report.findings.empty());
  REQUIRE(report.findings[0].causes.size() == 1);
  CHECK(report.findings[0].causes[0].what ==
        "not reduced over tp: the sum of what the ranks hold is the reference");
}

TEST_CASE("an update below half a unit of bfloat16 is seen in the master alone") {
  // 1 + 2^-12 rounds to 1: the step leaves the bfloat16 parameter as it was.
  const Tensor ones = testing::constant_tensor({32, 16}, 1);
  StepTrace own = step(DType::bfloat16);
  for (const char* key :
       {"it0/param/layers.0.fc.weight/value", "it0/step/layers.0.fc.weight/param"}) {
    own.set(key, ones);
  }
  own.add("it0/param/layers.0.fc.weight/master", ones);
  StepTrace candidate = own;
  own.add(kMaster, testing::constant_tensor({32, 16}, 1 + 0x1p-12F));

  const bool stepped = GENERATE(true, false);
  candidate.add(kMaster, testing::constant_tensor({32, 16}, stepped ? 1 + 0x1p-12F : 1.0F));
  const Report report = judged(own, candidate);
  CHECK(report.same() == stepped);
  if (!stepped) CHECK(to_string(only_finding(report).key) == kMaster);
}

TEST_CASE("differences against a replay are introduced where they are") {
  StepTrace candidate = step();
  candidate.set(kOutput, scaled(candidate.get(kOutput), 1.5F));
  candidate.set(kUpdated, scaled(candidate.get(kUpdated), 1.5F));
  const Report report = judged(step(), candidate);
  REQUIRE(report.findings.size() == 2);
  for (const OrderedFinding& entry : report.findings) CHECK_FALSE(entry.inherited);
}

TEST_CASE("a bfloat16 parameter is its master rounded to nearest even") {
  // 1 + 2^-8 lies half way between 1 and 1 + 2^-7; nearest even is 1.
  for (const float stored : {1.0F, 1.0078125F}) {
    StepTrace trace = step(DType::bfloat16);
    trace.set(kUpdated, testing::constant_tensor({32, 16}, stored));
    trace.add(kMaster, testing::constant_tensor({32, 16}, 1 + 0x1p-8F));
    const Report report = judged(trace, trace);
    CHECK(report.findings.size() == (stored == 1.0F ? 0U : 2U));  // one a side
  }
}

std::vector<Finding> pooled_over(const std::vector<PooledTerm>& terms) {
  Alignment alignment;
  std::vector<Outcome> outcomes(terms.size());
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Pair pair;
    pair.key = {0, 0, Phase::forward, "layers." + std::to_string(i) + ".fc", 0, "output.0"};
    alignment.pairs.push_back(pair);
    outcomes[i].pooled = terms[i];
  }
  return pooled_findings(alignment, outcomes, {});
}

TEST_CASE("a factor that each layer hides shows in all of them together") {
  // z = 2.5 in each of 9 layers is 2.5 * 9 / sqrt(9) = 7.5 in all.
  const std::vector<PooledTerm> same(9, {2.5, 0.001, 0.005});
  const std::vector<Finding> findings = pooled_over(same);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].score == Approx(7.5 / 6));

  std::vector<PooledTerm> opposed = same;
  for (std::size_t i = 0; i < opposed.size(); i += 2) opposed[i] = {-2.5, -0.001, 0.005};
  CHECK(pooled_over(opposed).empty());
  // One block's own.
  std::vector<PooledTerm> single(9, {0.1, 0.00001, 0.005});
  single[4] = {30, 0.01, 0.005};
  CHECK(pooled_over(single).empty());
  // Certain, but of no size: less than 0.08 of the noise.
  CHECK(pooled_over(std::vector<PooledTerm>(9, {2.5, 0.0003, 0.005})).empty());
  CHECK(pooled_over(std::vector<PooledTerm>(2, {5, 0.001, 0.005})).empty());
}

}  // namespace
}  // namespace ttrace
