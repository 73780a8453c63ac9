// SPDX-License-Identifier: Apache-2.0
// See bound.hpp. Every constant is explained in docs/tolerance.md.
#include "tolerance/bound.hpp"

#include <algorithm>
#include <cmath>

#include "tolerance/theorem.hpp"

namespace ttrace {
namespace {

constexpr double kFloat32Epsilon = 0x1p-23;
constexpr double kBFloat16Epsilon = 0x1p-7;

struct Constants {
  double activation;
  double gradient;
};

// Coarse arithmetic has relatively smaller errors, because its sums are kept in fp32.
Constants constants_for(double epsilon) {
  if (epsilon >= kBFloat16Epsilon) return {2, 10};
  return {4, 13};
}

constexpr double kFloorFactor = 3;  // times one rounding, as for any single estimate of noise
constexpr double kUpdateMask = 8;
constexpr double kLossEpsilons = 16;  // of a type at least as fine as float32

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Optimizer states that are made of squares of gradients have twice their relative error.
bool is_square(const std::string& slot) {
  return has(slot, "sq") || has(slot, "square") || slot == "sum";
}

class BoundLimits {
 public:
  BoundLimits(const Alignment& alignment, const Flow& flow, Growth growth)
      : flow_(flow), growth_(growth), run_epsilon_(run_epsilon(alignment)) {}

  [[nodiscard]] double epsilon() const { return run_epsilon_; }

  [[nodiscard]] TensorLimit of(const Pair& pair) const {
    TensorLimit limit;
    if (!is_floating(pair.reference->dtype)) return {Rule::equal, 0, 0, 0};
    limit.own_epsilon =
        std::max(working_epsilon(pair.reference->dtype), working_epsilon(pair.candidate->dtype));
    limit.epsilon = std::max(limit.own_epsilon, run_epsilon_);
    switch (pair.key.phase) {
      case Phase::param:
        return start_weight(pair, limit);
      case Phase::forward:
      case Phase::recompute:
      case Phase::comm:
        return activation(pair.key, limit);
      case Phase::backward:
        limit.relative = gradient(pair.key, limit.epsilon);
        return limit;
      case Phase::grad:
        return parameter_gradient(pair.key, limit);
      case Phase::step:
        return after_step(pair.key, limit);
    }
    return limit;
  }

 private:
  [[nodiscard]] double gradient(const Key& key, double epsilon) const {
    const auto bound = growth_ == Growth::theorem ? theorem_gradient_bound : gradient_bound;
    return bound(epsilon, flow_.depth(key), flow_.blocks());
  }

  // Both sides start from the same model: not a bit may differ. Of two precisions one is the other
  // rounded once, by at most half a unit.
  static TensorLimit start_weight(const Pair& pair, TensorLimit limit) {
    if (pair.reference->dtype == pair.candidate->dtype) {
      limit.rule = Rule::equal;
    } else {
      limit.relative = limit.own_epsilon / 2;
    }
    return limit;
  }

  // One number that is a mean of many has no norm in which errors average out.
  static double scalar_bound(const TensorLimit& limit) {
    return kLossEpsilons * std::min(limit.own_epsilon, kFloat32Epsilon);
  }

  [[nodiscard]] TensorLimit activation(const Key& key, TensorLimit limit) const {
    const auto bound = growth_ == Growth::theorem ? theorem_activation_bound : activation_bound;
    limit.relative = bound(limit.epsilon, flow_.depth(key));
    const bool loss = key.module == kRootModule && !is_input(key);
    if (loss) limit.relative = std::max(limit.relative, scalar_bound(limit));
    return limit;
  }

  [[nodiscard]] TensorLimit parameter_gradient(const Key& key, TensorLimit limit) const {
    if (key.module == kRootModule) {  // a norm of all gradients: their limits add to this
      limit.relative = scalar_bound(limit);
      return limit;
    }
    limit.relative = gradient(key, limit.epsilon);
    return limit;
  }

  [[nodiscard]] TensorLimit after_step(const Key& key, TensorLimit limit) const {
    if (key.module == kRootModule) return parameter_gradient(key, limit);
    limit.relative = gradient(key, limit.epsilon);
    if (key.slot == "param" || key.slot == "master") {
      limit.rule = Rule::update;
    } else if (is_square(key.slot)) {
      limit.relative *= 2;
    }
    return limit;
  }

  const Flow& flow_;
  Growth growth_;
  double run_epsilon_;
};

}  // namespace

double working_epsilon(DType type) {
  const bool byte = type == DType::float8_e4m3fn || type == DType::float8_e5m2;
  return byte ? kBFloat16Epsilon : epsilon(type);
}

double run_epsilon(const Alignment& alignment) {
  double coarsest = 0;
  for (const Pair& pair : alignment.pairs) {
    if (pair.key.phase != Phase::forward || is_input(pair.key)) continue;
    for (const LogicalTensor* side : {pair.reference, pair.candidate}) {
      if (is_floating(side->dtype)) coarsest = std::max(coarsest, working_epsilon(side->dtype));
    }
  }
  return coarsest;
}

double activation_bound(double epsilon, std::uint64_t depth) {
  return constants_for(epsilon).activation * epsilon * std::sqrt(static_cast<double>(depth));
}

double gradient_bound(double epsilon, std::uint64_t depth, std::uint64_t blocks) {
  const std::uint64_t passed = blocks + 1 > depth ? blocks + 1 - depth : 1;
  return constants_for(epsilon).gradient * epsilon * std::sqrt(static_cast<double>(passed));
}

Limits bound_limits(const Alignment& alignment, const Flow& flow, std::optional<double> relative,
                    Growth growth) {
  const BoundLimits bound(alignment, flow, growth);
  Limits limits;
  if (growth == Growth::theorem) limits.mode = "theorem";
  limits.parameter_floor = kFloorFactor * kTermRounding;
  limits.sibling_floor = kFloorFactor * kTermRounding;
  limits.update_mask = kUpdateMask;
  limits.seed_tolerance = bound.epsilon() > 1e-5 ? bound.epsilon() : 1e-5;
  for (const Pair& pair : alignment.pairs) {
    limits.tensors.push_back(bound.of(pair));
    TensorLimit& limit = limits.tensors.back();
    if (relative && is_floating(pair.reference->dtype)) {
      limit.rule = Rule::relative;
      limit.relative = *relative;
    }
  }
  if (relative) {
    limits.seed_tolerance = std::max(limits.seed_tolerance, *relative);
    limits.mode = "relative";
    limits.weak = false;
    limits.floors = false;
  }
  return limits;
}

}  // namespace ttrace
