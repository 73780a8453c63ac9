// SPDX-License-Identifier: Apache-2.0
// More programs on NCCL: what is around the calls. See scenarios.cpp.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "test/capture/nccl/inputs.hpp"

namespace {

using namespace rig;

// Errors come back as they are, and errno is left alone.
void errors() {
  const ncclComm_t comm = rig::world_comm();
  Buffer<float> data(kCount, own());
  errno = 77;
  NCCL(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, nullptr));
  rig::expect(errno == 77, "errno has changed");
  rig::expect(ncclBroadcast(data.data(), data.data(), kCount, ncclFloat32, 99, comm, nullptr) ==
                  ncclInvalidArgument,
              "root 99");
  rig::expect(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, nullptr,
                            nullptr) == ncclInvalidArgument,
              "no communicator");
  rig::expect(ncclGroupEnd() == ncclInvalidUsage, "no group to end");
  ncclComm_t none = nullptr;
  rig::expect(ncclCommInitRank(&none, 0, ncclUniqueId{}, 0) == ncclInvalidArgument, "size 0");
  NCCL(ncclCommDestroy(comm));
}

// Rank 1 never comes to the second sum, for which rank 0 waits.
void hangs() {
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  Buffer<float> data(kCount, own());
  for (int i = 0; i < 2; ++i) {
    while (i == 1 && rig::rank() == 1) pause();
    NCCL(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, s.handle));
    s.wait();
  }
}

// With FAKE_CUDA_LAZY: who does not wait does not see the result, each time.
void missing_wait() {
  const ncclComm_t comm = rig::world_comm();
  Stream s, other;
  Buffer<float> send(kCount, own()), sum(kCount, own()), copy(kCount), late(kCount);
  cudaEvent_t event;
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  NCCL(ncclAllReduce(send.data(), sum.data(), kCount, ncclFloat32, ncclSum, comm, s.handle));
  CUDA(cudaEventRecord(event, s.handle));
  const auto copy_to = [&](Buffer<float>& to) {
    CUDA(cudaMemcpyAsync(to.data(), sum.data(), kCount * sizeof(float), cudaMemcpyDeviceToDevice,
                         other.handle));
    other.wait();
  };
  copy_to(copy);
  CUDA(cudaStreamWaitEvent(other.handle, event, 0));
  copy_to(late);
  copy.check("copied too early", own());
  late.check("copied after the event", total);
  NCCL(ncclCommDestroy(comm));
}

// Memory of the host that the stream fills, and a call on it right behind; also on the default
// stream.
void host_memory() {
  const ncclComm_t comm = rig::world_comm();
  Stream own_stream;
  for (const bool managed : {false, true}) {
    for (const cudaStream_t stream : {own_stream.handle, cudaStream_t{nullptr}}) {
      Buffer<float> source(kCount, own());
      float* data = nullptr;
      const std::size_t bytes = kCount * sizeof(float);
      CUDA(managed ? cudaMallocManaged(reinterpret_cast<void**>(&data), bytes, 1)
                   : cudaHostAlloc(reinterpret_cast<void**>(&data), bytes, 0));
      CUDA(cudaMemcpyAsync(data, source.data(), bytes, cudaMemcpyDefault, stream));
      NCCL(ncclAllReduce(data, data, kCount, ncclFloat32, ncclSum, comm, stream));
      CUDA(cudaMemcpyAsync(source.data(), data, bytes, cudaMemcpyDefault, stream));
      CUDA(cudaMemsetAsync(data, 0, bytes, stream));
      CUDA(cudaStreamSynchronize(stream));
      source.check("sum in memory of the host", total);
      CUDA(managed ? cudaFree(data) : cudaFreeHost(data));
    }
  }
  NCCL(ncclCommDestroy(comm));
}

