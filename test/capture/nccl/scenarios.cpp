// SPDX-License-Identifier: Apache-2.0
// Programs on NCCL, one a scenario, of any number of ranks: what the calls compute, each result
// checked against its closed form. They are the fake library's own test, and what the recorder is
// tried on.
#include "test/capture/nccl/inputs.hpp"

namespace {

using namespace rig;

void every_collective() {
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  const int last = rig::world() - 1;
  Buffer<float> send(kCount, own()), wide(kCount * n(), own());
  Buffer<float> all_reduce(kCount), reduce(kCount), broadcast(kCount), scattered(kCount);
  Buffer<float> gather(kCount * n()), to_all(kCount * n()), at_root(kCount * n()), part(kCount);
  NCCL(ncclAllReduce(send.data(), all_reduce.data(), kCount, ncclFloat32, ncclSum, comm, s.handle));
  NCCL(ncclReduce(send.data(), reduce.data(), kCount, ncclFloat32, ncclMax, last, comm, s.handle));
  NCCL(ncclBroadcast(send.data(), broadcast.data(), kCount, ncclFloat32, last, comm, s.handle));
  NCCL(ncclReduceScatter(wide.data(), scattered.data(), kCount, ncclFloat32, ncclSum, comm,
                         s.handle));
  NCCL(ncclAllGather(send.data(), gather.data(), kCount, ncclFloat32, comm, s.handle));
  NCCL(ncclAlltoAll(wide.data(), to_all.data(), kCount, ncclFloat32, comm, s.handle));
  NCCL(ncclGather(send.data(), at_root.data(), kCount, ncclFloat32, last, comm, s.handle));
  NCCL(ncclScatter(wide.data(), part.data(), kCount, ncclFloat32, 0, comm, s.handle));
  s.wait();
  all_reduce.check("all-reduce", total);
  broadcast.check("broadcast", [&](std::size_t i) { return input(last, i); });
  scattered.check("reduce-scatter", [](std::size_t i) { return total(me() * kCount + i); });
  gather.check("all-gather", gathered);
  to_all.check("all-to-all", [](std::size_t i) {
    return input(static_cast<int>(i / kCount), me() * kCount + i % kCount);
  });
  part.check("scatter", [](std::size_t i) { return input(0, me() * kCount + i); });
  if (rig::rank() == last) {
    reduce.check("reduce", [&](std::size_t i) { return input(last, i); });
    at_root.check("gather", gathered);
  }
  NCCL(ncclCommDestroy(comm));
}

void in_place() {
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  Buffer<float> all_reduce(kCount, own()), gather(kCount * n(), own()), wide(kCount * n(), own());
  Buffer<float> bcast(kCount, own());
  gather.fill([](std::size_t i) { return i / kCount == me() ? gathered(i) : -1.0; });
  NCCL(ncclAllReduce(all_reduce.data(), all_reduce.data(), kCount, ncclFloat32, ncclSum, comm,
                     s.handle));
  NCCL(ncclAllGather(gather.data() + me() * kCount, gather.data(), kCount, ncclFloat32, comm,
                     s.handle));
  NCCL(ncclReduceScatter(wide.data(), wide.data() + me() * kCount, kCount, ncclFloat32, ncclSum,
                         comm, s.handle));
  NCCL(ncclBcast(bcast.data(), kCount, ncclFloat32, 0, comm, s.handle));
  s.wait();
  all_reduce.check("all-reduce in place", total);
  gather.check("all-gather in place", gathered);
  wide.check("reduce-scatter in place",
             [](std::size_t i) { return i / kCount == me() ? total(i) : input(rig::rank(), i); });
  bcast.check("bcast", [](std::size_t i) { return input(0, i); });
  NCCL(ncclCommDestroy(comm));
}

// Half the buffers are larger than the fake's pieces.
template <class T>
void reduce_as(ncclComm_t comm, ncclDataType_t type, const char* what, std::size_t count) {
  Stream s;
  const auto small = [](int r, std::size_t i) { return 1.0 + r + static_cast<double>(i % 3); };
  Buffer<T> send(count, [&](std::size_t i) { return small(rig::rank(), i); });
  Buffer<T> sum(count), product(count), least(count), mean(count);
  NCCL(ncclAllReduce(send.data(), sum.data(), count, type, ncclSum, comm, s.handle));
  NCCL(ncclAllReduce(send.data(), product.data(), count, type, ncclProd, comm, s.handle));
  NCCL(ncclAllReduce(send.data(), least.data(), count, type, ncclMin, comm, s.handle));
  NCCL(ncclAllReduce(send.data(), mean.data(), count, type, ncclAvg, comm, s.handle));
  s.wait();
  const auto fold = [&](std::size_t i, double start, auto&& op) {
    for (int r = 0; r < rig::world(); ++r) start = op(start, small(r, i));
    return start;
  };
  const auto plus = [](double a, double b) { return a + b; };
  const bool whole = type == ncclInt8 || type == ncclInt64;
  sum.check(what, [&](std::size_t i) { return fold(i, 0, plus); });
  product.check(
      what, [&](std::size_t i) { return fold(i, 1, [](double a, double b) { return a * b; }); });
  least.check(what, [&](std::size_t i) { return small(0, i); });
  mean.check(what, [&](std::size_t i) {
    const double exact = fold(i, 0, plus) / rig::world();
    return whole ? static_cast<double>(static_cast<long>(exact)) : exact;
  });
}

void types() {
  const ncclComm_t comm = rig::world_comm();
  reduce_as<float>(comm, ncclFloat32, "float32", 700'001);
  reduce_as<double>(comm, ncclFloat64, "float64", 5);
  reduce_as<__half>(comm, ncclFloat16, "float16", 5);
  reduce_as<__nv_bfloat16>(comm, ncclBfloat16, "bfloat16", 5);
  reduce_as<std::int64_t>(comm, ncclInt64, "int64", 5);
  reduce_as<std::int8_t>(comm, ncclInt8, "int8", 5);
  NCCL(ncclCommDestroy(comm));
}

void grouped() {
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  const int next = (rig::rank() + 1) % rig::world();
  const int before = (rig::rank() + rig::world() - 1) % rig::world();
  constexpr std::size_t kLong = 100'000;  // more than a channel holds: only together do they end
  Buffer<float> send(kLong, own()), received(kLong), sum(kCount), more(kCount);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(send.data(), kLong, ncclFloat32, next, comm, s.handle));
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(send.data(), sum.data(), kCount, ncclFloat32, ncclSum, comm, s.handle));
  NCCL(ncclAllReduce(send.data(), more.data(), kCount, ncclFloat32, ncclMax, comm, s.handle));
  NCCL(ncclGroupEnd());
  NCCL(ncclRecv(received.data(), kLong, ncclFloat32, before, comm, s.handle));
  NCCL(ncclGroupEnd());
  s.wait();
  received.check("received", [&](std::size_t i) { return input(before, i); });
  sum.check("sum in a group", total);
  more.check("max in a group", [](std::size_t i) { return input(rig::world() - 1, i); });
  NCCL(ncclCommDestroy(comm));
}

