// SPDX-License-Identifier: Apache-2.0
// Each rule of the verdict with an error of known size, just below and just above its limit.
#include <cmath>
#include <limits>

#include "test/catch.hpp"
#include "test/diff/step_trace.hpp"

namespace ttrace {
namespace {

using testing::compare_steps;
using testing::line_of;
using testing::only_finding;
using testing::random_tensor;
using testing::scaled;
using testing::StepTrace;
using testing::Tensor;

constexpr double kEpsilon = 0x1p-23;
const std::string kOutput = "it0/mb0/forward/layers.0.fc/output.0";
const std::string kGradient = "it0/mb0/backward/layers.0.fc/grad_output.0";
const std::string kInput = "it0/mb0/forward/layers.0.fc/input.0";
const std::string kWeight = "it0/param/layers.0.fc.weight/value";
const std::string kReduced = "it0/grad/layers.0.fc.weight/reduced";
const std::string kUpdated = "it0/step/layers.0.fc.weight/param";

// One block with a linear module: depth 1 of 1, so limits are k * epsilon.
StepTrace step() {
  StepTrace trace;
  trace.add("it0/mb0/forward/@root/input.0", testing::constant_tensor({4}, 7), DType::int64);
  trace.add(kInput, random_tensor({32, 16}, 1));
  trace.add(kOutput, random_tensor({32, 24}, 2));
  trace.add("it0/mb0/forward/@root/output.0", testing::constant_tensor({}, 2.5f));
  trace.add(kGradient, random_tensor({32, 24}, 3));
  trace.add(kWeight, random_tensor({24, 16}, 4));
  trace.add(kReduced, scaled(random_tensor({24, 16}, 5), 5));
  Tensor updated = random_tensor({24, 16}, 4);
  const Tensor gradient = random_tensor({24, 16}, 5);
  for (std::size_t i = 0; i < updated.values.size(); ++i) {
    updated.values[i] -= gradient.values[i] > 0 ? 0.01f : -0.01f;
  }
  trace.add(kUpdated, updated);
  return trace;
}

// The tensor with an error of `relative` times its norm, along itself and across it.
Tensor with_error(const Tensor& tensor, double relative) {
  Tensor wrong = tensor;
  double norm = 0, other = 0;
  const Tensor direction = random_tensor(tensor.shape, 77);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    norm += static_cast<double>(tensor.values[i]) * tensor.values[i];
    other += static_cast<double>(direction.values[i]) * direction.values[i];
  }
  const double step = relative * std::sqrt(norm / other);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    wrong.values[i] = static_cast<float>(tensor.values[i] + step * direction.values[i]);
  }
  return wrong;
}

Report changed(const std::string& key, double relative) {
  StepTrace candidate = step();
  candidate.set(key, with_error(candidate.get(key), relative));
  return compare_steps(step(), candidate);
}

}  // namespace

TEST_CASE("a step is the same as itself, all of it") {
  const Report report = compare_steps(step(), step());
  CHECK(report.same());
  CHECK(report.compared() == 8);
  CHECK(report.expected() == 8);
}

TEST_CASE("an activation may err by 4 epsilon of float32 after no block") {
  CHECK(changed(kOutput, 3.5 * kEpsilon).same());
  const Report report = changed(kOutput, 1e-5);
  const Finding finding = only_finding(report);
  CHECK(finding.kind == FindingKind::over_limit);
  CHECK(to_string(finding.key) == kOutput);
  CHECK(finding.score == Approx(1e-5 / (4 * kEpsilon)).epsilon(0.02));
}

TEST_CASE("a gradient may err by 13 epsilon before the last block") {
  CHECK(changed(kGradient, 12 * kEpsilon).same());
  CHECK(only_finding(changed(kGradient, 2e-5)).key.phase == Phase::backward);
  CHECK(changed(kReduced, 12 * kEpsilon).same());
  CHECK(only_finding(changed(kReduced, 2e-5)).key.phase == Phase::grad);
}

