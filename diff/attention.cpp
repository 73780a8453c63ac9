// SPDX-License-Identifier: Apache-2.0
// See attention.hpp.
#include "diff/attention.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "diff/tiles.hpp"

namespace ttrace {
namespace {

// A module that is given this many floating tensors at once multiplies them with each other.
constexpr std::size_t kAttentionInputs = 3;
// Share of an epsilon that delta is off by: a rounding to a coarse type, or many in float32.
constexpr double kCoarse = 0.22;
constexpr double kFine = 1.0;
constexpr double kFloat32Epsilon = 0x1p-23;

Key forward_of(const Key& gradient) {
  Key forward = gradient;
  forward.phase = Phase::forward;
  forward.slot = output_slot(gradient.slot);
  return forward;
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

}  // namespace

const LogicalTensor* Attention::tensor(const Key& key) const {
  const auto found = reference_.tensors.find(key);
  return found == reference_.tensors.end() ? nullptr : &found->second;
}

Key Attention::source_of(const Key& forward) const {
  const auto found = reference_.groups.find(forward);
  if (found == reference_.groups.end()) return forward;
  return alias_target(forward, found->second).value_or(forward);
}

std::vector<Attention::Input> Attention::floating_inputs(const Key& call) const {
  std::vector<Input> inputs;
  Key first = call;
  first.slot = "input";
  for (auto at = reference_.groups.lower_bound(first); at != reference_.groups.end(); ++at) {
    const Key& key = at->first;
    if (key.module != call.module || key.call != call.call || key.microbatch != call.microbatch ||
        !is_input(key)) {
      break;
    }
    const Key source = source_of(key);
    const LogicalTensor* found = tensor(source);
    if (found != nullptr && is_floating(found->dtype)) inputs.push_back({source, key.slot});
  }
  return inputs;
}

// The call that multiplies this tensor with two others.
std::optional<Key> Attention::call_with(const Key& source) const {
  for (const Key& call : flow_.consumers_of(source)) {
    if (floating_inputs(call).size() >= kAttentionInputs) return call;
  }
  return std::nullopt;
}

bool Attention::leaves_softmax(const Key& gradient) const {
  if (gradient.phase != Phase::backward) return false;
  const Key forward = forward_of(gradient);
  const Key source = source_of(forward);
  if (call_with(source)) return true;
  return !is_input(forward) && !is_input(source) && flow_.consumers_of(source).empty();
}

// By position, or by the name of the keyword: input.key, input.query.
Attention::Role Attention::role_of(const std::string& slot, std::size_t position) {
  const std::string name = slot.substr(slot.find('.') + 1);
  if (name.rfind('k', 0) == 0) return Role::key;
  if (name.rfind('q', 0) == 0) return Role::query;
  if (name.rfind('v', 0) == 0) return Role::value;
  return position == 0 ? Role::query : (position == 1 ? Role::key : Role::value);
}

std::optional<Attention::Operands> Attention::operands_of(const Key& gradient) const {
  const Key source = source_of(forward_of(gradient));
  const std::optional<Key> call = call_with(source);
  if (!call) return std::nullopt;
  Operands found;
  const std::vector<Input> inputs = floating_inputs(*call);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (role_of(inputs[i].slot, i) == Role::value) continue;
    (inputs[i].source == source ? found.own : found.other) = tensor(inputs[i].source);
  }
  Key output = *call;
  output.slot = "output.0";
  found.output = tensor(source_of(output));
  output.phase = Phase::backward;
  output.slot = "grad_output.0";
  found.arriving = tensor(output);
  for (const LogicalTensor* needed : {found.own, found.other, found.output, found.arriving}) {
    if (needed == nullptr || !readable(*needed) || needed->shape.empty()) return std::nullopt;
  }
  return found;
}

std::optional<ExtraNoise> Attention::rounding_of_delta(const Key& gradient, double epsilon) const {
  if (gradient.phase != Phase::backward) return std::nullopt;
  const std::optional<Operands> with = operands_of(gradient);
  if (!with) return std::nullopt;
  const std::uint64_t width = with->own->shape.back();
  if (width == 0 || element_count(with->output->shape) % width != 0) return std::nullopt;
  std::vector<double> products = squares_of_rows(*with->output, width);
  const std::vector<double> arriving = squares_of_rows(*with->arriving, width);
  if (products.size() != arriving.size()) return std::nullopt;
  std::transform(products.begin(), products.end(), arriving.begin(), products.begin(),
                 std::multiplies<>());
  const double c = epsilon > kFloat32Epsilon ? kCoarse : kFine;
  const double d = static_cast<double>(width);
  const double factor =
      c * c * epsilon * epsilon * mean(squares_of_rows(*with->other)) / (d * d * d);
  ExtraNoise extra;
  extra.width = width;
  extra.squares.assign(element_count(with->own->shape) / width, factor * mean(products));
  if (products.size() == extra.squares.size()) {
    std::transform(products.begin(), products.end(), extra.squares.begin(),
                   [factor](double product) { return factor * product; });
  }
  return extra;
}

}  // namespace ttrace