// Even and odd ranks apart, in reversed order; the last rank then stays out of a second split.
void split() {
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  const int last = rig::world() - 1;
  ncclComm_t half = nullptr, rest = nullptr, fewer = nullptr;
  NCCL(ncclCommSplit(comm, rig::rank() % 2, -rig::rank(), &half, nullptr));
  NCCL(ncclCommSplit(comm, rig::rank() == last ? NCCL_SPLIT_NOCOLOR : 0, 0, &rest, nullptr));
  rig::expect((rest == nullptr) == (rig::rank() == last), "no colour makes no communicator");
  int size = 0, member = 0;
  NCCL(ncclCommCount(half, &size));
  NCCL(ncclCommUserRank(half, &member));
  rig::expect(size == (rig::world() + 1 - rig::rank() % 2) / 2, "size of a half");
  rig::expect(member == size - 1 - rig::rank() / 2, "reversed by the key");
  Buffer<float> send(kCount, own()), sum(kCount);
  NCCL(ncclAllReduce(send.data(), sum.data(), kCount, ncclFloat32, ncclSum, half, s.handle));
  s.wait();
  sum.check("sum of a half", [](std::size_t i) {
    double expected = 0;
    for (int r = rig::rank() % 2; r < rig::world(); r += 2) expected += input(r, i);
    return expected;
  });
  if (rest != nullptr && rig::world() > 2) {
    int out = 0;  // member 0 leaves
    if (rig::rank() != 0) NCCL(ncclCommShrink(rest, &out, 1, &fewer, nullptr, NCCL_SHRINK_DEFAULT));
  }
  if (fewer != nullptr) {
    NCCL(ncclCommCount(fewer, &size));
    rig::expect(size == rig::world() - 2, "size after the shrink");
    NCCL(ncclAllReduce(send.data(), sum.data(), kCount, ncclFloat32, ncclSum, fewer, s.handle));
    s.wait();
    sum.check("sum of the inner ranks",
              [](std::size_t i) { return total(i) - input(0, i) - input(rig::world() - 1, i); });
    NCCL(ncclCommDestroy(fewer));
  }
  if (rest != nullptr) NCCL(ncclCommDestroy(rest));
  NCCL(ncclCommDestroy(half));
  NCCL(ncclCommDestroy(comm));
}

