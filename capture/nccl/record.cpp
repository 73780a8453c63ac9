// SPDX-License-Identifier: Apache-2.0
// See record.hpp.
#include "capture/nccl/record.hpp"

#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "capture/nccl/audit.hpp"
#include "capture/nccl/library.hpp"

namespace ttrace::nccl {
namespace {

constexpr const char* kFunctions[] = {"all_reduce", "reduce",     "broadcast", "reduce_scatter",
                                      "all_gather", "all_to_all", "gather",    "scatter",
                                      "send",       "recv"};
constexpr const char* kReductions[] = {"sum", "prod", "max", "min", "avg"};

const char* function_of(Kind kind) { return kFunctions[static_cast<std::size_t>(kind)]; }

const char* reduction_of(int op) {
  if (op < 0) return nullptr;
  return op < static_cast<int>(std::size(kReductions)) ? kReductions[op] : "premul_sum";
}

// Unsigned numbers are kept as the signed ones of their width.
int dtype_of(ncclDataType_t type) {
  switch (static_cast<int>(type)) {
    case ncclInt8:
      return TTRACE_INT8;
    case ncclUint8:
      return TTRACE_UINT8;
    case ncclInt32:
    case ncclUint32:
      return TTRACE_INT32;
    case ncclInt64:
    case ncclUint64:
      return TTRACE_INT64;
    case ncclFloat16:
      return TTRACE_FLOAT16;
    case ncclFloat32:
      return TTRACE_FLOAT32;
    case ncclFloat64:
      return TTRACE_FLOAT64;
    case ncclBfloat16:
      return TTRACE_BFLOAT16;
    case 10:  // ncclFloat8e4m3, which older headers do not have
      return TTRACE_FLOAT8_E4M3FN;
    case 11:
      return TTRACE_FLOAT8_E5M2;
    default:
      return -1;
  }
}

std::size_t width_of(int dtype) {
  switch (dtype) {
    case TTRACE_FLOAT64:
    case TTRACE_INT64:
      return 8;
    case TTRACE_FLOAT32:
    case TTRACE_INT32:
      return 4;
    case TTRACE_FLOAT16:
    case TTRACE_BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

// Elements that this member gives and gets.
struct Extent {
  std::uint64_t input, output;
};

Extent extent_of(const Call& call, int member, int size) {
  const std::uint64_t one = call.count, all = one * static_cast<std::uint64_t>(size);
  const bool root = call.peer == member;
  switch (call.kind) {
    case Kind::all_reduce:
      return {one, one};
    case Kind::reduce:
      return {one, root ? one : 0};
    case Kind::broadcast:
      return {root ? one : 0, one};
    case Kind::reduce_scatter:
      return {all, one};
    case Kind::all_gather:
      return {one, all};
    case Kind::all_to_all:
      return {all, all};
    case Kind::gather:
      return {one, root ? all : 0};
    case Kind::scatter:
      return {root ? all : 0, one};
    case Kind::send:
      return {one, 0};
    case Kind::receive:
      return {0, one};
  }
  return {0, 0};
}

// As NCCL defines it: what is sent lies where it will be received.
bool in_place(const Call& call, int member, std::size_t width) {
  const auto* send = static_cast<const char*>(call.send);
  const auto* receive = static_cast<const char*>(call.receive);
  const std::size_t own = static_cast<std::size_t>(member) * call.count * width;
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::broadcast:
    case Kind::all_to_all:
      return send == receive;
    case Kind::all_gather:
      return send == receive + own;
    case Kind::reduce_scatter:
      return receive == send + own;
    case Kind::gather:
      return call.peer == member && send == receive + own;
    case Kind::scatter:
      return call.peer == member && receive == send + own;
    default:
      return false;
  }
}

// Numbers a module's calls of a function within a micro-batch of an iteration.
std::uint32_t next_number(const Pending& pending) {
  using Place = std::tuple<std::int32_t, std::string, Kind>;
  static std::mutex mutex;
  static auto* const numbers = new std::map<Place, std::uint32_t>;
  static std::int64_t latest = -1;
  const std::lock_guard lock(mutex);
  if (pending.iteration != latest) numbers->clear();
  latest = pending.iteration;
  return (*numbers)[{pending.microbatch, pending.module, pending.call.kind}]++;
}

std::int64_t record_buffer(const Library& library, const Pending& pending, bool output,
                           const void* data, std::uint64_t count) {
  const std::string slot =
      std::string(function_of(pending.call.kind)) + (output ? ".output" : ".input");
  const std::string module = pending.module.empty() ? "@root" : pending.module;
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.phase = TTRACE_COMM;
  tensor.dtype = static_cast<std::uint8_t>(dtype_of(pending.call.type));
  tensor.kind = static_cast<std::uint8_t>(pending.wanted == 2 ? TTRACE_HASH : TTRACE_FULL);
  tensor.ndim = 1;
  tensor.microbatch = pending.microbatch;
  tensor.call = pending.number;
  tensor.module = module.c_str();
  tensor.slot = slot.c_str();
  tensor.shape = &count;
  tensor.data = data;
  tensor.alias_of = -1;
  tensor.device = TTRACE_ANYWHERE;
  // Named, so that memory of the host follows it, too.
  tensor.stream = pending.call.stream != nullptr ? pending.call.stream : cudaStreamLegacy;
  return library.record(&tensor);
}

void tell(const Library& library, const Pending& pending, std::uint32_t flags,
          std::int64_t output) {
  const Call& call = pending.call;
  const Communicator& communicator = *pending.communicator;
  ttrace_collective row{};
  row.struct_size = sizeof row;
  row.flags = pending.flags | flags;
  row.function = function_of(call.kind);
  row.reduction = reduction_of(call.op);
  row.group = communicator.group.c_str();
  row.module = pending.module.c_str();
  row.sequence = pending.sequence;
  row.count = call.count;
  row.factor = pending.factor;
  row.member = communicator.member;
  row.size = communicator.size;
  row.peer = call.peer >= 0 && call.peer < communicator.size ? call.peer : -1;
  row.microbatch = pending.microbatch;
  row.dtype = static_cast<std::uint8_t>(dtype_of(call.type));
  row.input = pending.input;
  row.output = output;
  row.position = pending.input >= 0 ? pending.input : -1;
  library.record_collective(&row);
}

}  // namespace

Pending begin(const Call& call) {
  Pending pending{call, find(call.comm), 0, -1, 0, -1, 0, -1, 0, 1, {}};
  if (pending.communicator != nullptr) pending.sequence = pending.communicator->calls++;
  const Library* library = nccl::library();
  if (library == nullptr) return pending;
  pending.wanted = library->wanted();
  if (pending.wanted == 0) return pending;
  const std::int64_t iteration = library->iteration();
  if (iteration < 0) return pending;
  audit(*library);
  if (pending.communicator == nullptr) return pending;
  Communicator& communicator = *pending.communicator;
  const int dtype = dtype_of(call.type);
  if (dtype < 0 || !know(call.comm, communicator)) return pending;
  pending.iteration = iteration;
  pending.microbatch = library->microbatch();
  pending.module = library->scope();
  pending.number = next_number(pending);
  if (in_place(call, communicator.member, width_of(dtype))) pending.flags |= TTRACE_IN_PLACE;
  if (reduction_of(call.op) != nullptr && call.op >= static_cast<int>(std::size(kReductions))) {
    const std::lock_guard lock(communicator.mutex);
    const auto found = communicator.factors.find(call.op);
    pending.factor = found == communicator.factors.end() ? std::numeric_limits<double>::quiet_NaN()
                                                         : found->second;
  }
  const Extent extent = extent_of(call, communicator.member, communicator.size);
  const bool given =
      call.kind != Kind::receive && (extent.input > 0 || call.count == 0) && call.send != nullptr;
  if (pending.wanted >= 2 && given) {
    pending.input = record_buffer(*library, pending, false, call.send, extent.input);
  }
  return pending;
}

void announce(const Pending& pending) {
  const Library* library = nccl::library();
  if (pending.iteration < 0 || library == nullptr) return;
  tell(*library, pending, TTRACE_BEGUN, -1);
}

void complete(const Pending& pending, bool failed) {
  const Library* library = nccl::library();
  if (pending.iteration < 0 || library == nullptr) return;
  if (library->iteration() != pending.iteration) {
    library->note("collectives", pending.communicator->group.c_str(),
                  "NCCL enqueued a call only after its iteration had ended: it is not recorded");
    return;
  }
  const Call& call = pending.call;
  const Communicator& communicator = *pending.communicator;
  const Extent extent = extent_of(call, communicator.member, communicator.size);
  std::int64_t output = -1;
  if (pending.wanted >= 2 && !failed && extent.output > 0 && call.receive != nullptr) {
    output = record_buffer(*library, pending, true, call.receive, extent.output);
  }
  tell(*library, pending, failed ? std::uint32_t{TTRACE_FAILED} : 0u, output);
}

void note_unseen(const char* function, const char* why) {
  const Library* library = nccl::library();
  if (library == nullptr || library->iteration() < 0) return;
  static std::mutex mutex;
  static auto* const noted = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (noted->insert(function).second) library->note("collectives", function, why);
}

}  // namespace ttrace::nccl
