// SPDX-License-Identifier: Apache-2.0
// Places in a line of JSON, for line_template.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "invariant/value.hpp"

namespace ttrace::invariant {

// The name whose scalar counts for the shape: lines of one function resemble each other most.
constexpr std::string_view fixed_name = "function";

// How many bytes are the same, `limit` at most; eight bytes more can be read.
[[nodiscard]] std::size_t common(const char* a, const char* b, std::size_t limit);

// ASCII without control characters and backslashes: without quotes, it stands in JSON as it is.
[[nodiscard]] bool is_plain(std::string_view text);

// Where the string that begins at `at` ends, behind its quote; 0 when it does not.
[[nodiscard]] std::size_t end_of_string(std::string_view line, std::size_t at);
// Of numbers, true, false, null, NaN and the like.
[[nodiscard]] std::size_t end_of_word(std::string_view line, std::size_t at);

// The scalar that begins at `at`, which then is behind it. False where there is none, and where it
// needs a closer look.
[[nodiscard]] bool read_scalar(std::string_view line, std::size_t& at, Values& values,
                               Value& value);

// The hash of all but the scalars: of lines that may fit the same template. 0: it cannot be told.
[[nodiscard]] std::uint64_t shape_of(std::string_view line);

}  // namespace ttrace::invariant