TEST_CASE("a NaN on one side is found, however loose the limit") {
  StepTrace candidate = step();
  Tensor output = candidate.get(kOutput);
  output.values[5] = std::numeric_limits<float>::quiet_NaN();
  candidate.set(kOutput, output);

  CHECK(only_finding(compare_steps(step(), candidate, 1e9)).kind == FindingKind::nonfinite);
}

TEST_CASE("the same NaN on both sides is counted and no finding") {
  StepTrace both = step();
  Tensor output = both.get(kOutput);
  output.values[5] = std::numeric_limits<float>::quiet_NaN();
  both.set(kOutput, output);

  const Report report = compare_steps(both, both);
  CHECK(report.same());
  CHECK(report.nan_on_both == 1);
}

TEST_CASE("start weights may not differ in a single bit") {
  StepTrace candidate = step();
  Tensor weight = candidate.get(kWeight);
  weight.values[9] = std::nextafter(weight.values[9], 10.0f);
  candidate.set(kWeight, weight);

  const Finding finding = only_finding(compare_steps(step(), candidate));
  CHECK(finding.kind == FindingKind::not_equal);
  CHECK(finding.message.find("1 of 384 elements") != std::string::npos);
}

TEST_CASE("integers may not differ") {
  StepTrace reference = step(), candidate = step();
  const std::string key = "it0/mb0/forward/layers.0.router/output.0";
  reference.add(key, testing::constant_tensor({6}, 3), DType::int64);
  Tensor choice = testing::constant_tensor({6}, 3);
  choice.values[2] = 4;
  candidate.add(key, choice, DType::int64);

  CHECK(only_finding(compare_steps(reference, candidate, 1e9)).kind == FindingKind::not_equal);
}

TEST_CASE("a floating tensor against integers is another class of type") {
  StepTrace reference = step(), candidate = step();
  const std::string key = "it0/mb0/forward/layers.0.mask/output.0";
  reference.add(key, testing::constant_tensor({6}, 1));
  candidate.add(key, testing::constant_tensor({6}, 1), DType::int64);

  CHECK(only_finding(compare_steps(reference, candidate)).kind == FindingKind::dtype_differs);
}

TEST_CASE("a gradient that cancels is judged by the size of its terms") {
  // Rounding of the terms: epsilon * sqrt(sum |dy|^2) = epsilon * 28; the gradient itself is 1e-6.
  const std::string key = "it0/grad/layers.0.fc.bias/reduced";
  StepTrace reference = step(), candidate = step();
  reference.add(key, scaled(random_tensor({24}, 8), 1e-6f / 5));
  candidate.add(key, scaled(random_tensor({24}, 9), 1e-6f / 5));
  CHECK(compare_steps(reference, candidate).same());

  // The same error beside terms that are a thousand times smaller is no rounding.
  for (StepTrace* trace : {&reference, &candidate}) {
    trace->set(kGradient, scaled(random_tensor({32, 24}, 3), 1e-3f));
  }
  CHECK(to_string(only_finding(compare_steps(reference, candidate)).key) == key);
}

TEST_CASE("a gradient hands the rounding of what its dy was made of on to the parameter") {
  // As attention's keys: dy is tiny, for it cancelled, and the bias adds it up.
  const std::string bias = "it0/grad/layers.0.fc.bias/reduced";
  const std::string sibling = "it0/mb0/backward/layers.0.norm/grad_output.0";
  StepTrace reference = step(), candidate = step();
  reference.add(bias, scaled(random_tensor({24}, 8), 1e-6f / 5));
  candidate.add(bias, scaled(random_tensor({24}, 9), 1e-6f / 5));
  for (StepTrace* trace : {&reference, &candidate}) {
    trace->set(kGradient, scaled(random_tensor({32, 24}, 3), 1e-3f));
    trace->add(sibling, random_tensor({32, 24}, 10));
  }
  CHECK(compare_steps(reference, candidate).same());

  for (StepTrace* trace : {&reference, &candidate}) {
    trace->set(sibling, scaled(random_tensor({32, 24}, 10), 1e-3f));
  }
  CHECK(to_string(only_finding(compare_steps(reference, candidate)).key) == bias);
}

