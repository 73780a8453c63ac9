// SPDX-License-Identifier: Apache-2.0
// Whether one tensor is another one times a number.
#pragma once

#include <optional>

#include "libttrace/segment.hpp"

namespace ttrace::builtin {

// The number that every element of `to` is that of `from` times, but for rounding; nullopt: there
// is none, or the bytes of one of them were not kept. Elements go together by their order, whatever
// the shapes.
[[nodiscard]] std::optional<double> scale_between(const SegmentReader& from_segment,
                                                  const Record& from,
                                                  const SegmentReader& to_segment,
                                                  const Record& to);

// The number that `part` is a run of elements of `whole` times, as gradients lie in a bucket.
[[nodiscard]] std::optional<double> scale_within(const SegmentReader& whole_segment,
                                                 const Record& whole,
                                                 const SegmentReader& part_segment,
                                                 const Record& part);

// As far as numbers tell that were fitted to rounded tensors.
[[nodiscard]] bool same_scale(double left, double right);

}  // namespace ttrace::builtin
