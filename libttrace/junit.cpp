// SPDX-License-Identifier: Apache-2.0
// See junit.hpp.
#include "libttrace/junit.hpp"

#include <cstdio>
#include <map>

namespace ttrace::junit {
namespace {

// Bytes of the UTF-8 sequence that begins at `at`; 0 when it is not one (overlong, cut, surrogate).
std::size_t sequence_at(const std::string& text, std::size_t at, std::uint32_t& code) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                                           : 4;
  if (length == 0 || lead > 0xf4 || at + length > text.size()) return 0;
  constexpr unsigned kMasks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  code = lead & kMasks[length];
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kSmallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

Attributes counts_of(const std::vector<Suite>& suites) {
  std::size_t tests = 0, failures = 0, errors = 0, skipped = 0;
  for (const Suite& suite : suites) {
    tests += suite.cases.size();
    failures += suite.count(Result::failed);
    errors += suite.count(Result::error);
    skipped += suite.count(Result::skipped);
  }
  return {{"tests", std::to_string(tests)},
          {"failures", std::to_string(failures)},
          {"errors", std::to_string(errors)},
          {"skipped", std::to_string(skipped)}};
}

Attributes named(const std::string& name, Attributes attributes) {
  attributes.insert(attributes.begin(), {"name", name});
  return attributes;
}

std::string print(const Suite& suite) {
  std::string text = tag("testsuite", named(suite.name, counts_of({suite}))) + "\n<properties>\n";
  for (const auto& [name, value] : suite.properties) {
    text += tag("property", {{"name", name}, {"value", value}}, "/>\n");
  }
  text += "</properties>\n";
  for (const Testcase& entry : suite.cases) {
    text += tag("testcase", {{"classname", entry.module}, {"name", entry.name}},
                entry.body.empty() ? "/>\n" : ">\n");
    if (!entry.body.empty()) text += entry.body + "</testcase>\n";
  }
  return text + "</testsuite>\n";
}

}  // namespace

// XML 1.0 has no way to write most control characters, so they are spelt out; what is no UTF-8 or
// no character becomes U+FFFD. Line ends are references: readers fold them in attributes.
std::string escaped(const std::string& text) {
  static const std::map<std::uint32_t, const char*> kReferences = {
      {'&', "&amp;"},  {'<', "&lt;"},  {'>', "&gt;"},   {'"', "&quot;"},
      {'\'', "&#39;"}, {'\t', "&#9;"}, {'\n', "&#10;"}, {'\r', "&#13;"}};
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t code = 0;
    const std::size_t length = sequence_at(text, at, code);
    const auto reference = kReferences.find(code);
    if (length == 0 || code == 0xfffe || code == 0xffff) {
      out += "\xef\xbf\xbd";
    } else if (reference != kReferences.end()) {
      out += reference->second;
    } else if (code < 0x20) {
      char spelt[8];
      std::snprintf(spelt, sizeof spelt, "\\x%02x", static_cast<unsigned>(code));
      out += spelt;
    } else {
      out.append(text, at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return out;
}

std::string tag(const std::string& name, const Attributes& attributes, const char* end) {
  std::string text = "<" + name;
  for (const auto& [key, value] : attributes) text += " " + key + "=\"" + escaped(value) + "\"";
  return text + end;
}

std::string print(const std::vector<Suite>& suites, const std::string& program) {
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" +
                     tag("testsuites", named(program, counts_of(suites))) + "\n";
  for (const Suite& suite : suites) text += print(suite);
  return text + "</testsuites>\n";
}

}  // namespace ttrace::junit
