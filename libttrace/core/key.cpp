// SPDX-License-Identifier: Apache-2.0
// Keys as text. A key has exactly one spelling, so that equal texts mean equal keys: what
// to_string would write differently (leading zeros, needless escapes) does not parse.
#include "libttrace/core/key.hpp"

#include <array>
#include <charconv>
#include <vector>

namespace ttrace {
namespace {

// Indexed by the code of Phase.
constexpr std::array<std::string_view, kPhaseCount> kPhaseNames{
    "param", "forward", "recompute", "backward", "grad", "step", "comm"};

// '/' and '#' would end a name, '%' starts an escape, and HDF5's own names end at a NUL.
bool needs_escape(char c) { return c == '%' || c == '/' || c == '#' || c == '\0'; }

void append_escaped(std::string& out, std::string_view name) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const bool dot = name == ".";  // HDF5 drops a path component "."
  for (const char c : name) {
    if (!dot && !needs_escape(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
}

std::optional<std::string> unescape(std::string_view text) {
  std::string name;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      name += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    unsigned value = 0;
    const char* end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, value, 16).ptr != end) return std::nullopt;
    name += static_cast<char>(value);
    i += 2;
  }
  if (name.empty()) return std::nullopt;
  return name;
}

// The number in "<prefix><number>"; never negative.
template <class Number>
std::optional<Number> number_after(std::string_view prefix, std::string_view text) {
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  Number value{};
  const char* end = text.data() + text.size();
  const auto [ptr, error] = std::from_chars(text.data() + prefix.size(), end, value);
  if (error != std::errc{} || ptr != end || value < Number{}) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// <module>[#<call>]
bool parse_module(std::string_view text, Key& key) {
  const std::size_t hash = text.find('#');
  if (hash != std::string_view::npos) {
    const auto call = number_after<std::uint32_t>("#", text.substr(hash));
    if (!call) return false;
    key.call = *call;
  }
  const auto module = unescape(text.substr(0, hash));
  if (module) key.module = *module;
  return module.has_value();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes and returns the digits at the front, without leading zeros ("" for zero).
std::string_view take_number(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (!number.empty() && number.front() == '0') number.remove_prefix(1);
  return number;
}

// Of any length, so nothing is converted: more digits are more, else the first difference decides.
std::strong_ordering compare_numbers(std::string_view left, std::string_view right) {
  const std::strong_ordering by_length = left.size() <=> right.size();
  return by_length != 0 ? by_length : left.compare(right) <=> 0;
}

}  // namespace

std::string_view name_of(Phase phase) { return kPhaseNames.at(static_cast<std::size_t>(phase)); }

std::optional<Phase> phase_from_name(std::string_view name) {
  for (std::size_t code = 0; code < kPhaseNames.size(); ++code) {
    if (kPhaseNames[code] == name) return static_cast<Phase>(code);
  }
  return std::nullopt;
}

std::strong_ordering operator<=>(const Key& left, const Key& right) {
  std::strong_ordering order = left.iteration <=> right.iteration;
  if (order == 0) order = left.phase <=> right.phase;
  if (order == 0) order = left.microbatch <=> right.microbatch;
  if (order == 0) order = compare_names(left.module, right.module);
  if (order == 0) order = left.call <=> right.call;
  if (order == 0) order = compare_names(left.slot, right.slot);
  return order;
}

std::string to_string(const Key& key) {
  return "it" + std::to_string(key.iteration) + '/' + hdf5_path(key);
}

std::string hdf5_path(const Key& key) {
  std::string path;
  path.reserve(key.module.size() + key.slot.size() + 40);
  if (key.microbatch >= 0) path += "mb" + std::to_string(key.microbatch) + '/';
  path += name_of(key.phase);
  path += '/';
  append_escaped(path, key.module);
  if (key.call != 0) path += '#' + std::to_string(key.call);
  path += '/';
  append_escaped(path, key.slot);
  return path;
}

std::optional<Key> parse_key(std::string_view text) {
  std::vector<std::string_view> parts = split(text, '/');
  if (parts.size() != 4 && parts.size() != 5) return std::nullopt;

  Key key;
  const auto iteration = number_after<std::int64_t>("it", parts[0]);
  if (!iteration) return std::nullopt;
  key.iteration = *iteration;
  if (parts.size() == 5) {
    const auto microbatch = number_after<std::int32_t>("mb", parts[1]);
    if (!microbatch) return std::nullopt;
    key.microbatch = *microbatch;
    parts.erase(parts.begin() + 1);
  }
  const auto phase = phase_from_name(parts[1]);
  const auto slot = unescape(parts[3]);
  if (!phase || !slot || !parse_module(parts[2], key)) return std::nullopt;
  key.phase = *phase;
  key.slot = *slot;
  if (to_string(key) != text) return std::nullopt;  // the one spelling
  return key;
}

std::strong_ordering compare_names(std::string_view left, std::string_view right) {
  std::string_view l = left;
  std::string_view r = right;
  while (!l.empty() && !r.empty()) {
    std::strong_ordering order = std::strong_ordering::equal;
    if (is_digit(l.front()) && is_digit(r.front())) {
      const std::string_view left_number = take_number(l);  // one after the other: both take
      order = compare_numbers(left_number, take_number(r));
    } else {
      order = static_cast<unsigned char>(l.front()) <=> static_cast<unsigned char>(r.front());
      l.remove_prefix(1);
      r.remove_prefix(1);
    }
    if (order != 0) return order;
  }
  const std::strong_ordering by_rest = l.size() <=> r.size();
  // Names that differ only in leading zeros are different names.
  return by_rest != 0 ? by_rest : left.compare(right) <=> 0;
}

}  // namespace ttrace
