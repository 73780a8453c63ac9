// SPDX-License-Identifier: Apache-2.0
// Examples of many hypotheses, each situation once with its counts.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "invariant/situation.hpp"

namespace ttrace::invariant {

struct Tally {
  Example example;
  std::uint64_t held = 0;
  std::uint64_t failed = 0;
  // Whether a precondition covers the example; checking asks once.
  enum class Covered : std::uint8_t { unknown, yes, no } covered = Covered::unknown;
};

class ExampleTallies {
 public:
  explicit ExampleTallies(std::size_t hypotheses) : entries_(hypotheses) {}

  // The example's, added if it is new. Valid until the next call.
  Tally& at(std::size_t hypothesis, const Example& example);
  [[nodiscard]] std::span<const Tally> of(std::size_t hypothesis) const {
    return entries_[hypothesis].tallies;
  }

 private:
  struct Entry {
    std::vector<Tally> tallies;
    std::uint32_t last = 0;
    std::unordered_map<std::uint64_t, std::uint32_t> places;  // once there are many
  };
  std::vector<Entry> entries_;
};

}  // namespace ttrace::invariant
