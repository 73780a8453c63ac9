// SPDX-License-Identifier: Apache-2.0
// TrainCheck's traces: folders with "trace_API_<pid>_<tid>.log", "trace_VAR_<pid>_<tid>.log" and
// "proxy_log.json", a record a line. Lines that are none are counted and left out.
#pragma once

#include <filesystem>
#include <vector>

#include "invariant/record.hpp"
#include "invariant/record_form.hpp"

namespace ttrace::invariant {

// The files of a folder that hold records: in the order of process, thread, name. A file is its own
// only one. Empty where there is none yet. Throws Trouble: a folder that cannot be read.
[[nodiscard]] std::vector<std::filesystem::path> traincheck_files(
    const std::filesystem::path& trace);

// Throws Trouble when nothing can be read at all.
[[nodiscard]] Records read_traincheck(const std::filesystem::path& trace,
                                      const ReadOptions& options = {});
// The same with a pool that several traces share; that of the result stays empty.
[[nodiscard]] Records read_traincheck(const std::filesystem::path& trace, Values& pool,
                                      const ReadOptions& options = {});

}  // namespace ttrace::invariant
