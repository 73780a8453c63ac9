// SPDX-License-Identifier: Apache-2.0
// Sequences that lie in memory once: equal ones have one number. Numbers count from 0 in the order
// of first appearance; views stay valid as long as the pool lives.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

namespace ttrace::invariant {

// Memory that is only ever added to, in blocks that never move.
class Arena {
 public:
  template <class T>
  T* allocate(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + 7) / 8 * 8;
    if (bytes > left_) grow(bytes);
    std::byte* const place = next_;
    next_ += bytes;
    left_ -= bytes;
    return reinterpret_cast<T*>(place);
  }

 private:
  void grow(std::size_t bytes) {
    const std::size_t size = bytes > block_ ? bytes : block_;
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    next_ = blocks_.back().get();
    left_ = size;
    if (block_ < (std::size_t{1} << 20)) block_ *= 2;
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::size_t block_ = std::size_t{1} << 12;
};

// `T` is trivially copyable. Whether two sequences are the same, `Same` decides, and whoever calls
// hashes them: same ones have the same hash.
template <class T, class Same>
class Interned {
 public:
  struct Entry {
    const T* data;
    std::uint32_t count;
    std::uint32_t flags;  // the owner's
    std::uint64_t hash;   // the owner's: need not be the one it was found by
  };

  // `added` is true for a new one, whose entry is to be completed.
  std::uint32_t find_or_add(std::span<const T> sequence, std::uint64_t hash, bool& added) {
    if ((entries_.size() + 1) * 3 > slots_.size() * 2) grow();
    const std::uint32_t tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.ref == 0) {
        slot = {tag, static_cast<std::uint32_t>(hash), add(sequence)};
        added = true;
        return slot.ref - 1;
      }
      if (slot.tag == tag && slot.low == static_cast<std::uint32_t>(hash) &&
          Same()(view(slot.ref - 1), sequence)) {
        added = false;
        return slot.ref - 1;
      }
    }
  }

  [[nodiscard]] std::span<const T> view(std::uint32_t number) const {
    const Entry& entry = entries_[number];
    return {entry.data, entry.count};
  }
  [[nodiscard]] const Entry& entry(std::uint32_t number) const { return entries_[number]; }
  [[nodiscard]] Entry& entry(std::uint32_t number) { return entries_[number]; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Slot {
    std::uint32_t tag = 0, low = 0;
    std::uint32_t ref = 0;  // number + 1; 0: free
  };

  std::uint32_t add(std::span<const T> sequence) {
    if (sequence.size() > UINT32_MAX || entries_.size() >= UINT32_MAX - 1)
      throw std::length_error("more values than a pool can number");
    T* const data = arena_.allocate<T>(sequence.size());
    if (!sequence.empty()) std::memcpy(data, sequence.data(), sequence.size_bytes());
    entries_.push_back({data, static_cast<std::uint32_t>(sequence.size()), 0, 0});
    return static_cast<std::uint32_t>(entries_.size());
  }

  void grow() {
    std::vector<Slot> bigger(slots_.empty() ? 64 : slots_.size() * 2);
    mask_ = bigger.size() - 1;
    for (const Slot& slot : slots_) {
      if (slot.ref == 0) continue;
      std::size_t at = slot.low & mask_;  // the low half of the hash decides the place
      while (bigger[at].ref != 0) at = (at + 1) & mask_;
      bigger[at] = slot;
    }
    slots_ = std::move(bigger);
  }

  Arena arena_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

}  // namespace ttrace::invariant
