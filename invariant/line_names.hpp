// SPDX-License-Identifier: Apache-2.0
// Names and texts in JSON that resemble those before them: each is compared with what stood at its
// place the last times before it is looked up.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "invariant/json_text.hpp"
#include "invariant/value.hpp"

namespace ttrace::invariant {

// A string in JSON from behind its first quote on. Its last quote lies before `end`.
class RawText {
 public:
  RawText(const char* begin, const char* end) : begin_(begin), end_(end) {}

  // `plain` has no quote and no backslash.
  [[nodiscard]] bool is(std::string_view plain) const {
    return plain.size() < static_cast<std::size_t>(end_ - begin_) && begin_[plain.size()] == '"' &&
           std::memcmp(begin_, plain.data(), plain.size()) == 0;
  }
  // False when it holds a wrong escape. `text` is in the JSON, or in `buffer`.
  [[nodiscard]] bool get(std::string_view& text, std::string& buffer) const {
    const char* stop = begin_;
    bool escaped = false;
    while (stop < end_ && *stop != '"') {
      escaped = escaped || *stop == '\\';
      stop += *stop == '\\' ? 2 : 1;
    }
    if (stop >= end_) return false;
    text = {begin_, static_cast<std::size_t>(stop - begin_)};
    if (!escaped) return true;
    if (!unescape(text, buffer)) return false;
    text = buffer;
    return true;
  }

 private:
  const char* begin_;
  const char* end_;
};

[[nodiscard]] inline bool is_plain(std::string_view text) {
  return text.find_first_of("\"\\") == std::string_view::npos;
}

// The texts that stood at one place last.
class LastTexts {
 public:
  [[nodiscard]] bool find(const RawText& raw, Value& value) {
    for (std::size_t at = 0; at < texts_.size(); ++at) {
      if (values_[at].present() && raw.is(texts_[at])) {
        value = values_[at];
        return true;
      }
    }
    return false;
  }
  void remember(std::string_view pooled, Value value) {
    if (!is_plain(pooled)) return;
    texts_[next_] = pooled;
    values_[next_] = value;
    next_ = (next_ + 1) % texts_.size();
  }

 private:
  std::array<std::string_view, 2> texts_;
  std::array<Value, 2> values_{};
  std::size_t next_ = 0;
};

struct NameLevel;

struct LineName {
  std::string_view text;  // in the pool
  Name name = 0;
  Name column = 0;  // with what it is nested in, joined with '.'
  bool plain = false;
  bool dropped = false;               // by the options
  std::uint64_t seen = 0;             // in which line last
  std::array<LineName*, 2> next{};    // what followed it last
  LastTexts strings;                  // its values
  std::unique_ptr<NameLevel> fields;  // what is nested in it
};

// The names that objects at one place have. Too many are not remembered.
struct NameLevel {
  static constexpr std::size_t most = 4096;
  std::string prefix;  // of columns
  std::array<LineName*, 2> first{};
  std::unordered_map<std::string_view, std::unique_ptr<LineName>> names;
};

}  // namespace ttrace::invariant
