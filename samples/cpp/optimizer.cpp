// SPDX-License-Identifier: Apache-2.0
// See optimizer.hpp.
#include "samples/cpp/optimizer.hpp"

#include <algorithm>
#include <utility>

#include "samples/cpp/trace.hpp"

namespace {

constexpr float kLearningRate = 0.1f;
constexpr float kMomentum = 0.9f;

}  // namespace

Optimizer::Optimizer(std::vector<Parameter*> parameters, const Mesh& mesh, int samples,
                     bool sharded, Bug bug)
    : parameters_(std::move(parameters)),
      dp_(mesh.dp),
      tp_(mesh.tp),
      samples_(bug == Bug::grad_factor ? samples / mesh.dp.size() : samples),
      sharded_(sharded),
      bug_(bug) {
  for (Parameter* parameter : parameters_) {
    std::size_t part = parameter->values.size();
    if (sharded_) part /= static_cast<std::size_t>(dp_.size());
    if (sharded_) parameter->first = part * static_cast<std::size_t>(dp_.member());
    parameter->momentum.assign(part, 0);
  }
}

void Optimizer::reduce_gradients() {
  for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
    const bool forgotten = bug_ == Bug::missing_all_reduce && *parameter == parameters_.front();
    reduce(**parameter, !forgotten);
  }
}

void Optimizer::reduce(Parameter& parameter, bool over_dp) const {
  const TraceScope scope(parameter.name);
  if (parameter.sequence_parallel) tp_.sum(parameter.gradient);
  if (parameter.reduced_twice) dp_.sum(parameter.gradient);
  if (sharded_ && over_dp) {
    parameter.reduced = dp_.sum_and_scatter(parameter.gradient);
  } else {
    if (over_dp) dp_.sum(parameter.gradient);
    const auto begin = parameter.gradient.begin() + static_cast<std::ptrdiff_t>(parameter.first);
    parameter.reduced.assign(begin, begin + static_cast<std::ptrdiff_t>(parameter.momentum.size()));
  }
  for (float& value : parameter.reduced) value /= static_cast<float>(samples_);
}

float Optimizer::squared_norm() const {
  float sum = 0;
  for (const Parameter* parameter : parameters_) {
    // What all ranks have counts once.
    if (!sharded_ && dp_.member() != 0) continue;
    if (parameter->shape == parameter->global && tp_.member() != 0) continue;
    for (const float value : parameter->reduced) sum += value * value;
  }
  return sum;
}

void Optimizer::step() {
  for (Parameter* parameter : parameters_) {
    float* const part = parameter->values.data() + parameter->first;
    for (std::size_t i = 0; i < parameter->momentum.size(); ++i) {
      float& momentum = parameter->momentum[i];
      momentum = kMomentum * momentum + parameter->reduced[i];
      part[i] -= kLearningRate * momentum;
    }
    std::fill(parameter->gradient.begin(), parameter->gradient.end(), 0.0f);
    if (!sharded_) continue;
    const TraceScope scope(parameter->name);
    parameter->values = dp_.gather({part, parameter->momentum.size()});
  }
}
