// SPDX-License-Identifier: Apache-2.0
// See pack_tensor.hpp.
#include "tools/pack_tensor.hpp"

#include <algorithm>
#include <vector>

namespace ttrace {
namespace {

constexpr std::uint64_t kTileBytes = std::uint64_t{16} << 20;

}  // namespace

// Slabs of whole rows, so that memory stays bounded.
void write_tensor(const LogicalTensor& tensor, std::size_t index, PackWriter& pack,
                  const std::function<void(std::uint64_t)>& advance) {
  const std::uint64_t total = element_count(tensor.shape) * size_of(tensor.dtype);
  if (total == 0) return;
  const std::uint64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
  const std::uint64_t row_bytes = total / rows;
  const std::uint64_t step = std::max<std::uint64_t>(1, kTileBytes / row_bytes);
  std::vector<std::byte> slab;
  for (std::uint64_t row = 0; row < rows; row += step) {
    Box box{Shape(tensor.shape.size(), 0), tensor.shape};
    const std::uint64_t count = std::min(step, rows - row);
    if (!tensor.shape.empty()) {
      box.start.front() = row;
      box.count.front() = count;
    }
    slab.resize(static_cast<std::size_t>(count * row_bytes));
    read_box(tensor, box, slab.data());
    pack.write(index, row * row_bytes, slab);
    advance(slab.size());
  }
}

}  // namespace ttrace
