// SPDX-License-Identifier: Apache-2.0
#include "invariant/line_template.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "invariant/json_text.hpp"
#include "invariant/traincheck_line.hpp"

namespace ttrace::invariant {

namespace {

constexpr std::size_t longest = std::size_t{1} << 13, most_templates = 1024;
constexpr std::string_view fixed_name = "\"function\"";  // its value is the same in all lines
constexpr std::int32_t args_place = -1, kwargs_place = -2, returns_place = -3;
constexpr std::uint64_t every_byte = 0x0101010101010101U, high_bits = 0x8080808080808080U;

std::uint64_t word_at(const char* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// How many bytes are the same, `limit` at most; eight bytes more can be read.
std::size_t common(const char* a, const char* b, std::size_t limit) {
  static_assert(std::endian::native == std::endian::little);
  for (std::size_t at = 0; at < limit; at += 8) {
    const std::uint64_t other = word_at(a + at) ^ word_at(b + at);
    if (other != 0)
      return std::min(limit, at + static_cast<std::size_t>(std::countr_zero(other)) / 8);
  }
  return limit;
}

// ASCII without control characters, quotes and backslashes: it stands in JSON as it is.
bool is_plain(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    const std::uint64_t word = word_at(text.data() + at);
    const std::uint64_t control = (word - 0x20 * every_byte) & ~word;
    const std::uint64_t slashes = word ^ '\\' * every_byte;
    if (((word | control | ((slashes - every_byte) & ~slashes)) & high_bits) != 0) return false;
  }
  return std::ranges::all_of(text.substr(at), [](char letter) {
    return letter >= ' ' && letter != '\\';  // bytes above 127 are negative
  });
}

// Where the string that begins at `at` ends, behind its quote; 0 when it does not.
std::size_t end_of_string(std::string_view line, std::size_t at) {
  for (++at; at < line.size() && line[at] != '"'; ++at) at += line[at] == '\\' ? 1 : 0;
  return at < line.size() ? at + 1 : 0;
}

bool is_in_word(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
         (letter >= 'A' && letter <= 'Z') || letter == '-' || letter == '+' || letter == '.';
}

// Numbers, true, false, null, NaN and the like.
std::size_t end_of_word(std::string_view line, std::size_t at) {
  while (at < line.size() && is_in_word(line[at])) ++at;
  return at;
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

// The scalar that begins at `at`, which then is behind it.
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

// Where the scalar at `at`, if there is one, ends.
std::size_t end_of_scalar(std::string_view line, std::size_t at) {
  if (at >= line.size()) return line.size();
  const std::size_t end = line[at] == '"' ? end_of_string(line, at) : end_of_word(line, at);
  return std::max(at, end);
}

// The hash of all but the scalars: of lines that may fit the same template.
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
        const bool fixed = line.substr(at, end - at) == fixed_name;
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

}  // namespace

// Walks through a line that is known to be JSON.
class LineTemplate::Learner {
 public:
  Learner(LineTemplate& target, std::string_view line, const RecordForm& form, Values& values)
      : target_(target), line_(line), form_(form), values_(values) {}

  bool learn() {
    skip_space();
    return fields(0) && (skip_space(), at_ == line_.size());
  }

 private:
  void skip_space() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r'))
      ++at_;
  }
  bool take(char letter) {
    skip_space();
    if (at_ == line_.size() || line_[at_] != letter) return false;
    ++at_;
    return true;
  }

  bool name(std::string_view& text) {
    skip_space();
    if (at_ == line_.size() || line_[at_] != '"') return false;
    const std::size_t end = end_of_string(line_, at_);
    if (end == 0) return false;
    text = line_.substr(at_ + 1, end - at_ - 2);
    at_ = end;
    return is_plain(text) && take(':') && (skip_space(), at_ < line_.size());
  }

