// SPDX-License-Identifier: Apache-2.0
// A mapped file that becomes shorter, or whose disk fails, kills whoever touches it. Here it does
// not: the page reads as zeros, and whoever then asks is told, before anything is believed.
#pragma once

#include <cstddef>
#include <filesystem>

namespace ttrace {

// `data` stays mapped until forget_mapping.
void watch_mapping(const std::byte* data, std::size_t size, const std::filesystem::path& path);
void forget_mapping(const std::byte* data);

// Throws Trouble that names a file whose mapped bytes could not be read, now or earlier.
void check_mapped_files();

}  // namespace ttrace
