// SPDX-License-Identifier: Apache-2.0
// See fake_device.hpp.
#include "test/capture/device/fake_device.hpp"

#include <cstdlib>
#include <cstring>
#include <set>

#include "test/capture/device/fake_stream.hpp"

namespace fake_device {
namespace {

// Without a destructor: the end of the process comes here, too.
thread_local int contexts[8];
thread_local int depth = 0;

struct World {
  std::mutex mutex;  // of what follows
  struct Block {
    std::size_t bytes;
    int context;
    bool pinned;
  };
  std::map<std::uintptr_t, Block> memory;
  std::map<int, Stream*> defaults;
  std::set<const void*> failing;
  std::set<int> broken;
  std::map<void*, std::size_t> pinned;
  std::size_t largest = ~std::size_t{0};
  bool pinning = true;
  std::atomic<std::uint64_t> copies{0}, waits{0}, events{0}, streams{0};
};

World& world() {
  static auto* const only = new World;  // streams outlive main
  return *only;
}

constexpr int kOutOfMemory = 2;
constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr int kIllegalAddress = 700;
constexpr int kBroken = 719;

int current() { return depth == 0 ? 0 : contexts[depth - 1]; }
void* handle_of(int context) { return reinterpret_cast<void*>(std::uintptr_t(context)); }
int context_behind(void* handle) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle));
}
Stream* stream_of(void* handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) > 2) return static_cast<Stream*>(handle);
  const std::lock_guard lock(world().mutex);
  Stream*& stream = world().defaults[current()];
  if (stream == nullptr) stream = new Stream(current());
  return stream;
}
Event* event_of(void* handle) { return static_cast<Event*>(handle); }

// ---- the table ----

int context_of(void* stream, const void* data, void** context) {
  *context = handle_of(stream != nullptr ? stream_of(stream)->context() : context_of_memory(data));
  return *context == nullptr ? kInvalidContext : 0;
}
int enter(void* context, int* mode) {
  contexts[depth++] = context_behind(context);
  *mode = 7;
  return 0;
}
void leave(int mode) {
  if (mode != 7) std::abort();
  --depth;
}
int memory_kind(const void* data, ttrace::MemoryKind* kind) {
  *kind = context_of_memory(data) == 0 ? ttrace::kUnknownMemory
          : is_pinned(data)            ? ttrace::kPinnedMemory
                                       : ttrace::kDeviceMemory;
  return 0;
}
int capturing(void* stream, int* yes) {
  *yes = stream_of(stream)->capturing ? 1 : 0;
  return 0;
}
int table_allocate(std::size_t bytes, void** memory) {
  if (current() == 0) return kInvalidContext;
  {
    const std::lock_guard lock(world().mutex);
    if (bytes > world().largest) return kOutOfMemory;
  }
  *memory = allocate(bytes);
  return 0;
}
int table_release(void* memory) {
  release(memory);
  return 0;
}
int pin(void* host, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  if (!world().pinning) return kOutOfMemory;
  world().pinned[host] = bytes;
  return 0;
}
int unpin(void* host) {
  const std::lock_guard lock(world().mutex);
  return world().pinned.erase(host) == 1 ? 0 : kInvalidHandle;
}
int create_stream(void** stream) {
  if (current() == 0) return kInvalidContext;
  ++world().streams;
  *stream = new Stream(current());
  return 0;
}
int destroy_stream(void* stream) {
  --world().streams;
  delete stream_of(stream);
  return 0;
}
int create_event(void** event) {
  if (current() == 0) return kInvalidContext;
  ++world().events;
  *event = new Event(current());
  return 0;
}
int destroy_event(void* event) {
  --world().events;
  delete event_of(event);
  return 0;
}
int record_event(void* event, void* stream) {
  if (event_of(event)->context() != stream_of(stream)->context()) return kInvalidHandle;
  auto moment = std::make_shared<Moment>();
  event_of(event)->set(moment);
  stream_of(stream)->enqueue([moment] { moment->reach(); });
  return 0;
}
int wait_event(void* stream, void* event) {
  ++world().waits;
  stream_of(stream)->enqueue([moment = event_of(event)->latest()] { moment->wait(); });
  return 0;
}
int event_done(void* event, int* yes) {
  *yes = 0;
  if (current() == 0) return kInvalidContext;
  {
    const std::lock_guard lock(world().mutex);
    if (world().broken.count(event_of(event)->context()) != 0) return kBroken;
  }
  *yes = event_of(event)->latest()->reached() ? 1 : 0;
  return 0;
}
int copy(void* to, const void* from, std::size_t bytes, void* stream) {
  if (current() == 0) return kInvalidContext;
  {
    const std::lock_guard lock(world().mutex);
    if (world().failing.count(from) != 0) return kIllegalAddress;
  }
  ++world().copies;
  stream_of(stream)->enqueue([to, from, bytes] { std::memcpy(to, from, bytes); });
  return 0;
}
const char* explain(int) { return "says the fake device"; }

