// SPDX-License-Identifier: Apache-2.0
// See formula.hpp.
#include "invariant/builtin/formula.hpp"

#include <cmath>

namespace ttrace::builtin {
namespace {

class Settings {
 public:
  explicit Settings(const UpdateGroup& group) : group_(group) {}
  double value(const char* name) {
    const auto found = group_.values.find(name);
    if (found != group_.values.end()) return found->second;
    missing_ = name;
    return 0;
  }
  double value_or(const char* name, double otherwise) const {
    const auto found = group_.values.find(name);
    return found == group_.values.end() ? otherwise : found->second;
  }
  bool is_on(const char* name) const { return value_or(name, 0) != 0; }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  const UpdateGroup& group_;
  std::string missing_;
};

}  // namespace

double Formula::seen(double gradient, double before) const {
  const double signed_gradient = maximize ? -gradient : gradient;
  return decoupled ? signed_gradient : signed_gradient + decay * before;
}

double Formula::first_moment(double moment, double seen) const {
  return beta1 * moment + (1 - beta1) * seen;
}

double Formula::second_moment(double moment, double seen) const {
  return beta2 * moment + (1 - beta2) * seen * seen;
}

double Formula::buffer(double buffer, double seen, bool fresh) const {
  return fresh ? seen : momentum * buffer + (1 - dampening) * seen;
}

double Formula::adam_change(double moment, double second) const {
  const double denominator = std::sqrt(second / second_correction) + epsilon;
  return rate / first_correction * moment / denominator;
}

double Formula::sgd_change(double seen, double buffer) const {
  if (momentum == 0) return rate * seen;
  return rate * (nesterov ? seen + momentum * buffer : buffer);
}

std::optional<Formula> formula_of(const UpdateGroup& group, std::int64_t steps, std::string& why) {
  const std::string& name = group.optimizer;
  const bool adam = name == "torch.optim.adam.Adam" || name == "torch.optim.adamw.AdamW";
  if (!adam && name != "torch.optim.sgd.SGD") {
    why = "the update rule of " + name + " is not known here";
    return std::nullopt;
  }
  Settings settings(group);
  Formula formula;
  formula.rule = adam ? Rule::adam : Rule::sgd;
  formula.rate = settings.value("lr");
  formula.decay = settings.value("weight_decay");
  formula.maximize = settings.is_on("maximize");
  if (adam) {
    formula.decoupled =
        name == "torch.optim.adamw.AdamW" || settings.is_on("decoupled_weight_decay");
    formula.beta1 = settings.value("betas.0");
    formula.beta2 = settings.value("betas.1");
    formula.epsilon = settings.value("eps");
    formula.amsgrad = settings.is_on("amsgrad");
    formula.first_correction = 1 - std::pow(formula.beta1, static_cast<double>(steps + 1));
    formula.second_correction = 1 - std::pow(formula.beta2, static_cast<double>(steps + 1));
  } else {
    formula.momentum = settings.value_or("momentum", 0);
    formula.dampening = settings.value_or("dampening", 0);
    formula.nesterov = settings.is_on("nesterov");
  }
  if (!settings.missing().empty()) {
    why = name + " without its setting " + settings.missing();
    return std::nullopt;
  }
  if (adam && steps < 0) {
    why = "how many steps were taken before is not known";
    return std::nullopt;
  }
  return formula;
}

}  // namespace ttrace::builtin
