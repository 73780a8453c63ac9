// SPDX-License-Identifier: Apache-2.0
// See hdf5_filter.hpp.
#include "diff/hdf5_filter.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// Where the "[...]" ends that begins at `at`; npos: it does not, and stands for itself.
std::size_t end_of_set(const std::string& glob, std::size_t at) {
  std::size_t i = at + 1;
  if (i < glob.size() && (glob[i] == '!' || glob[i] == '^')) ++i;
  if (i < glob.size() && glob[i] == ']') ++i;
  while (i < glob.size() && glob[i] != ']') {
    const bool named = glob[i] == '[' && i + 1 < glob.size() &&
                       std::string_view(":.=").find(glob[i + 1]) != std::string_view::npos;
    const std::size_t end =
        named ? glob.find({glob[i + 1], ']'}, i + 2) : std::string::npos;  // [:digit:]
    i = end == std::string::npos ? i + 1 : end + 2;
  }
  return i < glob.size() ? i + 1 : std::string::npos;
}

}  // namespace

PathFilter::PathFilter(const std::string& glob) {
  const std::string text = glob.empty() ? "*" : glob;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text[at] == '[' ? end_of_set(text, at) : std::string::npos;
    const std::size_t length = end == std::string::npos ? 1 : end - at;
    parts_.push_back(text.substr(at, length));
    any_text_.push_back(parts_.back() == "*");
    at += length;
  }
  Positions first;
  reach(first, 0);
  start_ = number_of(std::move(first));
}

PathFilter::State PathFilter::after(State state, std::string_view text) {
  Positions positions = states_[state];
  for (const char character : text) positions = step(positions, character);
  return number_of(std::move(positions));
}

bool PathFilter::accepts(State state) const {
  const Positions& positions = states_[state];
  return !positions.empty() && positions.back() == parts_.size();
}

bool PathFilter::matches(std::uint32_t position, char character) const {
  const std::string& part = parts_[position];
  if (part.size() == 1) return part[0] == '?' || part[0] == character;
  return fnmatch(part.c_str(), std::string(1, character).c_str(), FNM_NOESCAPE) == 0;
}

// Any text may be none.
void PathFilter::reach(Positions& positions, std::uint32_t position) const {
  positions.push_back(position);
  while (position < parts_.size() && any_text_[position]) positions.push_back(++position);
}

PathFilter::Positions PathFilter::step(const Positions& from, char character) const {
  Positions to;
  for (const std::uint32_t position : from) {
    if (position == parts_.size()) continue;
    if (any_text_[position]) {
      reach(to, position);
    } else if (matches(position, character)) {
      reach(to, position + 1);
    }
  }
  std::sort(to.begin(), to.end());
  to.erase(std::unique(to.begin(), to.end()), to.end());
  return to;
}

PathFilter::State PathFilter::number_of(Positions positions) {
  const auto [found, fresh] = numbers_.emplace(positions, static_cast<State>(states_.size()));
  if (fresh) states_.push_back(std::move(positions));
  return found->second;
}

}  // namespace ttrace
