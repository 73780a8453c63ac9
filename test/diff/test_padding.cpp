// SPDX-License-Identifier: Apache-2.0
// A vocabulary that is filled up to a multiple of the ranks: what the reference has is compared.
#include <algorithm>

#include "diff/compare.hpp"
#include "test/catch.hpp"
#include "test/diff/step_trace.hpp"

namespace ttrace {
namespace {

using testing::Field;
using testing::key_of;
using testing::random_tensor;
using testing::Tensor;

Field field(const std::string& key) {
  return {key_of(key), DType::float32, RecordKind::full, "", 0};
}

// 45 rows on four ranks of 12; `wrong` changes an element of the last row that counts.
Report compare_padded(float wrong) {
  testing::TraceBuilder left("reference.trace"), right("candidate.trace");
  left.mesh({});
  right.mesh({{"tp", 4}});
  unsigned seed = 0;
  for (const char* key : {"it0/param/words.weight/value", "it0/grad/words.weight/reduced"}) {
    const Tensor whole = random_tensor({45, 8}, ++seed);
    left.add(0, field(key), whole);
    Tensor filled{{48, 8}, whole.values};
    filled.values.resize(48 * 8, 0.0f);
    if (seed == 2) filled.values[44 * 8 + 3] += wrong;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      right.add(rank, field(key), testing::part(filled, 0, static_cast<std::uint64_t>(rank), 4));
    }
  }
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt);
  };
  const Trace left_trace = left.write(), right_trace = right.write();
  return compare(left_trace, right_trace, *make_cpu_backend(), options);
}

bool has_note(const Report& report) {
  return std::any_of(report.tensors.begin(), report.tensors.end(), [](const TensorLine& line) {
    return line.note.find("filled up from [45, 8] to [48, 8]") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("rows that were added are not compared, all others are") {
  const Report right = compare_padded(0);
  CHECK(right.findings.empty());
  CHECK(has_note(right));
  const Finding finding = testing::only_finding(compare_padded(1));
  CHECK(to_string(finding.key) == "it0/grad/words.weight/reduced");
  CHECK(finding.kind == FindingKind::over_limit);
}

TEST_CASE("an error behind padded logits may be the padding's") {
  testing::TraceBuilder left("reference.trace"), right("candidate.trace");
  left.mesh({});
  right.mesh({{"tp", 2}});
  const auto add = [&](const std::string& key, const Tensor& whole, std::size_t dim) {
    left.add(0, field(key), whole);
    Tensor filled = testing::random_tensor(
        {dim == 0 ? 48 : whole.shape[0], dim == 1 ? 48 : whole.shape[1]}, 77);
    for (std::uint64_t row = 0; row < whole.shape[0]; ++row) {
      for (std::uint64_t column = 0; column < whole.shape[1]; ++column) {
        filled.values[row * filled.shape[1] + column] = whole.values[row * whole.shape[1] + column];
      }
    }
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      right.add(rank, field(key), testing::part(filled, dim, static_cast<std::uint64_t>(rank), 2));
    }
  };
  add("it0/param/words.weight/value", random_tensor({45, 8}, 1), 0);
  add("it0/mb0/forward/words/output.0", random_tensor({6, 45}, 2), 1);
  const std::string loss = "it0/mb0/forward/@root/output.0";
  left.add(0, field(loss), random_tensor({6}, 3));
  for (std::int32_t rank = 0; rank < 2; ++rank) right.add(rank, field(loss), random_tensor({6}, 4));
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt);
  };
  const Trace left_trace = left.write(), right_trace = right.write();
  const Report report = compare(left_trace, right_trace, *make_cpu_backend(), options);
  REQUIRE(!report.findings.empty());
  CHECK(to_string(report.findings[0].finding.key) == loss);
  REQUIRE(!report.findings[0].causes.empty());
  CHECK(report.findings[0].causes[0].what.find("padding") != std::string::npos);
  CHECK(report.findings[0].causes[0].guess);
}

}  // namespace ttrace
