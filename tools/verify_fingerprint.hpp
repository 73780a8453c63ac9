// SPDX-License-Identifier: Apache-2.0
// What a step's result depends on, as far as can be seen from outside: names and hashes. Two equal
// fingerprints: the result need not be made again. What is hashed is content, never a time stamp,
// except of programs and of files too large to be somebody's source.
//
// The files of a command are those it names; of a script also all Python files below its folder,
// and below the folders of PYTHONPATH, because it may import them; of a program the names of the
// packages installed beside it, which say their versions, and the sources of editable ones.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// "file train.py" -> hash
using Fingerprint = std::map<std::string, std::string>;

[[nodiscard]] std::string hash_of(std::string_view text);

// Variables that a command may act on: all but those of a terminal and a login.
[[nodiscard]] Fingerprint environment_fingerprint();

// `text` is run by sh; nothing below `results` counts.
[[nodiscard]] Fingerprint command_fingerprint(const std::string& text,
                                              const std::filesystem::path& results);
[[nodiscard]] Fingerprint file_fingerprint(const std::filesystem::path& file);
[[nodiscard]] Fingerprint program_fingerprint(const std::filesystem::path& program);
// All Python files below `folder`.
[[nodiscard]] Fingerprint sources_fingerprint(const std::filesystem::path& folder,
                                              const std::filesystem::path& results);

// Files named in a command may be its output (`> train.log`): those that are no scripts and changed
// while it ran are marked in `before`, and equal to anything from then on.
void forgive_written(Fingerprint& before, const Fingerprint& after);

// The name of the first difference, "file train.py"; "" when there is none.
[[nodiscard]] std::string first_difference(const Fingerprint& then, const Fingerprint& now);

}  // namespace ttrace