TEST_CASE("an activation's gradient that is tiny beside its siblings carries their rounding") {
  const std::string key = "it0/mb0/backward/layers.0.norm/grad_output.0";
  StepTrace reference = step(), candidate = step();
  reference.add(key, scaled(random_tensor({32, 24}, 10), 1e-7f / 5));
  candidate.add(key, scaled(random_tensor({32, 24}, 11), 1e-7f / 5));
  CHECK(compare_steps(reference, candidate).same());

  for (StepTrace* trace : {&reference, &candidate}) {
    trace->set(kGradient, scaled(random_tensor({32, 24}, 3), 1e-3f));
  }
  CHECK(to_string(only_finding(compare_steps(reference, candidate)).key) == key);
}

TEST_CASE("squares of gradients may err twice as much as gradients") {
  const std::string first = "it0/step/layers.0.fc.weight/exp_avg";
  const std::string second = "it0/step/layers.0.fc.weight/exp_avg_sq";
  StepTrace reference = step();
  for (const std::string& key : {first, second}) reference.add(key, random_tensor({24, 16}, 12));
  for (const auto& [key, epsilons, same] :
       {std::tuple{first, 12, true}, {first, 20, false}, {second, 20, true}, {second, 40, false}}) {
    StepTrace candidate = reference;
    candidate.set(key, with_error(reference.get(key), epsilons * kEpsilon));
    INFO(key << " " << epsilons);
    CHECK(compare_steps(reference, candidate).same() == same);
  }
}

TEST_CASE("updates whose gradient is rounding are left out and counted, others are not") {
  StepTrace reference = step();
  Tensor gradient = reference.get(kReduced);
  gradient.values[7] = 1e-9f;
  reference.set(kReduced, gradient);
  StepTrace flipped = reference;
  Tensor updated = reference.get(kUpdated);
  updated.values[7] = 2 * reference.get(kWeight).values[7] - updated.values[7];  // the other way
  flipped.set(kUpdated, updated);

  const Report report = compare_steps(reference, flipped);
  CHECK(report.same());
  CHECK(report.excluded >= 1);

  updated = reference.get(kUpdated);
  updated.values[8] += 0.02f;
  flipped.set(kUpdated, updated);
  const Finding finding = only_finding(compare_steps(reference, flipped));
  CHECK(to_string(finding.key) == kUpdated);
}

TEST_CASE("an element that is left out may not go anywhere") {
  StepTrace reference = step();
  Tensor gradient = reference.get(kReduced);
  gradient.values[7] = 1e-9f;
  reference.set(kReduced, gradient);
  StepTrace astray = reference;
  Tensor updated = reference.get(kUpdated);
  updated.values[7] = 123;  // all updates are 0.01
  astray.set(kUpdated, updated);
  const Finding finding = only_finding(compare_steps(reference, astray));
  CHECK(to_string(finding.key) == kUpdated);
  CHECK(finding.kind == FindingKind::over_limit);
}

TEST_CASE("where neither run has a gradient the update is the same computation") {
  StepTrace reference = step();
  Tensor gradient = reference.get(kReduced);
  for (std::size_t i = 0; i < 16; ++i) gradient.values[i] = 0;  // a row that no token looked up
  reference.set(kReduced, gradient);
  StepTrace candidate = reference;
  CHECK(compare_steps(reference, candidate).same());
  Tensor updated = reference.get(kUpdated);
  updated.values[3] += 0.005f;  // within the size of an update
  candidate.set(kUpdated, updated);
  const Finding finding = only_finding(compare_steps(reference, candidate));
  CHECK(to_string(finding.key) == kUpdated);
  CHECK(finding.kind == FindingKind::not_equal);
  CHECK(finding.message.find("1 element") == 0);
}

TEST_CASE("an update that was not made is found") {
  StepTrace candidate = step();
  candidate.set(kUpdated, candidate.get(kWeight));
  CHECK(to_string(only_finding(compare_steps(step(), candidate)).key) == kUpdated);
}

