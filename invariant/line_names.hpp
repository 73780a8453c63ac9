// SPDX-License-Identifier: Apache-2.0
// Names and texts in JSON that resemble those before them: each is compared with what stood at its
// place the last times before it is looked up.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "invariant/json_text.hpp"
#include "invariant/value.hpp"

namespace ttrace::invariant {

// A text of the pool without quotes and backslashes, so that it stands in JSON as it is. Short ones
// are copied, so that they can be compared by words.
class PlainText {
 public:
  static constexpr std::size_t most = 24;

  PlainText() = default;
  explicit PlainText(std::string_view pooled) : size_(pooled.size()), data_(pooled.data()) {
    if (size_ > 0 && size_ <= most) std::memcpy(copy_.data(), data_, size_);
  }
  [[nodiscard]] static bool fits(std::string_view text) {
    return text.find_first_of("\"\\") == std::string_view::npos;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const char* data() const { return size_ <= most ? copy_.data() : data_; }

 private:
  std::size_t size_ = 0;
  const char* data_ = nullptr;
  std::array<char, most + 8> copy_{};
};

// A string in JSON from behind its first quote on. Its last quote lies before `end`.
class RawText {
 public:
  RawText(const char* begin, const char* end) : begin_(begin), end_(end) {}

  [[nodiscard]] bool is(const PlainText& text) const {
    const std::size_t size = text.size();
    if (size >= static_cast<std::size_t>(end_ - begin_) || begin_[size] != '"') return false;
    const char* const known = text.data();
    if (size > PlainText::most) return std::memcmp(begin_, known, size) == 0;
    for (std::size_t at = 0; at < size; at += 8) {  // what lies behind the end is masked
      const std::uint64_t mask =
          size - at >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (size - at) * 8) - 1;
      if (((word(begin_ + at) ^ word(known + at)) & mask) != 0) return false;
    }
    return true;
  }
  // False when it holds a wrong escape. `text` is in the JSON, or in `buffer`.
  [[nodiscard]] bool get(std::string_view& text, std::string& buffer) const {
    const char* stop = quote_from(begin_);
    if (stop == nullptr) return false;
    text = {begin_, static_cast<std::size_t>(stop - begin_)};
    if (std::memchr(text.data(), '\\', text.size()) == nullptr) return true;
    for (stop = begin_; stop < end_ && *stop != '"';) stop += *stop == '\\' ? 2 : 1;
    if (stop >= end_) return false;
    text = {begin_, static_cast<std::size_t>(stop - begin_)};
    if (!unescape(text, buffer)) return false;
    text = buffer;
    return true;
  }

 private:
  [[nodiscard]] const char* quote_from(const char* place) const {
    return static_cast<const char*>(
        std::memchr(place, '"', static_cast<std::size_t>(end_ - place)));
  }
  static std::uint64_t word(const char* bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }

  const char* begin_;
  const char* end_;
};

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
    if (!PlainText::fits(pooled)) return;
    texts_[next_] = PlainText(pooled);
    values_[next_] = value;
    next_ = (next_ + 1) % texts_.size();
  }

 private:
  std::array<PlainText, 2> texts_;
  std::array<Value, 2> values_{};
  std::size_t next_ = 0;
};

struct LineName;

// The names that objects at one place have. Too many are not remembered.
struct NameLevel {
  static constexpr std::size_t most = 4096;
  std::string prefix;  // of columns
  std::array<LineName*, 2> first{};
  std::unordered_map<std::string_view, std::unique_ptr<LineName>> names;
};

struct LineName {
  PlainText plain;
  bool is_plain = false;
  bool dropped = false;  // by the options
  bool dotted = false;   // holds a '.'
  Name name = 0;
  Name column = 0;                    // with what it is nested in, joined with '.'
  std::uint64_t seen = 0;             // in which line last
  std::array<LineName*, 2> next{};    // what followed it last
  std::array<LineName*, 2> first{};   // the first in an object of its within a typed value, last
  std::unique_ptr<LastTexts> texts;   // its values
  std::unique_ptr<NameLevel> fields;  // what is nested in it
};

}  // namespace ttrace::invariant
