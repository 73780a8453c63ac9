// SPDX-License-Identifier: Apache-2.0
// See statistics_limits.hpp.
#include "diff/statistics_limits.hpp"

#include <algorithm>
#include <cmath>

namespace ttrace {
namespace {

double base_limit(const StatisticLimits& limits, const LimitQuery& query) {
  const auto method = static_cast<std::size_t>(query.method);
  const bool local = query.method == Method::local;
  const bool softmax = local && query.tensor == TensorClass::softmax_backward;
  const bool small = query.elements < limits.small_block;
  const auto of_block = [&](double limit) {
    return small ? std::max(limit, limits.small_block_limit) : limit;
  };
  switch (query.kind) {
    case StatisticKind::norm:
      return limits.norm[method];
    case StatisticKind::shard:
      return of_block(limits.shard[method]);
    case StatisticKind::row:
      return of_block(softmax ? limits.softmax_row : limits.row[method]);
    case StatisticKind::column:
      return of_block(softmax ? limits.softmax_column : limits.column[method]);
    case StatisticKind::element:
      if (softmax) return limits.softmax_element;
      return local && query.vector ? limits.vector_element : limits.element[method];
    case StatisticKind::scale:
      return limits.scale[method];
    case StatisticKind::ensemble_scale:
      return limits.ensemble_scale[method];
    case StatisticKind::shard_scale:
      return std::max(limits.shard_scale[method],
                      limits.shard_scale_growth * std::sqrt(static_cast<double>(query.elements)));
    case StatisticKind::column_mean:
      return limits.column_mean[method];
    case StatisticKind::zero_row:
      return 0;
  }
  __builtin_unreachable();
}

}  // namespace

std::string_view name_of(StatisticKind kind) {
  switch (kind) {
    case StatisticKind::norm:
      return "norm";
    case StatisticKind::shard:
      return "shard";
    case StatisticKind::row:
      return "row";
    case StatisticKind::column:
      return "column";
    case StatisticKind::element:
      return "element";
    case StatisticKind::scale:
      return "scale";
    case StatisticKind::ensemble_scale:
      return "ensemble_scale";
    case StatisticKind::shard_scale:
      return "shard_scale";
    case StatisticKind::column_mean:
      return "column_mean";
    case StatisticKind::zero_row:
      return "zero_row";
  }
  __builtin_unreachable();
}

double StatisticLimits::of(const LimitQuery& query) const {
  const double fine = query.epsilon <= fine_epsilon ? fine_factor : 1;
  return base_limit(*this, query) * fine * widened[static_cast<std::size_t>(query.kind)];
}

StatisticLimits widen(const StatisticLimits& limits, const std::vector<HealthyScore>& healthy,
                      double margin) {
  StatisticLimits wider = limits;
  for (const HealthyScore& seen : healthy) {
    if (!std::isfinite(seen.score)) continue;  // no width makes such a score healthy
    const auto kind = static_cast<std::size_t>(seen.kind);
    const double factor = limits.widened[kind] * std::max(1.0, margin * seen.score);
    wider.widened[kind] = std::max(wider.widened[kind], factor);
  }
  return wider;
}

}  // namespace ttrace
