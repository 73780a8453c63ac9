// SPDX-License-Identifier: Apache-2.0
// A stamp lies beside a step's output and says what it was made from. It is written when the output
// is complete and removed before it is made again, so an interrupted step has none.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/verify_fingerprint.hpp"

namespace ttrace {

struct Stamp {
  Fingerprint depends;
  std::string output;  // state of the output, see trace_state and files_state
  std::string id;      // what later steps depend on
  int exit_code = 0;
};

// nullopt: none, or none that this program wrote.
[[nodiscard]] std::optional<Stamp> read_stamp(const std::filesystem::path& path);
void write_stamp(const std::filesystem::path& path, const Stamp& stamp);

// Both "" when the output is not there or not complete.
[[nodiscard]] std::string trace_state(const std::filesystem::path& trace);
[[nodiscard]] std::string files_state(const std::vector<std::filesystem::path>& files);

}  // namespace ttrace
