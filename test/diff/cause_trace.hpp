// SPDX-License-Identifier: Apache-2.0
// Pairs of made-up runs whose difference is known, and what is said of its cause.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "diff/cause.hpp"
#include "test/diff/step_trace.hpp"

namespace ttrace::testing {

inline const std::string kOutput = "it0/mb0/forward/layers.0.fc/output.0";
inline const std::string kReduced = "it0/grad/layers.0.fc.weight/reduced";

inline std::vector<Cause> causes_of(const Report& report, const std::string& key) {
  std::vector<Cause> causes;
  for (const OrderedFinding& entry : report.findings) {
    if (to_string(entry.finding.key) != key) continue;
    causes.insert(causes.end(), entry.causes.begin(), entry.causes.end());
  }
  return causes;
}

// All of them in one text, for messages and for searching.
inline std::string text_of(const std::vector<Cause>& causes) {
  std::string text;
  for (const Cause& cause : causes) {
    text += std::string(cause.guess ? "perhaps " : "") + cause.what + " (" + cause.evidence + ")\n";
  }
  return text;
}

inline bool says(const std::vector<Cause>& causes, const std::string& what) {
  return text_of(causes).find(what) != std::string::npos;
}

// What is said of one output that is `mine` where it should be `theirs`.
inline std::vector<Cause> causes_between(const Tensor& theirs, const Tensor& mine,
                                         const std::string& key = kOutput) {
  StepTrace reference, candidate;
  reference.add(key, theirs);
  candidate.add(key, mine);
  return causes_of(compare_steps(reference, candidate), key);
}

// ---- several ranks ----

using Mesh = std::vector<std::pair<std::string, std::uint64_t>>;

struct Ranks {
  Mesh mesh;
  std::function<void(TraceBuilder&)> fill;
};

inline Report compare_runs(const StepTrace& reference, const Ranks& run) {
  TraceBuilder left("reference.trace"), right("candidate.trace");
  left.mesh({});
  for (const auto& [field, tensor] : reference.fields()) left.add(0, field, tensor);
  right.mesh(run.mesh);
  run.fill(right);
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt);
  };
  const Trace left_trace = left.write();
  const Trace right_trace = right.write();
  return compare(left_trace, right_trace, *make_cpu_backend(), options);
}

inline void add_to(TraceBuilder& builder, std::int32_t rank, const std::string& key,
                   const Tensor& tensor, const std::string& layout = "") {
  builder.add(rank, {key_of(key), DType::float32, RecordKind::full, layout, 0}, tensor);
}

// One output cut by columns over tp = 2 and replicated over dp = 2: `change` may change a part.
inline Report columns_over_tp(const Tensor& whole,
                              const std::function<void(std::int32_t, Tensor&)>& change) {
  StepTrace reference;
  reference.add(kOutput, whole);
  const std::string layout = R"({"dims":"- [tp]","shape":[)" + std::to_string(whole.shape[0]) +
                             "," + std::to_string(whole.shape[1]) + "]}";
  return compare_runs(reference, {{{"dp", 2}, {"tp", 2}}, [&](TraceBuilder& builder) {
                                    for (std::int32_t rank = 0; rank < 4; ++rank) {
                                      Tensor mine = part(whole, 1, rank % 2, 2);
                                      change(rank, mine);
                                      add_to(builder, rank, kOutput, mine, layout);
                                    }
                                  }});
}

inline Tensor with_noise_where(Tensor tensor,
                               const std::function<bool(std::uint64_t, std::uint64_t)>& where) {
  const Tensor noise = random_tensor(tensor.shape, 99);
  const std::uint64_t width = tensor.shape.back();
  for (std::uint64_t i = 0; i < tensor.values.size(); ++i) {
    if (where(i / width, i % width)) tensor.values[i] += noise.values[i];
  }
  return tensor;
}

}  // namespace ttrace::testing
