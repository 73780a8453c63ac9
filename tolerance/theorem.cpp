// SPDX-License-Identifier: Apache-2.0
// See theorem.hpp.
#include "tolerance/theorem.hpp"

#include <cmath>

namespace ttrace {
namespace {

double bound(double epsilon, std::uint64_t passed) {
  return kTheoremFactor * std::pow(kTheoremGrowth, static_cast<double>(passed)) * epsilon;
}

}  // namespace

double theorem_activation_bound(double epsilon, std::uint64_t depth) {
  return bound(epsilon, depth);
}

double theorem_gradient_bound(double epsilon, std::uint64_t depth, std::uint64_t blocks) {
  return bound(epsilon, blocks + 1 > depth ? blocks + 1 - depth : 0);
}

}  // namespace ttrace
