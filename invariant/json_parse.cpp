// SPDX-License-Identifier: Apache-2.0
#include <simdjson.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "invariant/json_text.hpp"

namespace ttrace::invariant {

namespace {

void append_utf8(std::string& text, std::uint32_t code) {
  const auto byte = [&](std::uint32_t bits) { text += static_cast<char>(bits); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6U);
    byte(0x80 | (code & 0x3fU));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12U);
    byte(0x80 | (code >> 6U & 0x3fU));
    byte(0x80 | (code & 0x3fU));
  } else {
    byte(0xf0 | code >> 18U);
    byte(0x80 | (code >> 12U & 0x3fU));
    byte(0x80 | (code >> 6U & 0x3fU));
    byte(0x80 | (code & 0x3fU));
  }
}

// Four hexadecimal digits.
bool read_unit(std::string_view raw, std::size_t at, std::uint32_t& unit) {
  if (raw.size() < at + 4) return false;
  const char* const end = raw.data() + at + 4;
  if (raw[at] == '-') return false;
  const auto [stop, error] = std::from_chars(raw.data() + at, end, unit, 16);
  return error == std::errc() && stop == end;
}

char simple_escape(char letter) {
  switch (letter) {
    case '"':
    case '\\':
    case '/':
      return letter;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return '\0';
  }
}

// The character of the escape whose 'u' is at `at`, which then is behind it.
bool append_unicode(std::string_view raw, std::size_t& at, std::string& text) {
  std::uint32_t code = 0, low = 0;
  if (!read_unit(raw, at + 1, code)) return false;
  at += 5;
  if (code >= 0xd800 && code < 0xdc00 && raw.substr(at, 2) == "\\u" &&
      read_unit(raw, at + 2, low) && low >= 0xdc00 && low < 0xe000) {
    code = 0x10000 + ((code - 0xd800) << 10U) + (low - 0xdc00);
    at += 6;
  }
  append_utf8(text, code);
  return true;
}

// `text` is valid UTF-8.
class Parser {
 public:
  Parser(std::string_view text, Values& values) : text_(text), values_(values) {}

  bool parse_value(Value& value, int depth) {
    skip_space();
    if (at_ == text_.size()) return fail("ends too early");
    switch (text_[at_]) {
      case '{':
        return depth < deepest_json ? object(value, depth) : fail("is nested too deeply");
      case '[':
        return depth < deepest_json ? list(value, depth) : fail("is nested too deeply");
      case '"':
        return string() && (value = values_.string(string_), true);
      case 't':
        return word("true", value, boolean(true));
      case 'f':
        return word("false", value, boolean(false));
      case 'n':
        return word("null", value, none());
      case 'N':
        return word("NaN", value, real(std::numeric_limits<double>::quiet_NaN()));
      case 'I':
        return word("Infinity", value, real(std::numeric_limits<double>::infinity()));
      default:
        return number(value);
    }
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] const char* why() const { return why_; }

 private:
  bool fail(const char* why) {
    why_ = why;
    return false;
  }

  bool word(std::string_view word, Value& value, Value meaning) {
    if (text_.substr(at_, word.size()) != word) return fail("holds an unknown word");
    at_ += word.size();
    value = meaning;
    return true;
  }

  bool take(char expected) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }

  // Into string_.
  bool string() {
    const std::size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) {
      at_ = text_.size();
      return fail("holds a string without an end");
    }
    if (!unescape(text_.substr(start, at_ - start), string_))
      return fail("holds a string with a wrong escape or a control character");
    ++at_;
    return true;
  }

  bool list(Value& value, int depth) {
    ++at_;
    std::vector<Value> elements;
    if (!take(']')) {
      do {
        if (!parse_value(elements.emplace_back(), depth + 1)) return false;
      } while (take(','));
      if (!take(']')) return fail("lacks ',' or ']'");
    }
    value = values_.list(elements);
    return true;
  }

  bool object(Value& value, int depth) {
    ++at_;
    std::vector<Member> members;
    if (!take('}')) {
      do {
        skip_space();
        if (at_ == text_.size() || text_[at_] != '"') return fail("lacks a name");
        if (!string()) return false;
        members.push_back({values_.name(string_), {}});
        if (!take(':')) return fail("lacks ':'");
        if (!parse_value(members.back().value, depth + 1)) return false;
      } while (take(','));
      if (!take('}')) return fail("lacks ',' or '}'");
    }
    value = values_.object(members);
    return true;
  }

  std::size_t digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  bool number(Value& value) {
    const std::size_t start = at_;
    if (text_[at_] == '-') ++at_;
    if (text_.substr(at_).starts_with("Infinity"))
      return word("Infinity", value, real(-std::numeric_limits<double>::infinity()));
    const std::size_t first = at_, count = digits();
    if (count == 0) return fail("holds what is no value");
    if (count > 1 && text_[first] == '0') return fail("holds a number that begins with 0");
    bool whole = true;
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      whole = false;
      if (digits() == 0) return fail("holds a number without digits after the point");
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      whole = false;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (digits() == 0) return fail("holds a number without digits in the exponent");
    }
    value = number_of(text_.substr(start, at_ - start), whole);
    return true;
  }

  static Value number_of(std::string_view digits, bool whole) {
    const char* const end = digits.data() + digits.size();
    std::int64_t exact = 0;
    if (whole && std::from_chars(digits.data(), end, exact).ec == std::errc()) {
      return integer(exact);
    }
    double nearest = 0;
    if (std::from_chars(digits.data(), end, nearest).ec != std::errc())
      nearest = std::strtod(std::string(digits).c_str(), nullptr);  // too large, or too small
    return real(nearest);
  }

  std::string_view text_;
  Values& values_;
  std::size_t at_ = 0;
  std::string string_;
  const char* why_ = "";
};

}  // namespace

bool unescape(std::string_view raw, std::string& text) {
  text.clear();
  std::size_t at = 0;
  while (at < raw.size()) {
    const char letter = raw[at];
    if (static_cast<unsigned char>(letter) < 0x20) return false;
    if (letter != '\\') {
      text += letter;
      ++at;
      continue;
    }
    if (++at == raw.size()) return false;
    if (raw[at] == 'u') {
      if (!append_unicode(raw, at, text)) return false;
      continue;
    }
    const char meant = simple_escape(raw[at++]);
    if (meant == '\0') return false;
    text += meant;
  }
  return true;
}

std::optional<Value> parse_json(std::string_view text, Values& values, JsonFault* fault) {
  const auto failed = [&](std::size_t at, const char* why) {
    if (fault != nullptr) *fault = {at, why};
    return std::nullopt;
  };
  if (!simdjson::validate_utf8(text)) return failed(0, "is not UTF-8");
  Parser parser(text, values);
  Value value;
  if (!parser.parse_value(value, 0)) return failed(parser.at(), parser.why());
  parser.skip_space();
  if (parser.at() != text.size()) return failed(parser.at(), "goes on after its end");
  return value;
}

}  // namespace ttrace::invariant
