// SPDX-License-Identifier: Apache-2.0
// The elements of records as doubles, a tile at a time, whatever their size. Optimizers keep flat
// pieces of parameters: a Part says which elements of its record go with those of another one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "libttrace/segment.hpp"

namespace ttrace::builtin {

struct Part {
  const SegmentReader* segment = nullptr;
  const Record* record = nullptr;
  std::uint64_t start = 0;
  std::uint64_t count = 0;
};

// nullopt when its bytes were not kept.
[[nodiscard]] std::optional<Part> whole(const SegmentReader& segment, const Record* record);

// `records` of one rank, cut to the elements that the smallest of them holds. nullopt when one is
// missing, has no bytes, or it is not known how they lie in each other.
[[nodiscard]] std::optional<std::vector<Part>> aligned(const SegmentReader& segment,
                                                       const std::vector<const Record*>& records);

// Reads elements of a part, mostly in order; what was read once is let go.
class ElementReader {
 public:
  explicit ElementReader(const Part& part) : part_(part) {}
  // Exact, but for int64 beyond 2^53.
  void read(std::uint64_t offset, std::uint64_t count, std::vector<double>& out);
  // Of integers and booleans.
  void read(std::uint64_t offset, std::uint64_t count, std::vector<std::int64_t>& out);

 private:
  template <class Out>
  void read_as(std::uint64_t offset, std::uint64_t count, std::vector<Out>& out);

  Part part_;
  ReadBuffer buffer_;
};

using Tile = std::vector<std::vector<double>>;  // one list a part
// Calls `visit` with tiles of at most 65,536 elements of all parts, which have equal counts, and
// the number of the first element.
void for_each_tile(const std::vector<Part>& parts,
                   const std::function<void(const Tile& tile, std::uint64_t first)>& visit);

// |left - right| / |left|, Frobenius; of equal sizes. Infinite when left is zero and right is not.
[[nodiscard]] double relative_error(const Part& left, const Part& right);

// Elements in a row: the last dimension; 1 of a scalar.
[[nodiscard]] std::uint64_t row_length(const Shape& shape);

}  // namespace ttrace::builtin
