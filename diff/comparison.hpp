// SPDX-License-Identifier: Apache-2.0
// The C interface's side of a comparison on a device: what is asked for, errors as codes, and the
// result in the caller's structure. Without CUDA, so that tests reach it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include "diff/compare_device.h"
#include "diff/metrics.hpp"

namespace ttrace {

static_assert(TTRACE_ULP_BUCKETS == kUlpBuckets);

struct ComparisonRequest {
  const void* reference = nullptr;
  const void* candidate = nullptr;
  std::uint64_t count = 0;
  const char* dtype = nullptr;
  ttrace_comparison* result = nullptr;
};

// "" or what is wrong with it.
inline std::string complaint_of(const ComparisonRequest& request) {
  if (request.result == nullptr) return "result is NULL";
  if (request.result->struct_size != sizeof(ttrace_comparison)) {
    return "struct_size is not sizeof(ttrace_comparison) of this library";
  }
  if (request.dtype == nullptr) return "dtype is NULL";
  if (!dtype_from_name(request.dtype)) return std::string("unknown dtype ") + request.dtype;
  const bool missing = request.reference == nullptr || request.candidate == nullptr;
  return missing && request.count > 0 ? "a tensor is NULL" : "";
}

inline void fill_in(const Metrics& metrics, ttrace_comparison& result) {
  result.count = metrics.count;
  result.unequal = metrics.unequal;
  result.first_unequal = metrics.first_unequal;
  result.worst = metrics.worst;
  result.reference_nan = metrics.reference_nan;
  result.reference_inf = metrics.reference_inf;
  result.candidate_nan = metrics.candidate_nan;
  result.candidate_inf = metrics.candidate_inf;
  result.nonfinite_mismatch = metrics.nonfinite_mismatch;
  result.max_error = metrics.max_error;
  result.max_relative = metrics.max_relative;
  result.error_squares = metrics.sums.error_squares;
  result.reference_squares = metrics.sums.reference_squares;
  result.candidate_squares = metrics.sums.candidate_squares;
  // No error is no relative error, also where the reference is all zero.
  result.relative = metrics.sums.error_squares == 0
                        ? 0
                        : std::sqrt(metrics.sums.error_squares / metrics.sums.reference_squares);
  std::copy(metrics.ulp, metrics.ulp + kUlpBuckets, result.ulp);
}

// `measure` takes the type and returns Metrics, or throws.
template <class Measure>
int run_comparison(const ComparisonRequest& request, char* why, std::size_t why_size,
                   const Measure& measure) {
  const auto say = [&](const std::string& text, int code) {
    if (why != nullptr && why_size > 0) std::snprintf(why, why_size, "%s", text.c_str());
    return code;
  };
  try {
    const std::string complaint = complaint_of(request);
    if (!complaint.empty()) return say(complaint, TTRACE_COMPARE_USAGE);
    Metrics metrics;
    if (request.count > 0) metrics = measure(*dtype_from_name(request.dtype));
    fill_in(metrics, *request.result);
    return say("", TTRACE_COMPARED);
  } catch (const std::exception& trouble) {
    return say(trouble.what(), TTRACE_COMPARE_DEVICE);
  }
}

}  // namespace ttrace
