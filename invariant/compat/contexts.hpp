// SPDX-License-Identifier: Apache-2.0
// Context managers: from when to when each was active, and with which arguments.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "invariant/record.hpp"
#include "invariant/signature.hpp"
#include "invariant/situation.hpp"

namespace ttrace::invariant::compat {

class Contexts {
 public:
  // From these rows of the records, which are its whole world.
  Contexts(Values& values, const Signatures& signatures, std::span<const Record> records,
           std::span<const std::uint32_t> rows);

  // Those that are active; of two of one class the later one. Begin and end count in.
  [[nodiscard]] const std::vector<Active>& at(std::int64_t process, std::int64_t thread,
                                              std::int64_t time) const;

 private:
  // What is active at each begin and end (even places) and between them (odd ones).
  struct Timeline {
    std::vector<std::int64_t> times;
    std::vector<std::vector<Active>> active;
  };

  std::map<std::pair<std::int64_t, std::int64_t>, Timeline> threads_;
};

}  // namespace ttrace::invariant::compat
