// SPDX-License-Identifier: Apache-2.0
// The paper's formula, by hand and with the numbers its users print.
#include "test/catch.hpp"
#include "test/diff/step_trace.hpp"
#include "tolerance/theorem.hpp"

namespace ttrace {
namespace {

using testing::random_tensor;
using testing::StepTrace;

// Blocks 0..2 and a head; `relative` is the error of the gradient of block 1's output.
Report compared(double relative, Growth growth) {
  StepTrace reference;
  for (const char* module : {"layers.0.fc", "layers.1.fc", "layers.2.fc", "head"}) {
    reference.add("it0/mb0/forward/" + std::string(module) + "/output.0", random_tensor({8, 8}, 1));
    reference.add("it0/mb0/backward/" + std::string(module) + "/grad_output.0",
                  random_tensor({8, 8}, 2));
  }
  StepTrace candidate = reference;
  const std::string wrong = "it0/mb0/backward/layers.1.fc/grad_output.0";
  // An eighth of the elements, scaled: their share of the norm is known from the values.
  testing::Tensor tensor = candidate.get(wrong);
  double norm = 0, part = 0;
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const double square = static_cast<double>(tensor.values[i]) * tensor.values[i];
    norm += square;
    if (i < 8) part += square;
  }
  const double scale = 1 + relative * std::sqrt(norm / part);
  for (std::size_t i = 0; i < 8; ++i) {
    tensor.values[i] = static_cast<float>(tensor.values[i] * scale);
  }
  candidate.set(wrong, tensor);
  return testing::compare_steps(reference, candidate, std::nullopt, "", growth);
}

}  // namespace

TEST_CASE("the bound of a layer is k C^(L+1-l) epsilon") {
  CHECK(theorem_gradient_bound(0x1p-23, 3, 3) == Approx(4 * 1.03 * 0x1p-23));
  CHECK(theorem_gradient_bound(0x1p-23, 1, 3) == Approx(4 * 1.03 * 1.03 * 1.03 * 0x1p-23));
  CHECK(theorem_gradient_bound(0x1p-23, 4, 3) == 4 * 0x1p-23);  // the head
  CHECK(theorem_activation_bound(0x1p-23, 2) == Approx(4 * 1.03 * 1.03 * 0x1p-23));
  // 32 layers in bfloat16, from before the first to behind the last.
  CHECK(theorem_gradient_bound(0x1p-7, 0, 32) == Approx(0.083).margin(0.0005));
  CHECK(theorem_gradient_bound(0x1p-7, 32, 32) == Approx(0.032).margin(0.0005));
}

TEST_CASE("a comparison under the theorem says so, and its limits are the theorem's") {
  const std::string key = "it0/mb0/backward/layers.1.fc/grad_output.0";
  const Report report = compared(1e-9, Growth::theorem);
  CHECK(report.mode == "theorem");
  CHECK(report.weak);
  CHECK(testing::line_of(report, key).limit == Approx(4 * 1.03 * 1.03 * 0x1p-23));
  CHECK(testing::line_of(report, "it0/mb0/forward/layers.1.fc/output.0").limit ==
        Approx(4 * 1.03 * 1.03 * 0x1p-23));
  CHECK(testing::line_of(compared(1e-9, Growth::root), key).limit ==
        Approx(13 * std::sqrt(2) * 0x1p-23));
}

TEST_CASE("the theorem finds what the square root lets pass") {
  const double error = 8 * 0x1p-23;
  CHECK(testing::only_finding(compared(error, Growth::theorem)).kind == FindingKind::over_limit);
  CHECK(compared(error, Growth::root).findings.empty());
  CHECK(compared(3 * 0x1p-23, Growth::theorem).findings.empty());
}

}  // namespace ttrace
