// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "invariant/json_text.hpp"

namespace ttrace::invariant {

namespace {

void append_unit(std::string& out, std::uint32_t unit) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += digits[unit >> shift & 0xfU];
}

// The character at `at`, which then is behind it. The text is UTF-8, but for halves of surrogate
// pairs.
std::uint32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&] {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at]));
  };
  const std::uint32_t first = byte();
  ++at;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
  std::uint32_t code = more == 0 ? first : first & (0x3fU >> more);
  for (int count = 0; count < more && at < text.size(); ++count, ++at) {
    code = code << 6U | (byte() & 0x3fU);
  }
  return code;
}

void append_escaped(std::string& out, std::uint32_t code) {
  switch (code) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (code >= 0x10000) {
    append_unit(out, 0xd800 + ((code - 0x10000) >> 10U));
    append_unit(out, 0xdc00 + ((code - 0x10000) & 0x3ffU));
  } else if (code < 0x20 || code > 0x7e) {
    append_unit(out, code);
  } else {
    out += static_cast<char>(code);
  }
}

class Writer {
 public:
  Writer(std::string& out, const Values& values, int indent)
      : out_(out), values_(values), indent_(indent) {}

  void write(Value value) {
    switch (value.kind) {
      case Kind::absent:
        out_ += "NaN";
        return;
      case Kind::none:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += value.boolean ? "true" : "false";
        return;
      case Kind::integer:
        out_ += std::to_string(value.integer);
        return;
      case Kind::real:
        append_real(out_, value.real);
        return;
      case Kind::string:
        append_json_string(out_, values_.text(value));
        return;
      case Kind::list:
        list(values_.elements(value));
        return;
      case Kind::object:
        object(values_.members(value));
        return;
    }
  }

 private:
  void list(std::span<const Value> elements) {
    out_ += '[';
    bool first = true;
    ++depth_;
    for (const Value element : elements) {
      separate(first);
      write(element);
    }
    close(']', elements.empty());
  }

  void object(std::span<const Member> members) {
    out_ += '{';
    bool first = true;
    ++depth_;
    for (const Member& member : members) {
      separate(first);
      append_json_string(out_, values_.text(member.name));
      out_ += ": ";
      write(member.value);
    }
    close('}', members.empty());
  }

  void separate(bool& first) {
    if (!first) out_ += indent_ < 0 ? ", " : ",";
    first = false;
    new_line();
  }
  void close(char bracket, bool empty) {
    --depth_;
    if (!empty) new_line();
    out_ += bracket;
  }
  void new_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_ * depth_), ' ');
  }

  std::string& out_;
  const Values& values_;
  int indent_, depth_ = 0;
};

}  // namespace

void append_json(std::string& out, const Values& values, Value value, int indent) {
  Writer(out, values, indent).write(value);
}

std::string to_json(const Values& values, Value value) {
  std::string out;
  append_json(out, values, value);
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const char letter = text[at];
    if (letter >= ' ' && letter < '\x7f' && letter != '"' && letter != '\\') {
      out += letter;
      ++at;
    } else {
      append_escaped(out, next_character(text, at));
    }
  }
  out += '"';
}

void append_real(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  std::array<char, 32> scientific{};  // "-d.ddde+xx"
  const char* const end = std::to_chars(scientific.data(), scientific.data() + scientific.size(),
                                        value, std::chars_format::scientific)
                              .ptr;
  std::string_view text(scientific.data(), static_cast<std::size_t>(end - scientific.data()));
  const std::size_t mark = text.find('e');
  int exponent = 0;
  const bool negative_exponent = text[mark + 1] == '-';
  std::from_chars(text.data() + mark + 2, end, exponent);
  if (negative_exponent) exponent = -exponent;
  if (exponent < -4 || exponent >= 16) {
    out += text;  // to_chars, like Python, writes two digits at least
    return;
  }
  std::array<char, 64> fixed{};
  const char* const stop =
      std::to_chars(fixed.data(), fixed.data() + fixed.size(), value, std::chars_format::fixed).ptr;
  text = {fixed.data(), static_cast<std::size_t>(stop - fixed.data())};
  out += text;
  if (text.find('.') == std::string_view::npos) out += ".0";
}

}  // namespace ttrace::invariant
