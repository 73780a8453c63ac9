// SPDX-License-Identifier: Apache-2.0
// See own.hpp.
#include "tolerance/own.hpp"

#include <algorithm>
#include <cmath>

#include "tolerance/bound.hpp"

namespace ttrace {
namespace {

constexpr double kBFloat16Epsilon = 0x1p-7;
constexpr double kFloat32Epsilon = 0x1p-23;
constexpr double kMargin = 2;  // over the largest healthy error ever seen

// Largest errors of healthy layouts, in epsilons of the tensor's norm.
struct Largest {
  double activation, gradient, parameter;
};
constexpr Largest kCoarse{0.60, 1.1, 2.9};  // bfloat16
constexpr Largest kFine{1.9, 5.9, 3.0};     // float32

constexpr double kLossEpsilons = 8;   // of float32
constexpr double kNormError = 4e-6;   // of a norm of all gradients, summed up in float32
constexpr double kStateEpsilons = 8;  // optimizer states: a few roundings of each element
constexpr double kSeedTolerance = 1e-5;

class OwnLimits {
 public:
  explicit OwnLimits(const Alignment& alignment) : run_epsilon_(run_epsilon(alignment)) {}

  [[nodiscard]] const Largest& largest() const {
    return run_epsilon_ >= kBFloat16Epsilon ? kCoarse : kFine;
  }

  [[nodiscard]] TensorLimit of(const Pair& pair) const {
    if (!is_floating(pair.reference->dtype)) return {Rule::equal, 0, 0, 0};
    TensorLimit limit;
    limit.own_epsilon =
        std::max(working_epsilon(pair.reference->dtype), working_epsilon(pair.candidate->dtype));
    limit.epsilon = std::max(limit.own_epsilon, run_epsilon_);
    const Key& key = pair.key;
    const double module = kMargin * limit.epsilon;
    switch (key.phase) {
      case Phase::param:
        limit.rule = key.iteration == 0 ? Rule::equal : Rule::step;
        return limit;
      case Phase::forward:
      case Phase::recompute:
      case Phase::comm:
        limit.relative = module * largest().activation;
        if (element_count(pair.reference->shape) == 1) limit.relative = scalar(limit);
        return limit;
      case Phase::backward:
        limit.relative = module * largest().gradient;
        return limit;
      case Phase::grad:
        limit.relative = gradient(key, module);
        return limit;
      case Phase::step:
        step(key, limit);
        return limit;
    }
    return limit;
  }

 private:
  static double scalar(const TensorLimit& limit) {
    return kLossEpsilons * std::min(limit.own_epsilon, kFloat32Epsilon);
  }

  // Clipped gradients are the candidate's own reduced ones, times a factor made of their norm.
  [[nodiscard]] double gradient(const Key& key, double module) const {
    if (key.module == kRootModule || key.slot == "clipped") return kNormError;
    return module * largest().parameter;
  }

  static void step(const Key& key, TensorLimit& limit) {
    if (key.module == kRootModule) {
      limit.relative = kNormError;
    } else if (key.slot == "param" || key.slot == "master") {
      limit.rule = Rule::step;
    } else {
      limit.relative = kStateEpsilons * limit.own_epsilon;
    }
  }

  double run_epsilon_;
};

}  // namespace

Limits own_limits(const Alignment& alignment, const Flow& /*flow*/) {
  const OwnLimits own(alignment);
  Limits limits;
  limits.mode = "local";
  limits.weak = false;
  limits.local = true;
  limits.parameter_floor = kMargin * own.largest().parameter;
  limits.seed_tolerance = kSeedTolerance;
  for (const Pair& pair : alignment.pairs) limits.tensors.push_back(own.of(pair));
  return limits;
}

}  // namespace ttrace
