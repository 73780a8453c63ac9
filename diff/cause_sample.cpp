// SPDX-License-Identifier: Apache-2.0
// See cause_sample.hpp.
#include "diff/cause_sample.hpp"

#include <cmath>
#include <set>

#include "libttrace/inference_sampling.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kSampled = 512;
constexpr double kBetter = 0.25;       // than the reference itself, for what is only near
constexpr double kStray = 3;           // times the limit: then a few elements are enough to say no
constexpr std::uint64_t kEnough = 16;  // changed elements that do not agree by accident

Shape position_at(std::uint64_t flat, const Box& box) {
  Shape position(box.count.size(), 0);
  for (std::size_t dim = box.count.size(); dim-- > 0;) {
    position[dim] = box.start[dim] + flat % box.count[dim];
    flat /= box.count[dim];
  }
  return position;
}

}  // namespace

std::vector<Shape> positions_in(const Box& box, std::uint64_t count) {
  const std::uint64_t all = volume(box);
  std::vector<Shape> positions;
  std::uint64_t state = all;
  for (std::uint64_t i = 0; i < std::min(all, count); ++i) {
    positions.push_back(position_at(all <= count ? i : next_random(state) % all, box));
  }
  return positions;
}

Sample sample_of(const Suspect& suspect, const Box& region) {
  Sample sample;
  sample.positions = positions_in(region, kSampled);
  sample.limit = suspect.limit;
  for (const Shape& position : sample.positions) {
    sample.candidate.push_back(suspect.scale * suspect.candidate->at(position));
    sample.reference.push_back(suspect.reference->at(position));
    sample.size += sample.candidate.back() * sample.candidate.back();
  }
  sample.size = std::sqrt(sample.size / static_cast<double>(sample.positions.size()));
  return sample;
}

std::optional<Fit> fit(const Sample& sample, const Lookup& lookup) {
  Fit result;
  result.equal = true;
  double errors = 0, squares = 0, own_errors = 0;
  std::set<double> values;
  for (std::size_t i = 0; i < sample.positions.size(); ++i) {
    const std::optional<double> value = lookup(sample.positions[i]);
    if (!value) continue;
    const double error = sample.candidate[i] - *value;
    const double own = sample.candidate[i] - sample.reference[i];
    ++result.compared;
    result.changed += own != 0;
    result.equal = result.equal && error == 0;
    errors += error * error;
    own_errors += own * own;
    squares += *value * *value;
    if (values.size() < 2) values.insert(*value);
    const double stray = kStray * sample.limit;
    // A single element may be as far off as any other, however small it is.
    if (!(errors <= stray * stray * (squares + sample.size * sample.size))) return std::nullopt;
  }
  // What is everywhere the same fits anywhere.
  if (result.changed == 0 || (values.size() < 2 && result.compared > 1)) return std::nullopt;
  result.error = squares > 0 ? std::sqrt(errors / squares) : 0;
  const bool near = result.error <= sample.limit && errors <= kBetter * kBetter * own_errors;
  return result.equal || near ? std::optional<Fit>(result) : std::nullopt;
}

bool agree(const std::vector<Shape>& positions, const std::vector<double>& values,
           const Lookup& lookup, double limit, double size) {
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::optional<double> value = lookup(positions[i]);
    if (!value) return false;
    errors += (values[i] - *value) * (values[i] - *value);
    squares += *value * *value;
    if (!(errors <= limit * limit * (squares + size * size))) return false;
  }
  return true;
}

std::string fit_text(const Fit& fit) {
  const std::string all = std::to_string(fit.compared) + " of " + std::to_string(fit.compared);
  if (fit.equal) return all + " sampled elements are equal";
  return std::to_string(fit.compared) + " sampled elements, relative error " +
         short_number(fit.error);
}

bool is_guess(const Fit& fit) { return !fit.equal || fit.changed < kEnough; }

}  // namespace ttrace
