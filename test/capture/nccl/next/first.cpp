// SPDX-License-Identifier: Apache-2.0
// Defines which_library, too, and asks for the one behind itself.
#include <dlfcn.h>

extern "C" {
int which_library() { return 1; }
int library_behind_the_first() {
  return reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, "which_library"))();
}
}
