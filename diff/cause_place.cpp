// SPDX-License-Identifier: Apache-2.0
// Causes that one pass over both tensors shows. Rows are all dimensions but the last, flattened,
// and columns are the last one; what is kept of them is a few numbers each, so memory grows with
// the rows of a tensor and not with its elements.
#include <algorithm>
#include <cmath>
#include <map>

#include "diff/cause.hpp"
#include "diff/cause_lines.hpp"
#include "diff/tiles.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTile = 65536;
constexpr std::uint64_t kMostLines = std::uint64_t{1} << 20;  // rows, or columns
constexpr std::uint64_t kLeastValues = 16;

// ---- coarser types ----

struct Format {
  const char* name;
  int mantissa;      // bits
  int min_exponent;  // of normal numbers
  double largest;
};

constexpr Format kFormats[] = {{"bfloat16", 7, -126, 0x1.fep127},
                               {"float16", 10, -14, 65504},
                               {"TF32", 10, -126, 0x1.ffcp127},
                               {"float32", 23, -126, 0x1.fffffep127}};

// To nearest, ties to even.
double rounded(double value, const Format& format) {
  if (value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double spacing =
      std::ldexp(1, std::max(exponent - 1, format.min_exponent) - format.mantissa);
  const double result = std::nearbyint(value / spacing) * spacing;
  return std::fabs(result) > format.largest ? std::copysign(INFINITY, value) : result;
}

// Values of one format: as long as the candidate has no other.
struct Cast {
  const Format* format = nullptr;
  bool possible = true;
  std::uint64_t values = 0;     // that are not zero
  std::uint64_t reference = 0;  // of the reference's, representable
  std::uint64_t equal = 0;      // the reference's value, rounded

  void add(double mine, double theirs) {
    if (!possible || mine == 0) return;
    possible = rounded(mine, *format) == mine;
    ++values;
    const double cast = rounded(theirs, *format);
    reference += cast == theirs;
    equal += cast == mine;
  }
};

// ---- lines ----

// A row or a column.
struct Line {
  double errors = 0;  // squared
  double reference = 0;
  double candidate = 0;
};

class Places {
 public:
  explicit Places(const Suspect& suspect)
      : suspect_(suspect), shape_(suspect.pair->reference->shape) {
    width_ = shape_.empty() ? 1 : shape_.back();
    const std::uint64_t count = element_count(shape_);
    const std::uint64_t rows = width_ == 0 ? 0 : count / width_;
    rows_.resize(rows <= kMostLines ? rows : 0);
    row_sums_.resize(rows_.size());
    columns_.resize(width_ <= kMostLines ? width_ : 0);
    const DType type = suspect.pair->candidate->dtype;
    for (const Format& format : kFormats) {
      const bool wider = type == DType::float64 || (type == DType::float32 && format.mantissa < 23);
      if (wider) casts_.push_back({&format});
    }
  }

  Causes run(bool explained) {
    read();
    cast();
    const bool padded = zero_lines(rows_, "row") || zero_lines(columns_, "column");
    if (!explained && !padded && !other_order_of_rows()) concentrated();
    return std::move(causes_);
  }

 private:
  void read() {
    std::uint64_t flat = 0;
    std::vector<double> reference, candidate;
    for (const Box& box : tiles_of(shape_, kTile)) {
      suspect_.reference->read(box, reference);
      suspect_.candidate->read(box, candidate);
      for (std::size_t i = 0; i < reference.size(); ++i) add(flat++, reference[i], candidate[i]);
    }
  }

  void add(std::uint64_t flat, double reference, double candidate) {
    if (!std::isfinite(reference) || !std::isfinite(candidate)) return;
    const double scaled = candidate * suspect_.scale;
    const double error = scaled - reference;
    total_ += error * error;
    const auto add_to = [&](Line& line) {
      line.errors += error * error;
      line.reference += reference * reference;
      line.candidate += scaled * scaled;
    };
    if (!rows_.empty()) {
      const std::uint64_t row = flat / width_;
      add_to(rows_[row]);
      // Weights tell one order of a row's elements from another.
      const double weight =
          1 + 0.5 * static_cast<double>(flat % width_) / static_cast<double>(width_);
      row_sums_[row].first += weight * reference;
      row_sums_[row].second += weight * scaled;
    }
    if (!columns_.empty()) add_to(columns_[flat % width_]);
    for (Cast& cast : casts_) cast.add(candidate, reference / suspect_.scale);
  }

  void note(std::string what, std::string evidence, bool guess) {
    causes_.push_back({std::move(what), std::move(evidence), guess});
  }

  // The coarsest type that holds all of the candidate, if the reference is not made so, too.
  void cast() {
    for (const Cast& cast : casts_) {
      if (!cast.possible || cast.values < kLeastValues) continue;
      if (2 * cast.reference > cast.values) return;
      note(std::string("the values have gone through ") + cast.format->name,
           "all " + std::to_string(cast.values) + " are " + cast.format->name +
               "'s, of the reference's " + counted(cast.reference, cast.values) + "; " +
               counted(cast.equal, cast.values) + " are the reference's, rounded",
           100 * cast.equal < 99 * cast.values);
      return;
    }
  }

  bool zero_lines(const std::vector<Line>& lines, const std::string& what) {
    for (const bool in_candidate : {true, false}) {
      std::vector<bool> zero(lines.size(), false);
      std::uint64_t count = 0;
      double errors = 0;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        const double mine = in_candidate ? lines[i].candidate : lines[i].reference;
        const double theirs = in_candidate ? lines[i].reference : lines[i].candidate;
        zero[i] = mine == 0 && theirs > 0;
        count += zero[i];
        if (zero[i]) errors += lines[i].errors;
      }
      // All of them is a tensor of zeros; and a line of one element is no line.
      if (count == 0 || count == lines.size() || suspect_.pair->reference->shape.size() < 2)
        continue;
      note((count > 1 ? what + "s " : what + " ") + ranges_text(zero) +
               (count > 1 ? " are" : " is") + " zero in the " +
               (in_candidate ? "candidate" : "reference") + " only",
           counted(count, lines.size()) + " " + what + "s, with " + percent(errors / total_) +
               " of the squared error",
           errors < kNearlyAll * total_);
      if (errors >= kNearlyAll * total_) return true;
    }
    return false;
  }

  // The same rows, bit for bit, elsewhere.
  bool other_order_of_rows() {
    std::map<double, std::vector<std::size_t>> places;
    for (std::size_t row = 0; row < row_sums_.size(); ++row) {
      places[row_sums_[row].first].push_back(row);
    }
    std::size_t moved = 0, first = 0, from = 0;
    if (places.size() < 4 || width_ < 2) return false;
    for (std::size_t row = row_sums_.size(); row-- > 0;) {
      const auto found = places.find(row_sums_[row].second);
      if (found == places.end() || found->second.empty()) return false;
      std::vector<std::size_t>& left = found->second;
      const auto own = std::find(left.begin(), left.end(), row);
      const auto taken = own == left.end() ? left.end() - 1 : own;
      if (own == left.end()) {
        ++moved;
        first = row;
        from = *taken;
      }
      left.erase(taken);
    }
    if (moved == 0) return false;
    note("the rows are the reference's in another order",
         "all " + std::to_string(row_sums_.size()) + " are there, " + std::to_string(moved) +
             " elsewhere: row " + std::to_string(first) + " is the reference's " +
             std::to_string(from),
         moved < 4);
    return true;
  }

  // ---- where the error lies ----

  void concentrated() {
    concentrated_in(columns_errors(), "column", "the last dimension");
    if (shape_.size() < 2 || rows_.empty()) return;
    std::vector<double> errors;
    for (const Line& row : rows_) errors.push_back(row.errors);
    const auto row = where_nearly_all(errors);
    if (shape_.size() == 2 || (row && row->count == 1)) {
      concentrated_in(errors, "row", "the first dimension");
      return;
    }
    std::uint64_t inner = 1;
    for (std::size_t dim = shape_.size() - 1; dim-- > 0; inner *= shape_[dim]) {
      std::vector<double> slices(shape_[dim], 0.0);
      for (std::size_t i = 0; i < errors.size(); ++i) slices[i / inner % shape_[dim]] += errors[i];
      concentrated_in(slices, "", "dimension " + std::to_string(dim));
    }
  }

  [[nodiscard]] std::vector<double> columns_errors() const {
    std::vector<double> errors;
    for (const Line& column : columns_) errors.push_back(column.errors);
    return errors;
  }

  void concentrated_in(const std::vector<double>& errors, std::string what,
                       const std::string& dimension) {
    const std::optional<Lines> lines = where_nearly_all(errors);
    if (!lines || errors.size() < 2) return;
    if (shape_.size() == 1) what = "element";
    const bool one = lines->count == 1;
    std::string name = what + (one ? " " : "s ") + ranges_text(lines->set);
    if (what.empty()) {
      name = (one ? "index " : "indices ") + ranges_text(lines->set) + " of " + dimension;
    }
    const std::uint64_t blocks = equal_blocks(*lines, errors.size());
    const double size = static_cast<double>(lines->count) / static_cast<double>(errors.size());
    note(name + (one ? " carries " : " carry ") + percent(lines->share) + " of the squared error",
         (blocks > 0 ? "one of " + std::to_string(blocks) + " equal blocks of " + dimension
                     : counted(lines->count, errors.size())) +
             ", " + percent(size) + " of the elements",
         false);
  }

  const Suspect& suspect_;
  const Shape& shape_;
  std::uint64_t width_ = 1;
  double total_ = 0;
  std::vector<Line> rows_, columns_;
  std::vector<std::pair<double, double>> row_sums_;  // reference, candidate
  std::vector<Cast> casts_;
  Causes causes_;
};

}  // namespace

Causes find_places(const Suspect& suspect, bool explained) {
  return Places(suspect).run(explained);
}

}  // namespace ttrace
