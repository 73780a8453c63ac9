// SPDX-License-Identifier: Apache-2.0
// How the files of a trace are named and replaced. Readers look while a run goes on, so a JSON file
// changes in one step: they see the old text or the new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace ttrace {

[[nodiscard]] std::string rank_directory_name(std::int32_t rank);     // "rank00003"
[[nodiscard]] std::string segment_file_name(std::int64_t iteration);  // "it000007.h5"

[[nodiscard]] std::string make_run_id();  // 16 random hexadecimal digits
[[nodiscard]] std::string host_name();
[[nodiscard]] std::string utc_now();  // "2024-05-06T07:08:09Z"

// Throws Trouble (disk full, no permission); the old file is then still there.
void replace_file(const std::filesystem::path& path, std::string_view text);
// False, and nothing is changed, when the file exists.
[[nodiscard]] bool create_file(const std::filesystem::path& path, std::string_view text);

}  // namespace ttrace
