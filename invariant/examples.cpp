// SPDX-License-Identifier: Apache-2.0
#include "invariant/examples.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::size_t kFew = 12;  // are looked through one by one

std::uint64_t key_of(const Example& example) {
  return std::uint64_t{example.first} << 32 | example.second;  // hypotheses have pairs or have not
}

}  // namespace

Tally& ExampleTallies::at(std::size_t hypothesis, const Example& example) {
  Entry& entry = entries_[hypothesis];
  const std::uint64_t key = key_of(example);
  if (entry.last < entry.tallies.size() && key_of(entry.tallies[entry.last].example) == key) {
    return entry.tallies[entry.last];
  }
  std::uint32_t place = static_cast<std::uint32_t>(entry.tallies.size());
  if (entry.places.empty()) {
    for (std::uint32_t i = 0; i < entry.tallies.size(); ++i) {
      if (key_of(entry.tallies[i].example) == key) place = i;
    }
  } else {
    place = entry.places.try_emplace(key, place).first->second;
  }
  if (place == entry.tallies.size()) {
    entry.tallies.push_back({example});
    if (entry.tallies.size() == kFew) {
      for (std::uint32_t i = 0; i < kFew; ++i) entry.places[key_of(entry.tallies[i].example)] = i;
    }
  }
  entry.last = place;
  return entry.tallies[place];
}

}  // namespace ttrace::invariant