  // The members of an object that records hold as fields.
  bool fields(int depth) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      std::string_view text;
      if (!name(text)) return false;
      const std::int32_t typed = depth == 0 ? place_of(text) : 0;
      std::size_t next = at_;
      if (line_[at_] == '{') next = line_.find_first_not_of(" \t\r", at_ + 1);
      const bool nested = next != at_ && next != std::string_view::npos && line_[next] != '}';
      if (form_.drops(text)) {
        if (!node(0, 0)) return false;
      } else if (nested && typed == 0) {
        if (depth > 8 || !fields(depth + 1)) return false;
      } else {
        target_.targets_.push_back(
            {static_cast<std::uint32_t>(target_.nodes_.size()), typed != 0 ? typed : field_++});
        if (!node(0, 0)) return false;
        if (fixed_name.substr(1, text.size()) == text && text.size() == fixed_name.size() - 2)
          fix_latest();
      }
    } while (take(','));
    return take('}');
  }

  // The latest node's scalar is no longer one that may change.
  void fix_latest() {
    Node& latest = target_.nodes_.back();
    if (latest.kind != Kind::absent) return;
    target_.scalars_.pop_back();
    latest.scalars = 0;
  }

  static std::int32_t place_of(std::string_view name) {
    return name == "args"            ? args_place
           : name == "kwargs"        ? kwargs_place
           : name == "return_values" ? returns_place
                                     : 0;
  }

  bool node(Name name, int depth) {
    const std::size_t number = target_.nodes_.size();
    const auto first = static_cast<std::uint32_t>(target_.scalars_.size());
    Node& begun = target_.nodes_.emplace_back();
    begun.name = name;
    begun.first_scalar = first;
    Value value;
    const char letter = line_[at_];
    const bool whole = letter != '{' && letter != '[';
    if (depth > 32 || !(whole ? scalar(value) : parts(letter == '{', depth, value))) return false;
    Node& made = target_.nodes_[number];
    made.kind = whole ? Kind::absent : value.kind;
    made.size = static_cast<std::uint32_t>(target_.nodes_.size() - number);
    made.scalars = static_cast<std::uint32_t>(target_.scalars_.size()) - first;
    made.value = value;
    if (value.kind == Kind::object) made.distinct = values_.members(value).size() == parts_;
    return true;
  }

  bool scalar(Value& value) {
    const std::size_t begin = at_;
    at_ = line_[at_] == '"' ? end_of_string(line_, at_) : end_of_word(line_, at_);
    if (at_ <= begin) return false;
    const std::optional<Value> read = parse_json(line_.substr(begin, at_ - begin), values_);
    if (read) value = *read;
    target_.scalars_.push_back(
        {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(at_)});
    return read.has_value();
  }

  bool parts(bool object, int depth, Value& value) {
    const char last = object ? '}' : ']';
    std::vector<Member> members;
    std::vector<Value> elements;
    ++at_;
    if (!take(last)) {
      do {
        std::string_view text;
        if (object && !name(text)) return false;
        skip_space();
        if (at_ == line_.size()) return false;
        const std::size_t number = target_.nodes_.size();
        const Name own = object ? values_.name(text) : 0;
        if (!node(own, depth + 1)) return false;
        if (object && form_.drops(text)) {
          target_.nodes_.resize(number);
        } else {
          members.push_back({own, target_.nodes_[number].value});
          elements.push_back(target_.nodes_[number].value);
        }
      } while (take(','));
      if (!take(last)) return false;
    }
    value = object ? values_.object(members) : values_.list(elements);
    parts_ = elements.size();
    return true;
  }

  LineTemplate& target_;
  std::string_view line_;
  const RecordForm& form_;
  Values& values_;
  std::size_t at_ = 0;
  std::int32_t field_ = 0;
  std::size_t parts_ = 0;  // of the latest list or object
};

Value* LineTemplate::place(Record& record, std::int32_t field) {
  switch (field) {
    case args_place:
      return &record.args;
    case kwargs_place:
      return &record.kwargs;
    case returns_place:
      return &record.returns;
    default:
      return &record.fields[static_cast<std::size_t>(field)].value;
  }
}

bool LineTemplate::learn(std::string_view line, const Record& record, const RecordForm& form,
                         Values& values) {
  if (record.original.present()) return false;
  text_.assign(line).append(line_padding, '\0');
  size_ = line.size();
  record_ = record;
  if (!Learner(*this, line, form, values).learn()) return false;
  // What stands in the record must be what was found here: names that come twice, for one, are not.
  std::size_t fields = 0;
  for (const Target& target : targets_) {
    fields += target.field >= 0 ? 1 : 0;
    if (fields > record_.fields.size() ||
        !identical(*place(record_, target.field), nodes_[target.node].value))
      return false;
  }
  return fields == record_.fields.size();
}

bool LineTemplate::read(std::string_view line, Values& values, Record& record) {
  if (!compare(line, values)) return false;
  record = record_;
  apply(values, record);
  return true;
}

