// SPDX-License-Identifier: Apache-2.0
#include "invariant/traincheck_line.hpp"

#include <simdjson.h>

#include <string>
#include <utility>
#include <vector>

#include "invariant/json_text.hpp"
#include "invariant/line_names.hpp"
#include "invariant/line_template.hpp"

namespace ttrace::invariant {

namespace ondemand = simdjson::ondemand;

namespace {

// Deeper lines take the slow way.
constexpr int deepest = 64;

}  // namespace

// Whatever returns false here leaves the line to read_slowly, which decides.
class TraincheckLine::Impl {
 public:
  Impl(Values& values, const ReadOptions& options)
      : values_(values), form_(values, options), templates_(form_, values) {}

  bool read(const char* line, std::size_t size, Record& record) {
    if (templates_.read({line, size}, record) && form_.complete(record)) return true;
    if (!read_anew(line, size, record) && !read_slowly(line, size, record)) return false;
    templates_.learn({line, size}, record);
    return true;
  }

  bool read_slowly(const char* line, std::size_t size, Record& record) {
    const std::optional<Value> value = parse_json({line, size}, values_);
    return value && form_.read(*value, record);
  }

 private:
  bool read_anew(const char* line, std::size_t size, Record& record) {
    record = {};
    fields_.clear();
    end_ = line + size;
    ++line_;
    ondemand::document document;
    if (parser_.iterate(line, size, size + line_padding).get(document) != simdjson::SUCCESS)
      return false;
    ondemand::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS) return false;
    bool empty = true;
    if (!read_fields(object, top_, record, empty)) return false;
    // Where the object ends, the line does.
    if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) return false;
    record.fields.assign(fields_.begin(), fields_.end());
    return form_.complete(record);
  }

  bool read_fields(ondemand::object& object, NameLevel& level, Record& record, bool& empty) {
    std::array<LineName*, 2>* expected = &level.first;
    for (auto entry : object) {
      ondemand::field field;
      if (std::move(entry).get(field) != simdjson::SUCCESS) return false;
      LineName* const name = find({field.key().raw(), end_}, level, *expected);
      // A name that comes twice, or that cannot be told from nested ones.
      if (name == nullptr || name->seen == line_ || name->dotted) return false;
      name->seen = line_;
      expected = &name->next;
      empty = false;
      if (!read_field(field.value(), level, *name, record)) return false;
    }
    return true;
  }

  bool read_field(ondemand::value& json, const NameLevel& level, LineName& name, Record& record) {
    Value value;
    Value* const typed = &level == &top_ ? form_.place_of_typed(name.name, record) : nullptr;
    ondemand::json_type type{};
    if (typed == nullptr && json.type().get(type) == simdjson::SUCCESS &&
        type == ondemand::json_type::object) {
      ondemand::object object;
      if (json.get_object().get(object) != simdjson::SUCCESS) return false;
      if (name.fields == nullptr) {
        name.fields = std::make_unique<NameLevel>();
        name.fields->prefix = std::string(values_.text(name.column)) + ".";
      }
      const std::size_t count = fields_.size();
      bool empty = true;
      if (!read_fields(object, *name.fields, record, empty)) return false;
      if (name.dropped) fields_.resize(count);
      if (!empty || name.dropped) return true;
      value = values_.object({});
    } else if (!read_value(json, &name, 0, value)) {
      return false;
    }
    if (name.dropped) return true;
    if (typed != nullptr) {
      *typed = value;
    } else {
      fields_.push_back({name.column, value});
    }
    return true;
  }

  bool read_value(ondemand::value& json, LineName* name, int depth, Value& value) {
    ondemand::json_type type{};
    if (json.type().get(type) != simdjson::SUCCESS) return false;
    switch (type) {
      case ondemand::json_type::string:
        return read_string(json, name, value);
      case ondemand::json_type::number:
        return read_number(json, value);
      case ondemand::json_type::boolean: {
        bool truth = false;
        if (json.get_bool().get(truth) != simdjson::SUCCESS) return false;
        value = boolean(truth);
        return true;
      }
      case ondemand::json_type::null: {
        bool null = false;
        value = none();
        return json.is_null().get(null) == simdjson::SUCCESS && null;
      }
      case ondemand::json_type::array:
        return depth < deepest && read_list(json, depth, value);
      default:
        return depth < deepest && read_object(json, name, depth, value);
    }
  }

  bool read_string(ondemand::value& json, LineName* name, Value& value) {
    ondemand::raw_json_string raw;
    if (json.get_raw_json_string().get(raw) != simdjson::SUCCESS) return false;
    const RawText text(raw.raw(), end_);
    if (name != nullptr && name->texts != nullptr && name->texts->find(text, value)) return true;
    std::string_view unescaped;
    if (!text.get(unescaped, buffer_)) return false;
    value = values_.string(unescaped);
    if (name == nullptr) return true;
    if (name->texts == nullptr) name->texts = std::make_unique<LastTexts>();
    name->texts->remember(values_.text(value), value);
    return true;
  }

  static bool read_number(ondemand::value& json, Value& value) {
    ondemand::number number;
    if (json.get_number().get(number) != simdjson::SUCCESS) return false;
    switch (number.get_number_type()) {
      case ondemand::number_type::signed_integer:
        value = integer(number.get_int64());
        break;
      case ondemand::number_type::unsigned_integer:
        value = real(static_cast<double>(number.get_uint64()));
        break;
      default:
        value = real(number.get_double());
    }
    return true;
  }

  bool read_list(ondemand::value& json, int depth, Value& value) {
    ondemand::array array;
    if (json.get_array().get(array) != simdjson::SUCCESS) return false;
    const std::size_t start = elements_.size();
    for (auto entry : array) {
      ondemand::value element;
      Value read;
      if (std::move(entry).get(element) != simdjson::SUCCESS ||
          !read_value(element, nullptr, depth + 1, read)) {
        elements_.resize(start);
        return false;
      }
      elements_.push_back(read);
    }
    value = values_.list(std::span(elements_).subspan(start));
    elements_.resize(start);
    return true;
  }

  bool read_object(ondemand::value& json, LineName* name, int depth, Value& value) {
    ondemand::object object;
    if (json.get_object().get(object) != simdjson::SUCCESS) return false;
    const std::size_t start = members_.size();
    const bool good = read_members(object, name == nullptr ? typed_.first : name->first, depth);
    if (good) value = values_.object(std::span(members_).subspan(start));
    members_.resize(start);
    return good;
  }

  bool read_members(ondemand::object& object, std::array<LineName*, 2>& first, int depth) {
    std::array<LineName*, 2>* expected = &first;
    for (auto entry : object) {
      ondemand::field field;
      if (std::move(entry).get(field) != simdjson::SUCCESS) return false;
      LineName* const name = find({field.key().raw(), end_}, typed_, *expected);
      if (name == nullptr) return false;
      expected = &name->next;
      Value value;
      if (!read_value(field.value(), name, depth + 1, value)) return false;
      if (!name->dropped) members_.push_back({name->name, value});
    }
    return true;
  }

  LineName* find(const RawText& raw, NameLevel& level, std::array<LineName*, 2>& expected) {
    for (LineName* const name : expected) {
      if (name != nullptr && name->is_plain && raw.is(name->plain)) return name;
    }
    std::string_view text;
    if (!raw.get(text, buffer_)) return nullptr;
    LineName* const name = look_up(text, level);
    expected = {name, expected[0]};
    return name;
  }

  LineName* look_up(std::string_view text, NameLevel& level) {
    const auto found = level.names.find(text);
    if (found != level.names.end()) return found->second.get();
    if (level.names.size() == NameLevel::most) return nullptr;
    auto name = std::make_unique<LineName>();
    name->name = values_.name(text);
    name->column =
        level.prefix.empty() ? name->name : values_.name(level.prefix + std::string(text));
    const std::string_view pooled = values_.text(name->name);
    name->is_plain = PlainText::fits(pooled);
    if (name->is_plain) name->plain = PlainText(pooled);
    name->dotted = pooled.find('.') != std::string_view::npos;
    name->dropped = form_.drops(pooled);
    return level.names.emplace(pooled, std::move(name)).first->second.get();
  }

  Values& values_;
  RecordForm form_;
  LineTemplates templates_;
  ondemand::parser parser_;
  NameLevel top_;
  NameLevel typed_;              // the names within typed values, wherever
  std::vector<Field> fields_;    // of this line
  std::vector<Value> elements_;  // of the lists that are being read, one after the other
  std::vector<Member> members_;  // of the objects
  std::string buffer_;
  const char* end_ = nullptr;  // of this line
  std::uint64_t line_ = 0;
};

TraincheckLine::TraincheckLine(Values& values, const ReadOptions& options)
    : impl_(std::make_unique<Impl>(values, options)) {}
TraincheckLine::~TraincheckLine() = default;

bool TraincheckLine::read(const char* line, std::size_t size, Record& record) {
  return impl_->read(line, size, record);
}
bool TraincheckLine::read_slowly(const char* line, std::size_t size, Record& record) {
  return impl_->read_slowly(line, size, record);
}

}  // namespace ttrace::invariant
