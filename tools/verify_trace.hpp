// SPDX-License-Identifier: Apache-2.0
// What ttrace-verify wants to know of a trace.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ttrace {

[[nodiscard]] std::string run_id_of(const std::filesystem::path& trace);  // "": no trace
// Of the traced command, when it has ended.
[[nodiscard]] std::optional<int> command_exit_code(const std::filesystem::path& trace);
// Every rank is there, and each of its segments was closed by its own program.
[[nodiscard]] bool is_complete(const std::filesystem::path& trace);
// "bfloat16" or "float16" when most outputs of modules are; else "".
[[nodiscard]] std::string low_precision_of(const std::filesystem::path& trace);

}  // namespace ttrace
