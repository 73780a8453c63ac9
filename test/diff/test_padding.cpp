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

}  // namespace ttrace
