// SPDX-License-Identifier: Apache-2.0
// A made-up training step as a list of tensors, written as a trace of one rank and compared. Tests
// change single tensors of it, so they know what must be found.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diff/compare.hpp"
#include "test/libttrace/trace_builder.hpp"
#include "tolerance/bound.hpp"

namespace ttrace::testing {

class StepTrace {
 public:
  StepTrace& add(const std::string& key, Tensor tensor, DType type = DType::float32,
                 RecordKind kind = RecordKind::full) {
    fields_.push_back({{key_of(key), type, kind, "", 0}, std::move(tensor)});
    return *this;
  }
  // Replaces a tensor that is there.
  StepTrace& set(const std::string& key, Tensor tensor) {
    find(key).second = std::move(tensor);
    return *this;
  }
  StepTrace& keep(const std::string& key, RecordKind kind) {
    find(key).first.kind = kind;
    return *this;
  }
  StepTrace& remove(const std::string& key) {
    for (auto at = fields_.begin(); at != fields_.end(); ++at) {
      if (to_string(at->first.key) != key) continue;
      fields_.erase(at);
      return *this;
    }
    throw std::invalid_argument(key);
  }
  [[nodiscard]] const Tensor& get(const std::string& key) { return find(key).second; }
  [[nodiscard]] const std::vector<std::pair<Field, Tensor>>& fields() const { return fields_; }

 private:
  std::pair<Field, Tensor>& find(const std::string& key) {
    for (auto& field : fields_) {
      if (to_string(field.first.key) == key) return field;
    }
    throw std::invalid_argument(key);
  }

  std::vector<std::pair<Field, Tensor>> fields_;
};

inline Report compare_steps(const StepTrace& reference, const StepTrace& candidate,
                            std::optional<double> relative = std::nullopt,
                            const std::string& filter = "", Growth growth = Growth::root) {
  TraceBuilder left("reference.trace"), right("candidate.trace");
  for (const auto& [builder, step] : {std::pair{&left, &reference}, {&right, &candidate}}) {
    builder->mesh({});
    for (const auto& [field, tensor] : step->fields()) builder->add(0, field, tensor);
  }
  CompareOptions options;
  options.filter = filter;
  options.limits = [relative, growth](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, relative, growth);
  };
  const Trace left_trace = left.write();
  const Trace right_trace = right.write();
  return compare(left_trace, right_trace, *make_cpu_backend(), options);
}

// The one finding there is; fails the test, with all of them, when there are more or none.
inline Finding only_finding(const Report& report) {
  std::string all;
  for (const OrderedFinding& entry : report.findings) {
    all += to_string(entry.finding.key) + ": " + entry.finding.message + "\n";
  }
  if (report.findings.size() != 1) throw std::runtime_error("not one finding:\n" + all);
  return report.findings[0].finding;
}

inline const TensorLine& line_of(const Report& report, const std::string& key) {
  for (const TensorLine& line : report.tensors) {
    if (to_string(line.key) == key) return line;
  }
  throw std::invalid_argument(key);
}

}  // namespace ttrace::testing
