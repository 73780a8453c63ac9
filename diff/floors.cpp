// SPDX-License-Identifier: Apache-2.0
// See floors.hpp. Everything here is of the reference alone.
#include "diff/floors.hpp"

#include <algorithm>
#include <cmath>

#include "diff/tiles.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kUnitSamples = 16;  // parameters from which the unit is read

double norm_of(const PairMetrics& metrics) {
  return std::sqrt(metrics.total.sums.reference_squares);
}

double rms_of(const PairMetrics& metrics) {
  const double count = static_cast<double>(std::max<std::uint64_t>(1, metrics.total.count));
  return std::sqrt(metrics.total.sums.reference_squares / count);
}

}  // namespace

Floors::Floors(const Side& reference, const Alignment& alignment, const Limits& limits,
               const std::vector<PairMetrics>& measured)
    : reference_(reference), alignment_(alignment), limits_(limits), measured_(measured) {
  for (std::size_t i = 0; i < alignment.pairs.size(); ++i) {
    const Key& key = alignment.pairs[i].key;
    // The gradient of the loss itself has another unit than those inside the model.
    if (key.phase != Phase::backward || key.module == kRootModule) continue;
    for (const std::string& module : {key.module, parent_of(key.module)}) {
      double& largest = siblings_[{module, key.microbatch}];
      largest = std::max(largest, rms_of(measured[i]));
    }
  }
}

double Floors::of(std::size_t pair) {
  if (!limits_.floors) return 0;
  const Key& key = alignment_.pairs[pair].key;
  if (key.phase == Phase::grad && key.module != kRootModule) return of_parameter(pair);
  return key.phase == Phase::backward ? of_activation(pair) : 0;
}

double Floors::of_activation(std::size_t pair) {
  const Key& key = alignment_.pairs[pair].key;
  const double elements = static_cast<double>(measured_[pair].total.count);
  return limits_.sibling_floor * limits_.tensors[pair].epsilon * largest_sibling(key) *
         std::sqrt(elements);
}

double Floors::largest_sibling(const Key& gradient) const {
  const auto largest = siblings_.find({parent_of(gradient.module), gradient.microbatch});
  return largest == siblings_.end() ? 0 : largest->second;
}

double Floors::of_parameter(std::size_t pair) { return limits_.parameter_floor * rounding(pair); }

double Floors::rounding(std::size_t pair) {
  // Fed with the candidate's own dy, a module does not inherit how that was made.
  const Size size = limits_.local ? Size::own : Size::made_of;
  const std::optional<double> terms = terms_of(alignment_.pairs[pair].key, size);
  return terms ? limits_.tensors[pair].epsilon * *terms * unit() : 0;
}

std::optional<double> Floors::terms_of(const Key& gradient, Size size) {
  Key call;
  call.iteration = gradient.iteration;
  call.phase = Phase::backward;
  call.module = module_of(gradient);
  const auto own = reference_.tensors.find(gradient);
  const bool weight = own != reference_.tensors.end() && own->second.shape.size() > 1;
  const bool local = gradient.slot == "local";
  double squares = 0;
  bool any = false;
  for (auto found = reference_.tensors.lower_bound(call);
       found != reference_.tensors.end() && found->first.phase == Phase::backward; ++found) {
    const Key& key = found->first;
    if (key.module != call.module || key.slot != "grad_output.0") continue;
    if (local && key.microbatch != gradient.microbatch) continue;
    const double terms = terms_of_call(key, weight, size);
    squares += terms;
    any = any || terms > 0;
  }
  if (!any) return std::nullopt;
  return std::sqrt(squares);
}

// Sum over tokens of |dy|^2 |x|^2; |x| is 1 for biases, norms and embeddings. A dy that cancelled
// itself, as that of attention's keys, has the rounding of what its siblings are the size of.
double Floors::terms_of_call(const Key& call, bool weight, Size size) {
  const LogicalTensor& gradient = reference_.tensors.at(call);
  if (!readable(gradient)) return 0;
  const std::vector<double> dy = squares_of_rows(gradient);
  const LogicalTensor* input = weight ? input_of(call) : nullptr;
  const std::vector<double> x = input != nullptr ? squares_of_rows(*input) : std::vector<double>{};
  double mean = 1;  // of |x|^2, where rows do not correspond
  if (!x.empty()) {
    mean = 0;
    for (const double square : x) mean += square / static_cast<double>(x.size());
  }
  const double width = dy.empty() ? 0
                                  : static_cast<double>(element_count(gradient.shape)) /
                                        static_cast<double>(dy.size());
  const double sibling = size == Size::made_of ? largest_sibling(call) : 0;
  double sum = 0;
  for (std::size_t row = 0; row < dy.size(); ++row) {
    sum += (dy[row] + width * sibling * sibling) * (x.size() == dy.size() ? x[row] : mean);
  }
  return sum;
}

// The first floating input of that call; nullptr for a module that looks up integers.
const LogicalTensor* Floors::input_of(const Key& call) const {
  Key key = call;
  key.phase = Phase::forward;
  key.slot = "input";
  for (auto found = reference_.tensors.lower_bound(key); found != reference_.tensors.end();
       ++found) {
    const Key& at = found->first;
    if (at.module != key.module || at.call != key.call || !is_input(at)) break;
    if (is_floating(found->second.dtype) && readable(found->second)) return &found->second;
  }
  return nullptr;
}

// A program may divide its gradients after the backward pass, say by the number of tokens. The
// gradients of weights do not cancel, so their norms against the size of their terms tell by how
// much. Above 1 they only tell that terms add up.
double Floors::unit() {
  std::call_once(unit_known_, [this] { unit_ = find_unit(); });
  return unit_;
}

double Floors::find_unit() {
  std::vector<std::size_t> weights;
  for (std::size_t i = 0; i < alignment_.pairs.size(); ++i) {
    const Pair& pair = alignment_.pairs[i];
    if (pair.key.phase == Phase::grad && pair.key.slot == "reduced" &&
        pair.reference->shape.size() > 1) {
      weights.push_back(i);
    }
  }
  std::vector<double> ratios;
  const std::size_t step = std::max<std::size_t>(1, weights.size() / kUnitSamples);
  for (std::size_t i = 0; i < weights.size(); i += step) {
    const auto terms = terms_of(alignment_.pairs[weights[i]].key, Size::own);
    if (terms && *terms > 0) ratios.push_back(norm_of(measured_[weights[i]]) / *terms);
  }
  if (ratios.empty()) return 1;
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return std::min(1.0, *middle);
}

}  // namespace ttrace
