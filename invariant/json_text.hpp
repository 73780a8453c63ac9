// SPDX-License-Identifier: Apache-2.0
// JSON as Python's json module has it: NaN, Infinity and -Infinity are numbers, \ud800 by itself is
// a character, integers may be of any size. Text that Python wrote is read to the last bit and
// written again as Python would.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "invariant/value.hpp"

namespace ttrace::invariant {

// Deeper nesting than this is no JSON to us.
constexpr int deepest_json = 500;

// Why a text is no JSON, and where: bytes from its start.
struct JsonFault {
  std::size_t at = 0;
  const char* why = "";
};

// Integers that 64 bits do not hold become real, the nearest.
[[nodiscard]] std::optional<Value> parse_json(std::string_view text, Values& values,
                                              JsonFault* fault = nullptr);
// What stands between the quotes; false where an escape is none, or a control character stands as
// it is. Half a surrogate pair becomes three bytes, like any character of its number.
[[nodiscard]] bool unescape(std::string_view raw, std::string& text);

// As json.dumps writes it without options: ", " and ": ", ASCII only. `indent` as there.
void append_json(std::string& out, const Values& values, Value value, int indent = -1);
void append_json_string(std::string& out, std::string_view text);
[[nodiscard]] std::string to_json(const Values& values, Value value);
// Python's repr of a float: the fewest digits that tell it, 1e-05, 2.0, nan as NaN.
void append_real(std::string& out, double value);

}  // namespace ttrace::invariant
