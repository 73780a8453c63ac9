// SPDX-License-Identifier: Apache-2.0
// Which examples a precondition is to cover and which it must not. A situation in which a
// hypothesis held at times and failed at times is one where nothing can be said: it is not to be
// covered. The first steps are situations of their own (tracker.cpp) only where they differ from
// the later ones; that something happened to hold in the first step alone says nothing.
#pragma once

#include <span>

#include "invariant/examples.hpp"
#include "invariant/world.hpp"

namespace ttrace::invariant {

struct Separated {
  Examples examples;
  std::uint64_t positive = 0;  // of what is to be covered, with repetitions
};

[[nodiscard]] Separated separate(World& world, std::span<const Tally> tallies);

}  // namespace ttrace::invariant
