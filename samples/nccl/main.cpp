// SPDX-License-Identifier: Apache-2.0
// The trainer of samples/cpp with groups that communicate through NCCL. Shared memory is what hands
// the ranks the id of the world's communicator; of that the others are split.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "samples/cpp/trainer.hpp"
#include "samples/nccl/nccl_transport.hpp"

namespace {

// Rank 0's, by the groups in shared memory, which carry floats and leave their bits alone.
ncclUniqueId common_id(const Mesh& processes) {
  ncclUniqueId id;
  if (processes.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<float> bits(sizeof id / sizeof(float));
  if (processes.rank == 0) std::memcpy(bits.data(), &id, sizeof id);
  const std::vector<float> all = processes.world.gather(bits);
  std::memcpy(&id, all.data(), sizeof id);
  return id;
}

// Each rank has a device of its own where there are enough of them.
void choose_device(int rank) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check(cudaSetDevice(rank % std::max(devices, 1)), "cudaSetDevice");
}

Mesh connect(const Mesh& processes, Bug bug) {
  const int rank = processes.rank;
  const MeshSizes& sizes = processes.sizes;
  choose_device(rank);
  const auto device = std::make_shared<const Device>();
  ncclComm_t world = nullptr;
  check(ncclCommInitRank(&world, sizes.ranks(), common_id(processes), rank), "ncclCommInitRank");
  // The ranks of equal colours make a communicator, in the order of their places on its axis.
  const auto split = [&](int colour, const Group& place) {
    ncclComm_t communicator = nullptr;
    check(ncclCommSplit(world, colour, place.member(), &communicator, nullptr), "ncclCommSplit");
    return Group(std::make_shared<NcclTransport>(communicator, device, bug), place.size(),
                 place.member());
  };
  const int along_dp = processes.pp.member() * sizes.tp + processes.tp.member();
  const int along_tp = rank / sizes.tp;
  Mesh mesh = processes;
  mesh.tp = split(along_tp, processes.tp);
  mesh.dp = split(bug == Bug::wrong_group ? along_tp : along_dp, processes.dp);
  mesh.pp = split(rank % (sizes.dp * sizes.tp), processes.pp);
  mesh.world = Group(std::make_shared<NcclTransport>(world, device, bug), sizes.ranks(), rank);
  return mesh;
}

}  // namespace

int main(int argc, char** argv) { return trainer_main(argc, argv, connect, true); }