constexpr ttrace::DeviceOps kTable{sizeof(ttrace::DeviceOps),
                                   context_of,
                                   enter,
                                   leave,
                                   memory_kind,
                                   capturing,
                                   table_allocate,
                                   table_release,
                                   pin,
                                   unpin,
                                   create_stream,
                                   destroy_stream,
                                   create_event,
                                   destroy_event,
                                   record_event,
                                   wait_event,
                                   event_done,
                                   copy,
                                   explain};

}  // namespace

// ---- what a program does ----

void use_context(int context) {
  contexts[0] = context;
  depth = 1;
}

void* make_stream() { return new Stream(current()); }

void launch(void* stream, std::function<void()> kernel) {
  stream_of(stream)->enqueue(std::move(kernel));
}

void synchronize(void* stream) {
  const auto moment = std::make_shared<Moment>();
  stream_of(stream)->enqueue([moment] { moment->reach(); });
  moment->wait();
}

static void* allocate(std::size_t bytes, bool pinned) {
  void* memory = std::malloc(bytes);
  std::memset(memory, 0xcd, bytes);
  const std::lock_guard lock(world().mutex);
  world().memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, current(), pinned};
  return memory;
}
void* allocate(std::size_t bytes) { return allocate(bytes, false); }
void* allocate_pinned(std::size_t bytes) { return allocate(bytes, true); }

void release(void* memory) {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(world().mutex);
    const auto found = world().memory.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == world().memory.end()) std::abort();
    bytes = found->second.bytes;
    world().failing.erase(memory);
    world().memory.erase(found);
  }
  std::memset(memory, 0xdd, bytes);
  std::free(memory);
}

// ---- what a test arranges ----

void set_pause(unsigned microseconds) { Stream::longest_pause = microseconds; }
void hold(void* stream) { stream_of(stream)->hold(true); }
void let_go(void* stream) { stream_of(stream)->hold(false); }
void set_capturing(void* stream, bool yes) { stream_of(stream)->capturing = yes; }

void set_largest_allocation(std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  world().largest = bytes;
}
void fail_copy_from(const void* memory) {
  const std::lock_guard lock(world().mutex);
  world().failing.insert(memory);
}
void break_context(int context) {
  const std::lock_guard lock(world().mutex);
  world().broken.insert(context);
}
void forbid_pinning() {
  const std::lock_guard lock(world().mutex);
  world().pinning = false;
}

int current_context() { return current(); }

static World::Block block_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(world().mutex);
  auto after = world().memory.upper_bound(address);
  if (after == world().memory.begin()) return {};
  --after;
  return address - after->first < after->second.bytes ? after->second : World::Block{};
}
int context_of_memory(const void* memory) { return block_of(memory).context; }
bool is_pinned(const void* memory) { return block_of(memory).pinned; }

Counts counts() {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  Counts result{all.copies, all.waits, all.events, 0, 0, all.streams};
  for (const auto& [address, block] : all.memory) result.allocated_bytes += block.bytes;
  for (const auto& [host, bytes] : all.pinned) result.pinned_bytes += bytes;
  return result;
}

}  // namespace fake_device

extern "C" FAKE_DEVICE_EXPORT const ttrace::DeviceOps* ttrace_device_ops() {
  return &fake_device::kTable;
}
