// SPDX-License-Identifier: Apache-2.0
// See feed_part.hpp.
#include "capture/feed_part.hpp"

#include <cstring>

namespace ttrace {
namespace {

std::uint64_t offset_of(const Shape& place, const Shape& strides) {
  std::uint64_t offset = 0;
  for (std::size_t dim = 0; dim < place.size(); ++dim) offset += place[dim] * strides[dim];
  return offset;
}

// The next row of a box in row-major order; false after the last. `row` counts in all dimensions
// but the last.
bool advance(Shape& row, const Shape& count) {
  for (std::size_t dim = row.size(); dim-- > 0;) {
    if (++row[dim] < count[dim]) return true;
    row[dim] = 0;
  }
  return false;
}

}  // namespace

std::vector<std::byte> cut_out(std::span<const std::byte> whole, const Part& part,
                               std::size_t element) {
  std::vector<std::byte> shard(element_count(part.shard) * element);
  const Shape whole_strides = row_major(part.whole);
  const Shape shard_strides = row_major(part.shard);
  for (const Piece& piece : part.pieces) {
    const Shape& count = piece.global.count;
    if (element_count(count) == 0) continue;
    const std::uint64_t length = count.empty() ? 1 : count.back();
    // Of a box of the shard, rows lie apart; else the shard has it packed.
    const bool box = piece.local_start.size() == count.size();
    const std::uint64_t from = offset_of(piece.global.start, whole_strides);
    const std::uint64_t to =
        box ? offset_of(piece.local_start, shard_strides) : piece.local_start.front();
    const Shape packed = row_major(count);
    Shape row(count.empty() ? 0 : count.size() - 1, 0);
    do {
      std::memcpy(shard.data() + (to + offset_of(row, box ? shard_strides : packed)) * element,
                  whole.data() + (from + offset_of(row, whole_strides)) * element,
                  length * element);
    } while (advance(row, count));
  }
  return shard;
}

void store_as(DType to, DType from, double scale, std::span<const std::byte> data, std::byte* out) {
  if (to == from && scale == 1) {
    if (!data.empty()) std::memcpy(out, data.data(), data.size());
    return;
  }
  const std::size_t count = data.size() / size_of(from);
  for (std::size_t i = 0; i < count; ++i) {
    encode(to, decode(from, data.data(), i) * scale, out, i);
  }
}

std::string text_of(const Shape& shape) {
  std::string text;
  for (const std::uint64_t extent : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

}  // namespace ttrace
