// SPDX-License-Identifier: Apache-2.0
// Records as lines of TrainCheck's files.
#pragma once

#include <filesystem>
#include <string>

#include "invariant/record.hpp"

namespace ttrace::invariant {

// The line without its end: nested objects as they were, `args`, `kwargs` and `return_values`
// before the time where that comes last.
void append_record(std::string& out, const Values& values, const Record& record);

// Each file of the records under its own name into the folder, which is made. Throws Trouble.
void write_traincheck(const std::filesystem::path& folder, const Records& records);

}  // namespace ttrace::invariant
