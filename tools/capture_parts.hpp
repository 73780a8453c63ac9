// SPDX-License-Identifier: Apache-2.0
// Where the parts of ttrace-capture are: the library and the agent that traced processes load, and
// the writer. Looked for in $TTRACE_HOME, in an installation or wheel, and in a build tree.
#pragma once

#include <filesystem>

namespace ttrace {

struct CaptureParts {
  std::filesystem::path library;  // libttrace_capture.so
  std::filesystem::path writer;   // ttrace-writer
  std::filesystem::path agent;    // folder for PYTHONPATH, it has ttrace_agent/
  std::filesystem::path nccl;     // libttrace_nccl.so, "" when it was not built
};

// Throws Trouble that lists where it looked.
[[nodiscard]] CaptureParts find_parts();

}  // namespace ttrace