// All ranks but the last, which then joins.
void grow() {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
  const int last = rig::world() - 1;
  const bool joins = rig::rank() == last;
  ncclComm_t few = nullptr, all = nullptr;
  ncclUniqueId id;
  if (!joins) {
    NCCL(ncclCommInitRank(&few, last, rig::shared_id("few"), rig::rank()));
    if (rig::rank() == 0) NCCL(ncclCommGetUniqueId(few, &id));
  }
  if (joins || rig::rank() == 0) id = rig::passed_id("grown", id);
  const bool has_id = joins || rig::rank() == 0;
  NCCL(ncclCommGrow(few, rig::world(), has_id ? &id : nullptr, joins ? last : -1, &all, nullptr));
  Stream s;
  Buffer<float> send(kCount, own()), sum(kCount);
  NCCL(ncclAllReduce(send.data(), sum.data(), kCount, ncclFloat32, ncclSum, all, s.handle));
  s.wait();
  sum.check("sum after growing", total);
  NCCL(ncclCommDestroy(all));
  if (few != nullptr) NCCL(ncclCommDestroy(few));
#endif
}

void settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    NCCL(ncclCommGetAsyncError(comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  NCCL(state);
}

void non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr, child = nullptr;
  const ncclUniqueId id = rig::shared_id("world");
  rig::expect(
      ncclCommInitRankConfig(&comm, rig::world(), id, rig::rank(), &config) == ncclInProgress,
      "init does not block");
  int size = 0;
  rig::expect(ncclCommCount(comm, &size) == ncclInvalidArgument, "not ready yet");
  settle(comm);
  rig::expect(ncclCommSplit(comm, 0, 0, &child, nullptr) == ncclInProgress, "nor does split");
  settle(child);
  Stream s;
  Buffer<float> send(kCount, own()), sum(kCount), gather(kCount * n());
  rig::expect(ncclAllReduce(send.data(), sum.data(), kCount, ncclFloat32, ncclSum, child,
                            s.handle) == ncclInProgress,
              "nor does a call");
  settle(child);
  NCCL(ncclGroupStart());
  NCCL(ncclAllGather(send.data(), gather.data(), kCount, ncclFloat32, comm, s.handle));
  rig::expect(ncclGroupEnd() == ncclInProgress, "nor does a group");
  settle(comm);
  s.wait();
  sum.check("sum", total);
  gather.check("all-gather", gathered);
  NCCL(ncclCommDestroy(child));
  NCCL(ncclCommDestroy(comm));
}

// One call that nobody asks about before the end, one that is given up.
void left_waiting() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  Stream s;
  Buffer<float> data(kCount, own());
  for (const bool aborts : {false, true}) {
    ncclComm_t comm = nullptr;
    const ncclUniqueId id = rig::shared_id(aborts ? "aborted" : "destroyed");
    ncclCommInitRankConfig(&comm, rig::world(), id, rig::rank(), &config);
    settle(comm);
    ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, s.handle);
    NCCL(aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm));
  }
}

void scaled() {
  const ncclComm_t comm = rig::world_comm();
  Stream s;
  float half = 0.5f;
  Buffer<float> factor(1, [](std::size_t) { return 3; });
  ncclRedOp_t now, later;
  NCCL(ncclRedOpCreatePreMulSum(&now, &half, ncclFloat32, ncclScalarHostImmediate, comm));
  NCCL(ncclRedOpCreatePreMulSum(&later, factor.data(), ncclFloat32, ncclScalarDevice, comm));
  half = 77;
  Buffer<float> send(kCount, own()), halves(kCount), triples(kCount);
  NCCL(ncclAllReduce(send.data(), halves.data(), kCount, ncclFloat32, now, comm, s.handle));
  NCCL(ncclAllReduce(send.data(), triples.data(), kCount, ncclFloat32, later, comm, s.handle));
  s.wait();
  halves.check("half of each", [](std::size_t i) { return total(i) / 2; });
  triples.check("three times each", [](std::size_t i) { return total(i) * 3; });
  NCCL(ncclRedOpDestroy(now, comm));
  NCCL(ncclRedOpDestroy(later, comm));
  NCCL(ncclCommDestroy(comm));
}

}  // namespace

std::vector<rig::Scenario> rig::data_scenarios() {
  return {{"every_collective", every_collective},
          {"in_place", in_place},
          {"types", types},
          {"grouped", grouped},
          {"split", split},
          {"grow", grow},
          {"non_blocking", non_blocking},
          {"left_waiting", left_waiting},
          {"scaled", scaled}};
}
