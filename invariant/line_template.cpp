// SPDX-License-Identifier: Apache-2.0
#include "invariant/line_template.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "invariant/json_text.hpp"
#include "invariant/line_scan.hpp"
#include "invariant/traincheck_line.hpp"

namespace ttrace::invariant {

namespace {

constexpr std::size_t longest = std::size_t{1} << 13, most_templates = 1024;
constexpr std::int32_t args_place = -1, kwargs_place = -2, returns_place = -3;

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
        if (text == fixed_name) fix_latest();
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
