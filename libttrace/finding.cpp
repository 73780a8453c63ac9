// SPDX-License-Identifier: Apache-2.0
// The kinds' names, as reports print them; each is the enumerator's own name.
#include "libttrace/finding.hpp"

namespace ttrace {

std::string_view name_of(FindingKind kind) {
  switch (kind) {
    case FindingKind::missing:
      return "missing";
    case FindingKind::unexpected:
      return "unexpected";
    case FindingKind::different_data:
      return "different_data";
    case FindingKind::shape_differs:
      return "shape_differs";
    case FindingKind::dtype_differs:
      return "dtype_differs";
    case FindingKind::layout_unknown:
      return "layout_unknown";
    case FindingKind::layout_contradicted:
      return "layout_contradicted";
    case FindingKind::hole:
      return "hole";
    case FindingKind::overlap:
      return "overlap";
    case FindingKind::replica_conflict:
      return "replica_conflict";
    case FindingKind::partial_incomplete:
      return "partial_incomplete";
    case FindingKind::nonfinite:
      return "nonfinite";
    case FindingKind::over_limit:
      return "over_limit";
    case FindingKind::not_equal:
      return "not_equal";
    case FindingKind::gradient_seed:
      return "gradient_seed";
    case FindingKind::not_compared:
      return "not_compared";
    case FindingKind::incomplete_trace:
      return "incomplete_trace";
  }
  return "unknown";
}

}  // namespace ttrace
