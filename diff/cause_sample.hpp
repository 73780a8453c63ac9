// SPDX-License-Identifier: Apache-2.0
// A few hundred elements of a pair, to try many explanations on: a wrong one fails at the first few
// of them, so trying costs next to nothing however large the tensors are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "diff/cause.hpp"

namespace ttrace {

// Positions in `box`, the same ones each time; all of it when it has no more than `count`.
[[nodiscard]] std::vector<Shape> positions_in(const Box& box, std::uint64_t count);

struct Sample {
  std::vector<Shape> positions;
  std::vector<double> candidate;  // times the scale
  std::vector<double> reference;  // at the same positions
  double limit = 0;               // relative
  double size = 0;                // RMS of the candidate's
};

[[nodiscard]] Sample sample_of(const Suspect& suspect, const Box& region);

// The value that should be at a position if an explanation is right; nullopt: it says nothing
// there.
using Lookup = std::function<std::optional<double>(const Shape&)>;

struct Fit {
  bool equal = false;  // not one element differs
  std::uint64_t compared = 0;
  std::uint64_t changed = 0;  // of these, positions where the reference's own value is another one
  double error = 0;           // relative
};

// nullopt: the explanation does not fit, or it fits no better than the reference itself.
[[nodiscard]] std::optional<Fit> fit(const Sample& sample, const Lookup& lookup);

// Whether values agree, in order, without asking what else would explain them. Stops at the first
// that does not. `size` is the RMS of the tensor, `limit` relative.
[[nodiscard]] bool agree(const std::vector<Shape>& positions, const std::vector<double>& values,
                         const Lookup& lookup, double limit, double size);

// "512 of 512 sampled elements are equal", or the error of the sample.
[[nodiscard]] std::string fit_text(const Fit& fit);
// Too few elements, or only near: something else may explain it, too.
[[nodiscard]] bool is_guess(const Fit& fit);

}  // namespace ttrace
