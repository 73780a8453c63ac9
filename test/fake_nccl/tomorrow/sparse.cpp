// SPDX-License-Identifier: Apache-2.0
// A data call that no recorder of today knows.
extern "C" __attribute__((visibility("default"))) int ncclAllReduceSparse(const void*, void*) {
  return 0;
}
