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

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "samples/cpp/shared_memory.hpp"

namespace {

// In the shared memory group 0 is the world, then come those along tp, dp and pp.
std::size_t group_count(const MeshSizes& sizes) {
  const int ranks = sizes.ranks();
  return static_cast<std::size_t>(1 + ranks / sizes.tp + ranks / sizes.dp + ranks / sizes.pp);
}

void set_up(GroupMemory* memory, const MeshSizes& sizes) {
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  const auto add = [&](int groups, int members) {
    for (int group = 0; group < groups; ++group, ++memory) {
      pthread_barrier_init(&memory->barrier, &shared, static_cast<unsigned>(members));
    }
  };
  GroupMemory* const world = memory;
  add(1, sizes.ranks());
  add(sizes.ranks() / sizes.tp, sizes.tp);
  add(sizes.ranks() / sizes.dp, sizes.dp);
  add(sizes.ranks() / sizes.pp, sizes.pp);
  pthread_barrierattr_destroy(&shared);
  world->ready.store(1);
}

Group group_of(GroupMemory* memory, int size, int member) {
  if (size == 1) return {};
  return {std::make_shared<SharedMemory>(memory, size, member), size, member};
}

Mesh mesh_of(GroupMemory* memory, int rank, const MeshSizes& sizes) {
  const int tp = rank % sizes.tp;
  const int dp = rank / sizes.tp % sizes.dp;
  const int pp = rank / (sizes.tp * sizes.dp);
  GroupMemory* const tp_groups = memory + 1;
  GroupMemory* const dp_groups = tp_groups + sizes.ranks() / sizes.tp;
  GroupMemory* const pp_groups = dp_groups + sizes.ranks() / sizes.dp;
  Mesh mesh;
  mesh.rank = rank;
  mesh.sizes = sizes;
  mesh.world = group_of(memory, sizes.ranks(), rank);
  mesh.tp = group_of(tp_groups + rank / sizes.tp, sizes.tp, tp);
  mesh.dp = group_of(dp_groups + pp * sizes.tp + tp, sizes.dp, dp);
  mesh.pp = group_of(pp_groups + rank % (sizes.tp * sizes.dp), sizes.pp, pp);
  return mesh;
}

int run_forked(const MeshSizes& sizes, const std::function<int(const Mesh&)>& body) {
  const std::size_t bytes = group_count(sizes) * sizeof(GroupMemory);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  auto* groups = static_cast<GroupMemory*>(memory);
  set_up(groups, sizes);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("cannot fork");
    if (pid == 0) std::exit(body(mesh_of(groups, rank, sizes)));
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
GroupMemory* launched_memory(int rank, const MeshSizes& sizes) {
  const std::string name = "/cpp-trainer-" + std::to_string(getppid());
  const std::size_t bytes = group_count(sizes) * sizeof(GroupMemory);
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
  if (rank == 0) set_up(groups, sizes);
  while (groups->ready.load() == 0) usleep(10000);
  pthread_barrier_wait(&groups->barrier);
  if (rank == 0) shm_unlink(name.c_str());
  return groups;
}

}  // namespace

int run_ranks(const MeshSizes& sizes, const std::function<int(const Mesh&)>& body) {
  if (sizes.ranks() > kMostMembers) throw std::runtime_error("at most 16 ranks");
  const char* rank = std::getenv("RANK");
  const char* world = std::getenv("WORLD_SIZE");
  if (rank != nullptr && world != nullptr && std::atoi(world) > 1) {
    if (std::atoi(world) != sizes.ranks()) {
      throw std::runtime_error("WORLD_SIZE is not pp * dp * tp");
    }
    return body(mesh_of(launched_memory(std::atoi(rank), sizes), std::atoi(rank), sizes));
  }
  if (sizes.ranks() == 1) return body(Mesh{});
  return run_forked(sizes, body);
}