TEST_CASE("the norm of gradients may err as all gradients together may") {
  StepTrace reference = step(), candidate = step();
  const std::string key = "it0/grad/@root/norm";
  reference.add(key, testing::constant_tensor({}, 100));
  candidate.add(key, testing::constant_tensor({}, 100 * (1 + 1.5e-6f)));
  CHECK(compare_steps(reference, candidate).same());
  candidate.set(key, testing::constant_tensor({}, 100 * (1 + 1e-4f)));
  CHECK(to_string(only_finding(compare_steps(reference, candidate)).key) == key);
}

TEST_CASE("the loss may err by 16 epsilon") {
  StepTrace candidate = step();
  const std::string key = "it0/mb0/forward/@root/output.0";
  candidate.set(key, testing::constant_tensor({}, 2.5f * (1 + 14 * static_cast<float>(kEpsilon))));
  CHECK(compare_steps(step(), candidate).same());
  candidate.set(key, testing::constant_tensor({}, 2.5f * (1 + 40 * static_cast<float>(kEpsilon))));
  CHECK(to_string(only_finding(compare_steps(step(), candidate)).key) == key);
}

TEST_CASE("one relative limit for all tensors replaces every other") {
  StepTrace candidate = step();
  candidate.set(kOutput, with_error(candidate.get(kOutput), 1e-3));
  candidate.set(kWeight, with_error(candidate.get(kWeight), 1e-3));
  CHECK(compare_steps(step(), candidate, 2e-3).same());
  CHECK(compare_steps(step(), candidate, 5e-4).findings.size() == 2);
}

TEST_CASE("an exact factor is named") {
  StepTrace candidate = step();
  candidate.set(kOutput, scaled(candidate.get(kOutput), 0.25f));
  CHECK(only_finding(compare_steps(step(), candidate)).message.find("exactly 1/4") !=
        std::string::npos);
  candidate.set(kOutput, scaled(candidate.get(kOutput), 0));
  CHECK(only_finding(compare_steps(step(), candidate)).message.find("all zero") !=
        std::string::npos);
}

TEST_CASE("hashes alone prove equality or nothing; statistics compare norms") {
  StepTrace same = step(), wrong = step();
  same.keep(kOutput, RecordKind::hash);
  CHECK(compare_steps(step(), same).same());
  wrong.set(kOutput, with_error(wrong.get(kOutput), 1e-7)).keep(kOutput, RecordKind::hash);
  CHECK(only_finding(compare_steps(step(), wrong)).kind == FindingKind::not_compared);

  StepTrace close = step(), far = step();
  close.set(kOutput, with_error(close.get(kOutput), 1e-7)).keep(kOutput, RecordKind::stats);
  far.set(kOutput, scaled(far.get(kOutput), 1.01f)).keep(kOutput, RecordKind::stats);
  CHECK(compare_steps(step(), close).same());
  CHECK(only_finding(compare_steps(step(), far)).kind == FindingKind::over_limit);
}

TEST_CASE("a reference of zeros allows no error, and zeros agree with zeros") {
  StepTrace reference = step(), candidate = step();
  const std::string key = "it0/mb0/forward/layers.0.gate/output.0";
  reference.add(key, testing::constant_tensor({9}, 0));
  candidate.add(key, testing::constant_tensor({9}, 0));
  CHECK(compare_steps(reference, candidate).same());
  candidate.set(key, testing::constant_tensor({9}, 1e-30f));
  const Report report = compare_steps(reference, candidate);
  CHECK(only_finding(report).score == kHugeScore);
}

TEST_CASE("factors are exact only near small ratios") {
  CHECK(factor_text(2.0, 1e-6) == "exactly 2");
  CHECK(factor_text(0.25, 1e-6) == "exactly 1/4");
  CHECK(factor_text(-1.0, 1e-6) == "exactly -1");
  CHECK(factor_text(1.5, 1e-6) == "exactly 3/2");
  CHECK(factor_text(1.9999998, 1e-6) == "2, up to round-off");
  CHECK(factor_text(1.03125, 1e-6) == "1.03125");
}

}  // namespace ttrace
