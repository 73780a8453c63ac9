// SPDX-License-Identifier: Apache-2.0
// See shared_memory.hpp.
#include "samples/cpp/shared_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace {

GroupMemory::Mailbox& mailbox(GroupMemory* memory, int from, int to) {
  return memory->mailboxes[from][to > from ? 0 : 1];
}

bool try_send(GroupMemory::Mailbox& box, std::span<const float> values) {
  if (box.full.load(std::memory_order_acquire) != 0) return false;
  std::copy(values.begin(), values.end(), box.values);
  box.full.store(1, std::memory_order_release);
  return true;
}

bool try_receive(GroupMemory::Mailbox& box, std::span<float> values) {
  if (box.full.load(std::memory_order_acquire) == 0) return false;
  std::copy_n(box.values, values.size(), values.begin());
  box.full.store(0, std::memory_order_release);
  return true;
}

}  // namespace

std::vector<float> SharedMemory::gather(std::span<const float> values, bool) {
  const std::size_t count = values.size();
  std::vector<float> all(count * size_);
  for (std::size_t from = 0; from < count; from += kPiece) {
    const auto piece = values.subspan(from, std::min(kPiece, count - from));
    std::copy(piece.begin(), piece.end(), memory_->values[member_]);
    pthread_barrier_wait(&memory_->barrier);
    for (std::size_t member = 0; member < size_; ++member) {
      std::copy_n(memory_->values[member], piece.size(),
                  all.begin() + static_cast<std::ptrdiff_t>(member * count + from));
    }
    // Nobody writes the next piece while someone still reads this one.
    pthread_barrier_wait(&memory_->barrier);
  }
  return all;
}

void SharedMemory::sum(std::span<float> values) {
  const std::vector<float> all = gather(values, true);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = all[i];
    for (std::size_t member = 1; member < size_; ++member) {
      values[i] += all[member * values.size() + i];
    }
  }
}

std::vector<float> SharedMemory::sum_and_scatter(std::span<const float> values) {
  std::vector<float> all(values.begin(), values.end());
  sum(all);
  const std::size_t part = values.size() / size_;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part) * member_;
  return {begin, begin + static_cast<std::ptrdiff_t>(part)};
}

void SharedMemory::exchange(const std::optional<Outgoing>& out, const std::optional<Incoming>& in) {
  if ((out && out->values.size() > kPiece) || (in && in->values.size() > kPiece)) {
    throw std::runtime_error("a message between stages may have at most 4096 floats");
  }
  bool sent = !out;
  bool received = !in;
  while (!sent || !received) {
    sent = sent || try_send(mailbox(memory_, member_, out->peer), out->values);
    received = received || try_receive(mailbox(memory_, in->peer, member_), in->values);
    if (!sent || !received) usleep(50);
  }
}
