// SPDX-License-Identifier: Apache-2.0
// A check asks one question of an ordinary trace, without a reference and without learning. It is
// shown the iterations in order, and says what it found, how much it compared, and what it could
// not compare: a check that compared nothing has not passed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace::builtin {

class Evidence;

enum class Certainty : std::uint8_t {
  certain,   // follows from what the program declares, or from arithmetic
  likely,    // follows from what nearly all programs mean
  possible,  // a healthy program may do so: shown, but no violation
};
[[nodiscard]] std::string_view name_of(Certainty certainty);

struct Violation {
  Certainty certainty = Certainty::certain;
  std::int64_t iteration = -1;
  std::int32_t microbatch = -1;     // -1: of no single one
  std::vector<std::int32_t> ranks;  // the odd ones
  std::string module;               // a module or parameter; "": the whole run
  std::string key;                  // of the first tensor that shows it
  std::string what;                 // one line
  std::string advice;               // what to look at
  std::vector<std::pair<std::string, std::string>> evidence;  // name, printed value
};

struct Outcome {
  std::vector<Violation> violations;
  std::map<std::string, std::uint64_t> compared;   // "gradients" -> how many
  std::map<std::string, std::uint64_t> unchecked;  // why -> how many

  void report(Violation violation) { violations.push_back(std::move(violation)); }
  [[nodiscard]] std::uint64_t total_compared() const {
    std::uint64_t total = 0;
    for (const auto& [noun, count] : compared) total += count;
    return total;
  }
};

class Check {
 public:
  Check() = default;
  virtual ~Check() = default;
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;
  virtual void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) = 0;
  // After the last iteration.
  virtual void finish(const Evidence& /*evidence*/, Outcome& /*outcome*/) {}
};

struct CheckEntry {
  std::string_view name;
  std::string_view asks;  // completes "Are ...?", for --list and the report
  std::unique_ptr<Check> (*make)();
};

// In the order in which a training step passes through what they look at: causes before effects.
[[nodiscard]] std::span<const CheckEntry> all_checks();

}  // namespace ttrace::builtin
