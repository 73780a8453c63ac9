// SPDX-License-Identifier: Apache-2.0
// usage: nccl_hidden LIBRARY SCENARIO: the scenario's code, and NCCL with it, is loaded as Python
// loads extension modules, out of sight of the global search order.
#include <dlfcn.h>

#include <cstdio>

int main(int, char** words) {
  void* library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  return reinterpret_cast<int (*)(const char*)>(dlsym(library, "run_scenario"))(words[2]);
}
