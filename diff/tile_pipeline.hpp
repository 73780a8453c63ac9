// SPDX-License-Identifier: Apache-2.0
// How pairs of elements in host memory get to a device and their records back: they are packed into
// slots of memory that the device can copy from, one copy a slot, and while the device works on one
// slot the next is filled. What a device does is behind an interface, so that this also runs where
// there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "diff/backend.hpp"
#include "diff/cuda_tile.hpp"

namespace ttrace {

inline constexpr unsigned kSlots = 3;
inline constexpr std::size_t kSlotBytes = std::size_t{64} << 20;
inline constexpr std::size_t kSlotRuns = std::size_t{1} << 16;  // and those of one block

// What a slot holds, from its first byte: the reference's elements, the candidate's at
// `candidate_at`, the runs at `runs_at`. Both are multiples of kLoadBytes.
struct SlotContents {
  DType type = DType::float32;
  double scale = 1;
  std::uint64_t count = 0;
  std::uint64_t run_count = 0;
  std::size_t candidate_at = 0;
  std::size_t runs_at = 0;

  [[nodiscard]] std::size_t bytes() const { return runs_at + run_count * sizeof(PackedRun); }
  [[nodiscard]] std::uint64_t tiles() const {
    return (count + kBlockElements - 1) / kBlockElements;
  }
};

// Of a slot that was copied to `slot`.
template <class T>
PackedPairs<T> pairs_of(const std::byte* slot, const SlotContents& contents) {
  return {reinterpret_cast<const T*>(slot),
          reinterpret_cast<const T*>(slot + contents.candidate_at),
          contents.count,
          reinterpret_cast<const PackedRun*>(slot + contents.runs_at),
          contents.run_count,
          contents.scale};
}

class TileDevice {
 public:
  virtual ~TileDevice() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Host memory of kSlotBytes, aligned to kLoadBytes, that is the caller's until start().
  [[nodiscard]] virtual std::byte* slot(unsigned number) = 0;
  // Begins to copy and to measure the slot; returns at once.
  virtual void start(unsigned number, const SlotContents& contents) = 0;
  // Waits for what was started; one record a tile.
  [[nodiscard]] virtual std::vector<TileRecord> wait(unsigned number) = 0;
};

// A backend on this device. One call at a time measures, others wait.
[[nodiscard]] std::unique_ptr<Backend> make_tile_backend(std::unique_ptr<TileDevice> device);

}  // namespace ttrace
