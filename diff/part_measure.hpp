// SPDX-License-Identifier: Apache-2.0
// One source of the reference against one of the candidate: the elements that both hold, in the
// order of a walk over mapped bytes. Any stretch of whole blocks of the walk can be measured by
// itself, so that threads can share a part; the sums of the blocks add up in order.
#pragma once

#include <cstdint>
#include <vector>

#include "diff/backend.hpp"
#include "diff/parts.hpp"
#include "diff/runs.hpp"

namespace ttrace {

struct Stretch {
  std::uint64_t first = 0;  // element of the walk, a multiple of kBlockElements
  std::uint64_t count = 0;  // a multiple, too, or all that is left
};

struct StretchMetrics {
  Metrics counts;            // all but the sums
  std::vector<Sums> blocks;  // the sums
};

// How both sides are compared.
struct Arithmetic {
  DType type;
  double scale;  // multiplies the candidate
  const Backend& backend;
  bool read_once = false;  // what the page cache does not have is read past it
};

class Part {
 public:
  Part(const Source& reference, const Source& candidate, const Shape& shape);

  [[nodiscard]] std::uint64_t elements() const { return elements_; }
  // From any thread.
  [[nodiscard]] StretchMetrics measure(const Stretch& stretch, const Arithmetic& how) const;

 private:
  // What two pieces have in common.
  struct Common {
    Runs runs;
    std::uint64_t first;  // element of the walk
    std::uint64_t count;
  };
  const Source* reference_;
  const Source* candidate_;
  std::vector<Common> commons_;
  std::uint64_t elements_ = 0;
};

}  // namespace ttrace
