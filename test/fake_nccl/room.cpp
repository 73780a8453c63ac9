// SPDX-License-Identifier: Apache-2.0
// See room.hpp.
#include "test/fake_nccl/room.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

namespace fake {

// The memory is zero at first, which is every member's initial state.
struct alignas(64) Room::Member {
  std::atomic<std::uint64_t> arrived[kKinds];
  std::atomic<std::int64_t> cells[2];
  std::atomic<pid_t> pid;
};

namespace {

std::chrono::seconds timeout() {
  static const std::chrono::seconds time = [] {
    const char* text = std::getenv("FAKE_NCCL_TIMEOUT");
    return std::chrono::seconds(text != nullptr ? std::atoi(text) : 60);
  }();
  return time;
}

}  // namespace

Room::Room(void* memory, std::size_t bytes, int member, int size, const std::atomic<bool>& aborted)
    : memory_(static_cast<char*>(memory)),
      bytes_(bytes),
      member_(member),
      size_(size),
      aborted_(aborted) {}

Room::~Room() { munmap(memory_, bytes_); }

std::shared_ptr<Room> Room::open(const std::string& name, int member, int size,
                                 const std::atomic<bool>& aborted) {
  const auto members = static_cast<std::size_t>(size);
  const std::size_t bytes =
      members * (sizeof(Member) + kSlotBytes) + members * members * sizeof(Channel);
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0) return nullptr;
  const bool sized = ftruncate(file, static_cast<off_t>(bytes)) == 0;
  void* memory =
      sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  std::shared_ptr<Room> room(new Room(memory, bytes, member, size, aborted));
  room->at(member).pid = getpid();
  const bool complete = room->meet(kHost);
  if (member == 0) shm_unlink(name.c_str());
  return complete ? room : nullptr;
}

Room::Member& Room::at(int member) const { return reinterpret_cast<Member*>(memory_)[member]; }

char* Room::slot(int member) const {
  return memory_ + static_cast<std::size_t>(size_) * sizeof(Member) +
         static_cast<std::size_t>(member) * kSlotBytes;
}

Channel& Room::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(slot(size_))[from * size_ + to];
}

std::atomic<std::int64_t>& Room::cell(int member, int which) const {
  return at(member).cells[which];
}

bool Room::patient(std::chrono::steady_clock::time_point since, int awaited) const {
  const auto waited = std::chrono::steady_clock::now() - since;
  if (waited < std::chrono::microseconds(50)) {
    std::this_thread::yield();
    return !aborted_;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (aborted_ || waited > timeout()) return false;
  if (waited < std::chrono::milliseconds(200)) return true;
  const pid_t pid = at(awaited).pid;
  return pid == 0 || kill(pid, 0) == 0 || errno != ESRCH;
}

bool Room::meet(Kind kind) {
  const std::uint64_t round = ++rounds_[kind];
  at(member_).arrived[kind] = round;
  const auto since = std::chrono::steady_clock::now();
  for (int member = 0; member < size_; ++member) {
    while (at(member).arrived[kind] < round) {
      // Who has arrived may go and die: its arrival counts.
      if (!patient(since, member) && at(member).arrived[kind] < round) return false;
    }
  }
  return true;
}

}  // namespace fake
