/* SPDX-License-Identifier: Apache-2.0
 * Compares two tensors that lie on one CUDA device where they are: two ranks of one process, a
 * kernel and the one it replaces. Only records of some hundred bytes a tile leave the device.
 * C99; the library is libttrace_compare.
 */
#ifndef TTRACE_COMPARE_DEVICE_H
#define TTRACE_COMPARE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TTRACE_ULP_BUCKETS 34

/* What of the pairs is finite makes up the sums and maxima; counts are over all pairs. */
typedef struct ttrace_comparison {
  uint32_t struct_size; /* in: sizeof(ttrace_comparison) as the caller knows it */
  uint32_t reserved;
  uint64_t count;         /* elements */
  uint64_t unequal;       /* pairs of different value; NaN equals NaN, -0 equals 0 */
  uint64_t first_unequal; /* lowest index; UINT64_MAX: none */
  uint64_t worst;         /* index of max_error, the lowest of equals; UINT64_MAX: none */
  uint64_t reference_nan, reference_inf, candidate_nan, candidate_inf;
  uint64_t nonfinite_mismatch; /* NaN or Inf on one side, or not the same one */
  double max_error;            /* max |candidate - reference| */
  double max_relative;         /* max |candidate - reference| / |reference|, where that is not 0 */
  double error_squares;        /* sum of (candidate - reference)^2 */
  double reference_squares;    /* sum of reference^2 */
  double candidate_squares;    /* sum of candidate^2 */
  double relative; /* relative Frobenius error: sqrt(error_squares / reference_squares) */
  /* ulp[0]: equal values. ulp[k]: errors in [2^(k-1), 2^k) spacings of the type at the reference;
   * ulp[1] also holds less than one, the last also more. */
  uint64_t ulp[TTRACE_ULP_BUCKETS];
} ttrace_comparison;

enum {
  TTRACE_COMPARED = 0,
  TTRACE_COMPARE_USAGE = 1, /* an unknown type, a NULL, a struct_size that is too small */
  TTRACE_COMPARE_DEVICE = 2 /* CUDA refused: no device, no memory, an address that is not its own */
};

/* `count` packed elements of `dtype` (torch's names: "float32", "bfloat16", "float8_e4m3fn",
 * "bool",
 * ...) at two addresses of the current device. Work is queued on `stream` (a cudaStream_t; NULL:
 * the default one) behind what is there; returns when the result is known. Neither tensor is
 * written. Returns one of the above; `why` (may be NULL) then gets one line that ends in a zero
 * byte. Any thread may call it; each call uses memory of its own. */
int ttrace_compare_device(const void* reference, const void* candidate, uint64_t count,
                          const char* dtype, void* stream, ttrace_comparison* result, char* why,
                          size_t why_size);

#ifdef __cplusplus
}
#endif
#endif
