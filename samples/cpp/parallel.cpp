// SPDX-License-Identifier: Apache-2.0
// See parallel.hpp.
#include "samples/cpp/parallel.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

constexpr int kMostMembers = 16;
constexpr std::size_t kPiece = 4096;  // floats of a member that are exchanged at a time

}  // namespace

struct GroupMemory {
  std::atomic<int> ready;
  pthread_barrier_t barrier;
  float values[kMostMembers][kPiece];
};

// ---- collectives ----

void Group::barrier() const {
  if (size_ > 1) pthread_barrier_wait(&memory_->barrier);
}

std::vector<float> Group::gather(std::span<const float> values) const {
  const std::size_t count = values.size();
  const auto members = static_cast<std::size_t>(size_);
  std::vector<float> all(count * members);
  if (size_ == 1) {
    std::copy(values.begin(), values.end(), all.begin());
    return all;
  }
  for (std::size_t from = 0; from < count; from += kPiece) {
    const auto piece = values.subspan(from, std::min(kPiece, count - from));
    std::copy(piece.begin(), piece.end(), memory_->values[member_]);
    barrier();
    for (std::size_t member = 0; member < members; ++member) {
      std::copy_n(memory_->values[member], piece.size(),
                  all.begin() + static_cast<std::ptrdiff_t>(member * count + from));
    }
    barrier();  // nobody writes the next piece while someone still reads this one
  }
  return all;
}

void Group::sum(std::span<float> values) const {
  if (size_ == 1) return;
  const std::vector<float> all = gather(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = all[i];
    for (std::size_t member = 1; member < static_cast<std::size_t>(size_); ++member) {
      values[i] += all[member * values.size() + i];
    }
  }
}

std::vector<float> Group::sum_and_scatter(std::vector<float> values) const {
  sum(values);
  const std::size_t part = values.size() / static_cast<std::size_t>(size_);
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(part) * member_;
  return {begin, begin + static_cast<std::ptrdiff_t>(part)};
}

// ---- processes ----

namespace {

// Group 0 is the world, then the tp groups by their place in dp, then the dp groups.
std::size_t group_count(int dp, int tp) { return static_cast<std::size_t>(1 + dp + tp); }

void set_up(GroupMemory* memory, int dp, int tp) {
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  for (std::size_t group = 0; group < group_count(dp, tp); ++group) {
    const int members = group == 0 ? dp * tp : group <= static_cast<std::size_t>(dp) ? tp : dp;
    pthread_barrier_init(&memory[group].barrier, &shared, static_cast<unsigned>(members));
  }
  pthread_barrierattr_destroy(&shared);
  memory->ready.store(1);
}

Mesh mesh_of(GroupMemory* memory, int rank, int dp, int tp) {
  Mesh mesh;
  mesh.rank = rank;
  mesh.ranks = dp * tp;
  mesh.world = Group(memory, dp * tp, rank);
  mesh.tp = Group(memory + 1 + rank / tp, tp, rank % tp);
  mesh.dp = Group(memory + 1 + dp + rank % tp, dp, rank / tp);
  return mesh;
}

int run_forked(int dp, int tp, const std::function<int(const Mesh&)>& body) {
  const std::size_t bytes = group_count(dp, tp) * sizeof(GroupMemory);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  auto* groups = static_cast<GroupMemory*>(memory);
  set_up(groups, dp, tp);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < dp * tp; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("cannot fork");
    if (pid == 0) std::exit(body(mesh_of(groups, rank, dp, tp)));
    ranks.push_back(pid);
  }
  int code = 0;
  int status = 0;
  while (wait(&status) > 0) {
    if (status == 0) continue;
    if (code == 0) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    for (const pid_t pid : ranks) kill(pid, SIGTERM);  // they would wait for it for ever
  }
  return code;
}

// The processes that one launcher started have the same parent: that names their memory.
GroupMemory* launched_memory(int rank, int dp, int tp) {
  const std::string name = "/cpp-trainer-" + std::to_string(getppid());
  const std::size_t bytes = group_count(dp, tp) * sizeof(GroupMemory);
  int fd = rank == 0 ? shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600) : -1;
  if (rank == 0 && (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0)) {
    throw std::runtime_error("cannot make shared memory " + name);
  }
  struct stat file {};
  for (int tries = 0; rank != 0 && tries < 3000; ++tries) {
    if (fd < 0) fd = shm_open(name.c_str(), O_RDWR, 0600);
    if (fd >= 0 && fstat(fd, &file) == 0 && static_cast<std::size_t>(file.st_size) == bytes) break;
    usleep(10000);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no rank 0, or it has another layout");
  auto* groups = static_cast<GroupMemory*>(memory);
  if (rank == 0) set_up(groups, dp, tp);
  while (groups->ready.load() == 0) usleep(10000);
  pthread_barrier_wait(&groups->barrier);
  if (rank == 0) shm_unlink(name.c_str());
  return groups;
}

}  // namespace

int run_ranks(int dp, int tp, const std::function<int(const Mesh&)>& body) {
  if (dp * tp > kMostMembers) throw std::runtime_error("at most 16 ranks");
  const char* rank = std::getenv("RANK");
  const char* world = std::getenv("WORLD_SIZE");
  if (rank != nullptr && world != nullptr && std::atoi(world) > 1) {
    if (std::atoi(world) != dp * tp) throw std::runtime_error("WORLD_SIZE is not dp * tp");
    return body(mesh_of(launched_memory(std::atoi(rank), dp, tp), std::atoi(rank), dp, tp));
  }
  if (dp * tp == 1) return body(Mesh{});
  return run_forked(dp, tp, body);
}
