// SPDX-License-Identifier: Apache-2.0
// The table of the CUDA driver. Its library is opened at run time and nothing is initialised here:
// who has a tensor on a device has done that. Not the runtime (libcudart): a process may hold
// several of those, each with its own static state, but there is one driver.
#include "capture/device_cuda.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <mutex>

#include "capture/device_ops.hpp"

namespace ttrace {
namespace {

using namespace cuda;

Driver driver{};  // filled once, before any table is given out

template <class Function>
bool find(void* library, const char* name, Function& function, std::string& why) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && why.empty()) why = std::string("libcuda.so.1 has no ") + name;
  return function != nullptr;
}

// The names of CUDA 12 and 13: the "_v2" functions are those that cuda.h has meant since CUDA 4.
bool fill(void* library, std::string& why) {
  const auto get = [&](const char* name, auto& function) {
    return find(library, name, function, why);
  };
  return get("cuPointerGetAttribute", driver.pointer_attribute) &&
         get("cuStreamGetCtx", driver.stream_context) &&
         get("cuCtxGetCurrent", driver.current_context) &&
         get("cuCtxGetDevice", driver.current_device) &&
         get("cuDevicePrimaryCtxRetain", driver.retain_primary) &&
         get("cuCtxPushCurrent_v2", driver.push_context) &&
         get("cuCtxPopCurrent_v2", driver.pop_context) &&
         get("cuThreadExchangeStreamCaptureMode", driver.exchange_capture_mode) &&
         get("cuStreamIsCapturing", driver.is_capturing) && get("cuMemAlloc_v2", driver.allocate) &&
         get("cuMemFree_v2", driver.release) && get("cuMemHostRegister_v2", driver.pin) &&
         get("cuMemHostUnregister", driver.unpin) && get("cuStreamCreate", driver.create_stream) &&
         get("cuStreamDestroy_v2", driver.destroy_stream) &&
         get("cuEventCreate", driver.create_event) &&
         get("cuEventDestroy_v2", driver.destroy_event) &&
         get("cuEventRecord", driver.record_event) && get("cuStreamWaitEvent", driver.wait_event) &&
         get("cuEventQuery", driver.query_event) && get("cuMemcpyAsync", driver.copy) &&
         get("cuGetErrorString", driver.error_string);
}

Address address_of(const void* pointer) {
  return static_cast<Address>(reinterpret_cast<std::uintptr_t>(pointer));
}

// 0: the driver does not know this memory.
unsigned memory_type(Address address) {
  unsigned type = 0;
  return driver.pointer_attribute(&type, kAttributeMemoryType, address) == 0 ? type : 0;
}

// Of a default stream: that of the device on which the data lie, in the thread's own context if it
// is of that device, as the runtime would take it. Memory of pools belongs to no context, that of
// the host to every device.
int default_context(const void* data, void** context) {
  int wanted = -1;
  int current = -1;
  const Address address = address_of(data);
  const bool known = driver.pointer_attribute(&wanted, kAttributeDevice, address) == 0;
  if (driver.current_context(context) == 0 && *context != nullptr &&
      (!known || memory_type(address) == kTypeHost ||
       (driver.current_device(&current) == 0 && current == wanted))) {
    return 0;
  }
  if (!known) return kInvalidContext;
  const Result error = driver.pointer_attribute(context, kAttributeContext, address);
  if (error == 0 && *context != nullptr) return 0;
  // Never released: the program that allocated on the device holds it for as long as it runs.
  return driver.retain_primary(context, wanted);
}

int context_of(void* stream, const void* data, void** context) {
  *context = nullptr;
  if (reinterpret_cast<std::uintptr_t>(stream) > kSpecialStreams)
    return driver.stream_context(stream, context);
  return default_context(data, context);
}

int enter(void* context, int* mode) {
  if (const Result error = driver.push_context(context); error != 0) return error;
  *mode = kCaptureRelaxed;
  driver.exchange_capture_mode(mode);
  return 0;
}

void leave(int mode) {
  driver.exchange_capture_mode(&mode);
  void* context = nullptr;
  driver.pop_context(&context);
}

int memory_kind(const void* data, MemoryKind* kind) {
  unsigned managed = 0;
  const Address address = address_of(data);
  const unsigned type = memory_type(address);
  if (type != 0) driver.pointer_attribute(&managed, kAttributeManaged, address);
  *kind = type == kTypeDevice || (managed & 1U) != 0 ? kDeviceMemory
          : type == kTypeHost                        ? kPinnedMemory
                                                     : kUnknownMemory;
  return 0;
}

int capturing(void* stream, int* yes) {
  int status = 0;
  const Result error = driver.is_capturing(stream, &status);
  *yes = status != 0 || error == kCaptureImplicit ? 1 : 0;
  return error == kCaptureImplicit ? 0 : error;
}

int allocate(std::size_t bytes, void** memory) {
  Address address = 0;
  const Result error = driver.allocate(&address, bytes);
  *memory = error == 0 ? reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)) : nullptr;
  return error;
}

int release(void* memory) { return driver.release(address_of(memory)); }
int pin(void* host, std::size_t bytes) { return driver.pin(host, bytes, kPortable); }
int unpin(void* host) { return driver.unpin(host); }
int create_stream(void** stream) { return driver.create_stream(stream, kNonBlockingStream); }
int destroy_stream(void* stream) { return driver.destroy_stream(stream); }
int create_event(void** event) { return driver.create_event(event, kUntimedEvent); }
int destroy_event(void* event) { return driver.destroy_event(event); }
int record_event(void* event, void* stream) { return driver.record_event(event, stream); }
int wait_event(void* stream, void* event) { return driver.wait_event(stream, event, 0); }

int event_done(void* event, int* yes) {
  const Result error = driver.query_event(event);
  *yes = error == 0 ? 1 : 0;
  return error == kNotReady ? 0 : error;
}

int copy(void* to, const void* from, std::size_t bytes, void* stream) {
  return driver.copy(address_of(to), address_of(from), bytes, stream);
}

const char* explain(int error) {
  const char* text = nullptr;
  return driver.error_string(error, &text) == 0 && text != nullptr ? text : "unknown error";
}

constexpr DeviceOps kTable{
    sizeof(DeviceOps), context_of,     enter,        leave,         memory_kind,
    capturing,         allocate,       release,      pin,           unpin,
    create_stream,     destroy_stream, create_event, destroy_event, record_event,
    wait_event,        event_done,     copy,         explain};

// How many libraries this process has loaded so far; asking the loader for one by name takes far
// longer.
unsigned long long libraries_loaded() {
  unsigned long long loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = object->dlpi_adds;
        return 1;  // the first one tells
      },
      &loaded);
  return loaded;
}

}  // namespace

const DeviceOps* cuda_device_ops(bool load, std::string& why) {
  static std::mutex mutex;
  static bool filled = false;
  static unsigned long long looked_at = 0;
  const std::lock_guard lock(mutex);
  if (filled) return &kTable;
  const unsigned long long loaded = libraries_loaded();
  if (!load && loaded == looked_at) return nullptr;  // no driver then, none now
  looked_at = loaded;
  const int mode = RTLD_NOW | RTLD_LOCAL;
  void* library = dlopen("libcuda.so.1", mode | RTLD_NOLOAD);
  if (library == nullptr && load) library = dlopen("libcuda.so.1", mode);
  if (library == nullptr) {
    why = "no CUDA driver here: libcuda.so.1 cannot be loaded";
    return nullptr;
  }
  filled = fill(library, why);
  return filled ? &kTable : nullptr;
}

}  // namespace ttrace
