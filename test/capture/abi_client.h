/* SPDX-License-Identifier: Apache-2.0 */
/* What the C programs of the tests share. */
#ifndef TTRACE_TEST_ABI_CLIENT_H
#define TTRACE_TEST_ABI_CLIENT_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "capture/ttrace.h"

static inline ttrace_tensor tensor(const char* module, uint8_t dtype, uint8_t ndim,
                                   const uint64_t* shape, const void* data) {
  ttrace_tensor t;
  memset(&t, 0, sizeof t);
  t.struct_size = sizeof t;
  t.phase = TTRACE_FORWARD;
  t.dtype = dtype;
  t.ndim = ndim;
  t.module = module;
  t.slot = "output.0";
  t.shape = shape;
  t.data = data;
  t.alias_of = -1;
  return t;
}

static inline int64_t record_bytes(const char* module, uint64_t count, const void* data) {
  ttrace_tensor t = tensor(module, TTRACE_UINT8, 1, &count, data);
  return ttrace_record(&t);
}

static inline int64_t refused(ttrace_tensor t, const char* words) {
  const int64_t result = ttrace_record(&t);
  if (result == -EINVAL && strstr(ttrace_last_error(), words) != NULL) return 0;
  printf("%s: %lld, \"%s\"\n", words, (long long)result, ttrace_last_error());
  return 1;
}

#endif
