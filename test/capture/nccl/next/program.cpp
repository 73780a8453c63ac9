// SPDX-License-Identifier: Apache-2.0
// Prints what RTLD_NEXT finds for a library, and RTLD_DEFAULT for the program: "2 1".
#include <dlfcn.h>

#include <cstdio>

extern "C" int library_behind_the_first();
extern "C" int last_library();

int main() {
  const auto first = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "which_library"));
  std::printf("%d %d\n", library_behind_the_first(), first());
  return last_library() == 2 ? 0 : 1;
}
