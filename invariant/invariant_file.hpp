// SPDX-License-Identifier: Apache-2.0
// Files of invariants, one a line: "invariants.json" and, of what was rejected, "....failed".
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "invariant/invariant.hpp"

namespace ttrace::invariant {

// Lines that are no invariant are left out and counted.
struct FileFaults {
  std::uint64_t lines = 0;
  std::uint64_t first = 0;  // its line
  std::string why;          // of the first
};

struct InvariantFile {
  std::vector<Invariant> invariants;  // in the order of the file
  FileFaults faults;
};
struct RejectedFile {
  std::vector<Rejected> rejected;
  FileFaults faults;
};

// Throw Trouble: unreadable, or without any.
[[nodiscard]] InvariantFile read_invariants(const std::filesystem::path& file, Values& values);
[[nodiscard]] RejectedFile read_rejected(const std::filesystem::path& file, Values& values);

// In the order of their text, then relation, parameters, precondition. Replace the file at once.
// Throw Trouble.
void write_invariants(const std::filesystem::path& file, Values& values,
                      std::span<const Invariant> invariants);
void write_rejected(const std::filesystem::path& file, Values& values,
                    std::span<const Rejected> rejected);

}  // namespace ttrace::invariant
