// SPDX-License-Identifier: Apache-2.0
// The trainer's own sum of docs/frameworks.md, over memory that the ranks share: the file $ROOM.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <thread>
#include <vector>

void sum_over_ranks(std::vector<float>& values);

namespace {

struct Room {
  std::atomic<int> arrived, turn;
  float values[8][64];
};

void meet(Room& room, int ranks) {
  const int turn = room.turn.load();
  if (room.arrived.fetch_add(1) + 1 == ranks) {
    room.arrived = 0;
    ++room.turn;
    return;
  }
  while (room.turn.load() == turn) std::this_thread::yield();
}

}  // namespace

void sum_over_ranks(std::vector<float>& values) {
  if (std::getenv("ROOM") == nullptr) return;  // one rank
  const int ranks = std::atoi(std::getenv("WORLD_SIZE"));
  static void* const memory = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED,
                                   open(std::getenv("ROOM"), O_RDWR), 0);
  Room& room = *static_cast<Room*>(memory);
  std::copy(values.begin(), values.end(), room.values[std::atoi(std::getenv("RANK"))]);
  meet(room, ranks);
  std::fill(values.begin(), values.end(), 0.0f);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += room.values[rank][i];
  }
  meet(room, ranks);
}
