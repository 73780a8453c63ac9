// SPDX-License-Identifier: Apache-2.0
#include "invariant/line_scan.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "invariant/json_text.hpp"

namespace ttrace::invariant {

namespace {

constexpr std::uint64_t every_byte = 0x0101010101010101U, high_bits = 0x8080808080808080U;

std::uint64_t word_at(const char* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

bool is_in_word(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
         (letter >= 'A' && letter <= 'Z') || letter == '-' || letter == '+' || letter == '.';
}

// An integer of few digits, by far the most frequent scalar that changes.
bool read_short_integer(std::string_view line, std::size_t& at, Value& value) {
  const bool negative = line[at] == '-';
  const std::size_t first = at + (negative ? 1 : 0);
  std::size_t end = first;
  std::uint64_t number = 0;
  for (; end < line.size(); ++end) {
    const auto digit = static_cast<unsigned>(line[end] - '0');
    if (digit > 9) break;
    number = number * 10 + digit;
  }
  const std::size_t count = end - first;
  if (count == 0 || count > 18 || (line[first] == '0' && count > 1) ||
      (end < line.size() && is_in_word(line[end])))
    return false;
  value =
      integer(negative ? -static_cast<std::int64_t>(number) : static_cast<std::int64_t>(number));
  at = end;
  return true;
}

}  // namespace

std::size_t common(const char* a, const char* b, std::size_t limit) {
  static_assert(std::endian::native == std::endian::little);
  for (std::size_t at = 0; at < limit; at += 8) {
    const std::uint64_t other = word_at(a + at) ^ word_at(b + at);
    if (other != 0)
      return std::min(limit, at + static_cast<std::size_t>(std::countr_zero(other)) / 8);
  }
  return limit;
}

bool is_plain(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    const std::uint64_t word = word_at(text.data() + at);
    const std::uint64_t control = (word - 0x20 * every_byte) & ~word;
    const std::uint64_t slashes = word ^ '\\' * every_byte;
    if (((word | control | ((slashes - every_byte) & ~slashes)) & high_bits) != 0) return false;
  }
  return std::ranges::all_of(text.substr(at), [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return byte >= 0x20 && byte < 0x80 && letter != '\\';
  });
}

std::size_t end_of_string(std::string_view line, std::size_t at) {
  for (++at; at < line.size() && line[at] != '"'; ++at) at += line[at] == '\\' ? 1 : 0;
  return at < line.size() ? at + 1 : 0;
}

std::size_t end_of_word(std::string_view line, std::size_t at) {
  while (at < line.size() && is_in_word(line[at])) ++at;
  return at;
}

bool read_scalar(std::string_view line, std::size_t& at, Values& values, Value& value) {
  if (at >= line.size()) return false;
  if (line[at] == '"') {
    const void* const quote = std::memchr(line.data() + at + 1, '"', line.size() - at - 1);
    if (quote == nullptr) return false;
    const std::size_t end = static_cast<std::size_t>(static_cast<const char*>(quote) - line.data());
    const std::string_view text = line.substr(at + 1, end - at - 1);
    if (!is_plain(text)) return false;
    value = values.string(text);
    at = end + 1;
    return true;
  }
  if (read_short_integer(line, at, value)) return true;
  const std::size_t begin = at;
  at = end_of_word(line, at);
  const std::optional<Value> read = parse_json(line.substr(begin, at - begin), values);
  if (read) value = *read;
  return read.has_value();
}

namespace {

// Where the scalar at `at`, if there is one, ends.
std::size_t end_of_scalar(std::string_view line, std::size_t at) {
  if (at >= line.size()) return line.size();
  const std::size_t end = line[at] == '"' ? end_of_string(line, at) : end_of_word(line, at);
  return std::max(at, end);
}

}  // namespace

std::uint64_t shape_of(std::string_view line) {
  std::uint64_t shape = 0;
  std::size_t literal = 0;  // where it began
  const auto end_literal = [&](std::size_t end) {
    shape = XXH3_64bits_withSeed(line.data() + literal, end - literal, shape);
  };
  for (std::size_t at = 0; at < line.size();) {
    std::size_t end = at;
    if (line[at] == '"') {
      end = end_of_string(line, at);
      if (end == 0) return 0;
      const std::size_t next = line.find_first_not_of(" \t\r", end);
      if (next != std::string_view::npos && line[next] == ':') {  // a name
        const bool fixed = line.substr(at + 1, end - at - 2) == fixed_name;
        at = fixed ? end_of_scalar(line, line.find_first_not_of(" \t\r", next + 1)) : end;
        continue;
      }
    } else if (is_in_word(line[at])) {
      end = end_of_word(line, at);
    } else {
      ++at;
      continue;
    }
    end_literal(at);
    literal = at = end;
  }
  end_literal(line.size());
  return shape;
}

}  // namespace ttrace::invariant
