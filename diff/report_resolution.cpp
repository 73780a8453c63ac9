// SPDX-License-Identifier: Apache-2.0
// How small an error would have been flagged, in one line: the medians over all tensors that were
// judged by more than equality.
#include <algorithm>
#include <vector>

#include "diff/judge.hpp"
#include "diff/report.hpp"

namespace ttrace {
namespace {

// 0 when there is none.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Resolutions {
  std::vector<double> norm, factor, shard, element;
};

Resolutions collect(const Report& report) {
  Resolutions all;
  for (const TensorLine& line : report.tensors) {
    if (!line.compared || !(line.limit > 0)) continue;
    if (!line.resolution) {
      all.norm.push_back(line.limit);
      continue;
    }
    all.norm.push_back(line.resolution->norm);
    if (line.resolution->factor) all.factor.push_back(*line.resolution->factor);
    if (line.resolution->shard) all.shard.push_back(*line.resolution->shard);
    all.element.push_back(line.resolution->element);
  }
  return all;
}

}  // namespace

std::string resolution_text(const Report& report) {
  const Resolutions all = collect(report);
  if (all.norm.empty()) return "resolution: every tensor had to be equal, bit for bit";
  std::string text = "resolution (medians): a relative error of " + short_number(median(all.norm));
  if (!all.factor.empty()) text += ", a factor of 1 +- " + short_number(median(all.factor));
  if (!all.shard.empty()) text += ", one rank's part off by " + short_number(median(all.shard));
  if (!all.element.empty()) {
    text += ", one element off by " + short_number(median(all.element)) + " times the RMS";
  }
  return text + " would have been flagged; -v and --json have each tensor's own";
}

}  // namespace ttrace
