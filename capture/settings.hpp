// SPDX-License-Identifier: Apache-2.0
// What a rank's capture needs to know, from the caller's options and the environment that
// ttrace-capture prepared. TTRACE_ITERATIONS, TTRACE_RANKS, TTRACE_FILTERS, TTRACE_WHAT and
// TTRACE_COMM apply here, so that they work for every program, whatever language it is written in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/ttrace.h"
#include "libttrace/core/intervals.hpp"

namespace ttrace {

// Globs for phase/module/slot, or for the module alone. A tensor is wanted when one of `include`
// matches, or there are none, and none of `exclude` does.
struct NameFilter {
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  [[nodiscard]] bool wants(std::string_view phase, std::string_view module,
                           std::string_view slot) const;
};

// What ttrace_collectives_wanted returns for --comm hash.
inline constexpr int kCommHash = 2;

struct Settings {
  std::string directory;
  std::string writer;
  std::string run_id;  // "": the writer finds or makes one
  std::string replay;  // a pack to feed the run with; "": none
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::uint64_t ring_bytes = 0;
  std::optional<Intervals> iterations;  // nullopt: all
  bool estimate = false;                // count the bytes, record nothing
  NameFilter filter;
  std::uint8_t kind = TTRACE_FULL;  // what is kept of tensors that the program gives in full
  int comm = 0;                     // as ttrace_collectives_wanted returns it

  [[nodiscard]] std::uint8_t kind_in(std::uint8_t phase) const {
    const std::uint8_t hash = TTRACE_HASH;
    return phase == TTRACE_COMM && comm == kCommHash ? hash : kind;
  }
};

// Why there is nothing to capture, or why it cannot be done.
struct Refusal {
  int error = 0;  // errno value; ENOENT: this process is not to be captured at all
  std::string why;
};

// What TTRACE_COMM asks for: 0 to 3, nullopt when it is no word that is known.
[[nodiscard]] std::optional<int> wanted_collectives();

// Fills `settings`; nullopt when all is well. `options` may be null, older or newer than this file.
[[nodiscard]] std::optional<Refusal> read_settings(const ttrace_options* options,
                                                   Settings& settings);

}  // namespace ttrace
