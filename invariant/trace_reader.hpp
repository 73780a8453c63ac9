// SPDX-License-Identifier: Apache-2.0
// Traces of events, whoever wrote them: our own of ttrace-capture --events, or TrainCheck's.
#pragma once

#include <filesystem>

#include "invariant/record.hpp"

namespace ttrace::invariant {

// With the pool that all traces of an inference share; that of the result stays empty. Addresses
// are left out. Throws Trouble.
[[nodiscard]] Records read_trace(const std::filesystem::path& trace, Values& pool);

// What TrainCheck would read: its own files, or ours as they would be exported to it.
[[nodiscard]] Records read_as_traincheck(const std::filesystem::path& trace);
[[nodiscard]] Records read_as_traincheck(const std::filesystem::path& trace, Values& pool);

// Whether it is one of ours.
[[nodiscard]] bool has_events(const std::filesystem::path& trace);

// Whether records come from TrainCheck's default tracker, which loses the last ones.
[[nodiscard]] bool loses_tail(const std::string& file);
[[nodiscard]] bool loses_tail(const Records& trace);

}  // namespace ttrace::invariant
