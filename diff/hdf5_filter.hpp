// SPDX-License-Identifier: Apache-2.0
// A glob of paths, read piece by piece as a walk goes down. Two paths to one object that leave it
// in the same state let the same things through from there on, so that one of them is enough; and
// where nothing can be let through any more, a walk need not go.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

class PathFilter {
 public:
  using State = std::uint32_t;

  // As fnmatch(3) without escapes: `*` matches `/`, too. "" lets everything through.
  explicit PathFilter(const std::string& glob);

  [[nodiscard]] State start() const { return start_; }
  State after(State state, std::string_view text);
  [[nodiscard]] bool accepts(State state) const;
  // Nothing that goes on from here is let through.
  [[nodiscard]] bool is_hopeless(State state) const { return states_[state].empty(); }

 private:
  using Positions = std::vector<std::uint32_t>;  // that the glob may be at, ascending

  [[nodiscard]] bool matches(std::uint32_t position, char character) const;
  void reach(Positions& positions, std::uint32_t position) const;
  [[nodiscard]] Positions step(const Positions& from, char character) const;
  State number_of(Positions positions);

  std::vector<std::string> parts_;  // "*", "?", "[...]" or a character
  std::vector<bool> any_text_;      // of parts: "*"
  std::vector<Positions> states_;
  std::map<Positions, State> numbers_;
  State start_ = 0;
};

}  // namespace ttrace
