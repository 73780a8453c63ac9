// SPDX-License-Identifier: Apache-2.0
// Numbers of two HDF5 files that lie one after another in both, compared by several threads. What
// is equal byte by byte is not measured: a number of a dataset that differs is only then added to
// the norm. A tile is one thread's and tiles add in order, so results do not depend on how many
// there are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "diff/backend.hpp"
#include "libttrace/file_bytes.hpp"
#include "libttrace/h5_element.hpp"

namespace ttrace {

struct NumberMetrics {
  Metrics total;                // where nothing is unequal, its sums are 0
  std::uint64_t bits_only = 0;  // equal numbers of other bits: -0 and 0, two NaNs
};

// What both are compared as; nullopt: integers and floats, or uint64, which no type here holds.
[[nodiscard]] std::optional<DType> comparison_type(const h5::NumberFormat& reference,
                                                   const h5::NumberFormat& candidate);

// A piece of both sides in memory.
struct NumberPiece {
  h5::NumberFormat format;
  const std::byte* data;
};

// Compares pieces, with memory of its own for what must be converted first.
class NumberComparer {
 public:
  NumberComparer(const Backend& backend, DType type) : backend_(backend), type_(type) {}

  // True: equal byte by byte, nothing was added but to the counts.
  [[nodiscard]] bool equal(const NumberPiece& reference, const NumberPiece& candidate,
                           std::uint64_t count, NumberMetrics& total) const;
  void measure(const NumberPiece& reference, const NumberPiece& candidate,
               std::span<const RunPair> runs, NumberMetrics& total);
  // Adds the norms of what is equal.
  void add_norms(const NumberPiece& both, std::uint64_t count, Metrics& total);

 private:
  const std::byte* as_type(const NumberPiece& piece, std::uint64_t count,
                           std::vector<std::byte>& scratch);

  const Backend& backend_;
  DType type_;
  std::vector<std::byte> swapped_, reference_, candidate_;
};

struct NumberSide {
  const FileBytes* file;
  std::uint64_t offset;
  h5::NumberFormat format;
};

struct NumberJob {
  NumberSide reference, candidate;
  std::uint64_t count;  // elements, at least 1
  DType type;           // what comparison_type says
  NumberMetrics* result;
};

class NumberCrew {
 public:
  explicit NumberCrew(const Backend& backend);
  ~NumberCrew();
  NumberCrew(const NumberCrew&) = delete;
  NumberCrew& operator=(const NumberCrew&) = delete;

  // Returns at once. The result is complete when finish returns.
  void add(const NumberJob& job);
  // Throws what a thread threw first.
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ttrace
