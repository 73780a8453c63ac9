// SPDX-License-Identifier: Apache-2.0
// trace.json is ttrace-capture's. A program that was started without it, with a directory in its
// options, gets a small one from the first of its writers.
#pragma once

#include <filesystem>
#include <string>

namespace ttrace {

// The run id of the trace: `wanted`, else that of trace.json, which is made when there is none.
// Throws Trouble.
[[nodiscard]] std::string settle_run_id(const std::filesystem::path& trace,
                                        const std::string& wanted);

}  // namespace ttrace