// Finds the changes.
bool LineTemplate::compare(std::string_view line, Values& values) {
  changes_.clear();
  std::size_t at = 0, own = 0;  // in the line, in the text
  for (auto scalar = scalars_.begin();;) {
    const std::size_t same =
        common(line.data() + at, text_.data() + own, std::min(line.size() - at, size_ - own));
    at += same;
    own += same;
    if (at == line.size() && own == size_) return true;
    while (scalar != scalars_.end() && scalar->end < own) ++scalar;
    if (scalar == scalars_.end() || scalar->begin > own) return false;
    at -= own - scalar->begin;
    Value value;
    if (!read_scalar(line, at, values, value)) return false;
    own = scalar->end;
    changes_.push_back({static_cast<std::uint32_t>(scalar - scalars_.begin()), value});
    ++scalar;
  }
}

void LineTemplate::apply(Values& values, Record& record) {
  change_ = 0;
  for (const Target& target : targets_) {
    if (change_in(nodes_[target.node]) != nullptr)
      *place(record, target.field) = value_of(target.node, values);
  }
}

const LineTemplate::Change* LineTemplate::change_in(const Node& node) {
  while (change_ < changes_.size() && changes_[change_].scalar < node.first_scalar) ++change_;
  if (change_ == changes_.size()) return nullptr;
  const Change& change = changes_[change_];
  return change.scalar < end_of(node) ? &change : nullptr;
}

Value LineTemplate::value_of(std::uint32_t number, Values& values) {
  const Node& node = nodes_[number];
  const Change* const change = change_in(node);
  if (change == nullptr) return node.value;
  if (node.kind == Kind::absent) return change->value;
  if (node.distinct) return changed_object(number, values);
  const bool object = node.kind == Kind::object;
  const std::size_t members = members_.size(), elements = elements_.size();
  for (std::uint32_t part = number + 1; part < number + node.size; part += nodes_[part].size) {
    const Value value = value_of(part, values);
    if (object) {
      members_.push_back({nodes_[part].name, value});
    } else {
      elements_.push_back(value);
    }
  }
  const Value value = object ? values.object(std::span(members_).subspan(members))
                             : values.list(std::span(elements_).subspan(elements));
  members_.resize(members);
  elements_.resize(elements);
  return value;
}

// The members as they were, but for those with a change.
Value LineTemplate::changed_object(std::uint32_t number, Values& values) {
  const Node& node = nodes_[number];
  const std::size_t start = members_.size();
  const std::span<const Member> before = values.members(node.value);
  members_.insert(members_.end(), before.begin(), before.end());
  std::size_t member = start;
  std::uint32_t part = number + 1;
  while (const Change* const change = change_in(node)) {
    while (part < number + node.size && end_of(nodes_[part]) <= change->scalar) {
      part += nodes_[part].size;
      ++member;
    }
    if (part == number + node.size || nodes_[part].first_scalar > change->scalar) {
      ++change_;  // of a part that is left out
      continue;
    }
    const Value value = value_of(part, values);
    members_[member].value = value;
    while (change_ < changes_.size() && changes_[change_].scalar < end_of(nodes_[part])) ++change_;
  }
  const Value value = values.object(std::span(members_).subspan(start));
  members_.resize(start);
  return value;
}

bool LineTemplates::read_by(LineTemplate* candidate, std::string_view line, Record& record) {
  if (candidate == nullptr || !candidate->read(line, values_, record)) return false;
  if (latest_ != nullptr) {  // to the front
    LineTemplate* moved = candidate;
    for (LineTemplate*& place : latest_->next) {
      std::swap(moved, place);
      if (moved == candidate) break;
    }
  }
  latest_ = candidate;
  return true;
}

bool LineTemplates::read(std::string_view line, Record& record) {
  shape_ = 0;
  if (line.size() > longest) return false;
  if (latest_ != nullptr) {
    const auto expected = latest_->next;
    for (LineTemplate* const candidate : expected) {
      if (read_by(candidate, line, record)) return true;
    }
  }
  const std::uint64_t shape = shape_of(line);
  const auto found = by_shape_.find(shape);
  if (found == by_shape_.end()) {
    shape_ = shape;
    return false;
  }
  return read_by(found->second.get(), line, record);
}

void LineTemplates::learn(std::string_view line, const Record& record) {
  if (shape_ == 0 || by_shape_.size() >= most_templates) return;
  auto made = std::make_unique<LineTemplate>();
  if (!made->learn(line, record, form_, values_)) made = nullptr;
  by_shape_[shape_] = std::move(made);
}

}  // namespace ttrace::invariant
