// SPDX-License-Identifier: Apache-2.0
// ttrace-inspect --traincheck: events of ttrace-capture --events for another tool.
#pragma once

#include <filesystem>

namespace ttrace {

// Writes "trace_API_<pid>_<tid>.log" and "trace_VAR_<pid>_<tid>.log" into the folder, which must be
// new or empty. Throws Trouble.
void export_to_traincheck(const std::filesystem::path& trace, const std::filesystem::path& folder);

}  // namespace ttrace
