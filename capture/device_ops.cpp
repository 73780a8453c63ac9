// SPDX-License-Identifier: Apache-2.0
// See device_ops.hpp: which table.
#include "capture/device_ops.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace ttrace {
namespace {

const DeviceOps* ops_of_library(const char* path, std::string& why) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* make =
      library == nullptr
          ? nullptr
          : reinterpret_cast<decltype(&ttrace_device_ops)>(dlsym(library, "ttrace_device_ops"));
  const DeviceOps* ops = make == nullptr ? nullptr : make();
  if (ops != nullptr && ops->struct_size == sizeof(DeviceOps)) return ops;
  const char* error = make == nullptr ? dlerror() : "its table is of another version";
  why = std::string("TTRACE_DEVICE_OPS=") + path + ": " + (error != nullptr ? error : "no table");
  return nullptr;
}

}  // namespace

const DeviceOps* device_ops(bool load, std::string& why) {
  const char* path = std::getenv("TTRACE_DEVICE_OPS");
  return path != nullptr && *path != '\0' ? ops_of_library(path, why) : cuda_device_ops(load, why);
}

}  // namespace ttrace
