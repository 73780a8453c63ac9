// SPDX-License-Identifier: Apache-2.0
// Starts a rank's writer process, so that it disturbs nothing and outlives everything:
//  - never fork(): that would copy a training process; posix_spawn shares its memory for a moment;
//  - a session of its own, because launchers kill process groups;
//  - no inherited output, or whoever reads the job's stdout would wait for the writer, too;
//  - no LD_PRELOAD: it may name a recorder that is meant for the rank only;
//  - the writer forks and its parent exits, so that it is no child of the rank for long: a program
//    that waits for all its children must not wait for ours.
#pragma once

#include <stdexcept>
#include <string>

#include "capture/settings.hpp"
#include "libttrace/core/ring.hpp"

namespace ttrace {

class SpawnFailure : public std::runtime_error {
 public:
  SpawnFailure(int code, const std::string& why) : std::runtime_error(why), error(code) {}
  int error;  // errno value
};

// Returns when the writer reads from `ring`; throws SpawnFailure with the reason when it does not.
void start_writer(const Settings& settings, RingProducer& ring);

}  // namespace ttrace
