// SPDX-License-Identifier: Apache-2.0
// A pack for ttrace-capture --replay: what one run computed, whole, under the keys and in the
// micro-batches of the run that it is to be fed to. If that one has several ranks, the pack also
// says how each tensor is cut there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

struct PackedTrace {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<Finding> problems;  // what could not be put together, and is not in the pack
};

struct PackRequest {
  const Trace* source = nullptr;  // whose tensors
  const Trace* target = nullptr;  // a trace of the run that will be fed
  bool reshard = false;           // the source is the trusted run, the target is the one in doubt
  std::vector<std::int64_t> iterations;
  std::vector<LayoutRule> rules;
  std::filesystem::path path;
};

// Activation gradients are scaled to the target's losses (diff/seed.hpp). `progress` is called with
// bytes done and in all; it may throw, and nothing is left then.
[[nodiscard]] PackedTrace write_replay_pack(
    const PackRequest& request, const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace ttrace