// A program with marks of its own: calls before the first iteration, in two scopes and two
// micro-batches, in a group over both, between the iterations.
void marks() {
  rig::expect(MARK(ttrace_iteration)() == -1, "nothing has been said yet");
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  Buffer<float> data(kCount, own());
  const auto reduce = [&] {
    NCCL(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclMax, comm, s.handle));
  };
  reduce();
  rig::expect(MARK(ttrace_open)(nullptr) == 0, "open");
  reduce();
  for (int iteration = 0; iteration < 2; ++iteration) {
    MARK(ttrace_begin_iteration)(iteration);
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      MARK(ttrace_begin_microbatch)(microbatch);
      MARK(ttrace_push_scope)("layers.0");
      reduce();
      MARK(ttrace_push_scope)("layers.0.attention");
      reduce();
      MARK(ttrace_pop_scope)();
      MARK(ttrace_pop_scope)();
    }
    NCCL(ncclGroupStart());
    MARK(ttrace_begin_microbatch)(0);
    reduce();
    MARK(ttrace_begin_microbatch)(1);
    reduce();
    NCCL(ncclGroupEnd());
    MARK(ttrace_end_iteration)();
    reduce();
  }
  s.wait();
  NCCL(ncclCommDestroy(comm));
}

// Not recorded: the call between the two, and the one of a group that ends later. Recorded: the
// one of a group that has begun before.
void pausing() {
  rig::expect(MARK(ttrace_open)(nullptr) == 0, "open");
  MARK(ttrace_begin_iteration)(0);
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  Buffer<float> data(kCount, own());
  const auto reduce = [&](ncclRedOp_t op) {
    NCCL(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, op, comm, s.handle));
  };
  reduce(ncclMax);
  NCCL(ncclGroupStart());
  reduce(ncclSum);
  MARK(ttrace_pause)(1);
  NCCL(ncclGroupEnd());
  reduce(ncclMax);
  NCCL(ncclGroupStart());
  reduce(ncclMax);
  MARK(ttrace_pause)(0);
  NCCL(ncclGroupEnd());
  reduce(ncclMin);
  s.wait();
  NCCL(ncclCommDestroy(comm));
}

// A child that goes on with NCCL, and after it its parent.
void forked() {
  NCCL(ncclGroupStart());
  NCCL(ncclGroupEnd());
  const pid_t child = fork();
  int status = 0;
  rig::expect(child == 0 || (waitpid(child, &status, 0) == child && status == 0), "in the child");
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclCommInitRank(&comm, 1, id, 0));
  Stream s;
  Buffer<float> data(kCount, own());
  for (int i = 0; i < (child == 0 ? 5 : 2); ++i) {
    NCCL(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, s.handle));
  }
  s.wait();
  if (child == 0) _exit(0);
}

// Against the real library without a device: what it says, on standard output.
void smoke() {
  int version = 0;
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  NCCL(ncclGetVersion(&version));
  const ncclResult_t made_id = ncclGetUniqueId(&id);
  const ncclResult_t made_comm = ncclCommInitRank(&comm, 1, id, 0);
  const ncclResult_t reduced =
      ncclAllReduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, nullptr, nullptr);
  std::printf("%d id %d comm %d reduce %d: %s\n", version, made_id, made_comm, reduced,
              ncclGetErrorString(made_comm));
}

}  // namespace

std::vector<rig::Scenario> rig::process_scenarios() {
  return {{"errors", errors},           {"hangs", hangs}, {"missing_wait", missing_wait},
          {"host_memory", host_memory}, {"marks", marks}, {"pausing", pausing},
          {"forked", forked},           {"smoke", smoke}};
}

int run_scenario(const char* name) {
  if (std::strcmp(name, "smoke") != 0) CUDA(cudaSetDevice(rig::rank()));
  for (const auto& scenarios :
       {rig::data_scenarios(), rig::process_scenarios(), rig::thread_scenarios()}) {
    for (const rig::Scenario& scenario : scenarios) {
      if (std::strcmp(scenario.name, name) != 0) continue;
      scenario.run();
      return 0;
    }
  }
  rig::fail(std::string("no scenario ") + name);
}
