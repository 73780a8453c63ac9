// SPDX-License-Identifier: Apache-2.0
#include "invariant/traincheck_line.hpp"

#include <simdjson.h>

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "invariant/json_text.hpp"
#include "invariant/line_template.hpp"

namespace ttrace::invariant {

namespace dom = simdjson::dom;

class TraincheckLine::Impl {
 public:
  Impl(Values& values, const ReadOptions& options)
      : values_(values), form_(values, options), templates_(form_, values) {}

  bool read(const char* line, std::size_t size, Record& record) {
    if (templates_.read({line, size}, record) && form_.complete(record)) return true;
    if (!read_anew(line, size, record)) return false;
    templates_.learn({line, size}, record);
    return true;
  }

  bool read_slowly(const char* line, std::size_t size, Record& record) {
    const std::optional<Value> value = parse_json({line, size}, values_);
    return value && form_.read(*value, record);
  }

 private:
  bool read_anew(const char* line, std::size_t size, Record& record) {
    dom::element element;
    // Not to be copied: the padding is there.
    if (parser_.parse(line, size, false).get(element) != simdjson::SUCCESS)
      return read_slowly(line, size, record);
    return form_.read(value_of(element), record);
  }

  // Its depth is that of the parser, 1024 at most.
  Value value_of(const dom::element& element) {
    switch (element.type()) {
      case dom::element_type::ARRAY:
        return list_of(element);
      case dom::element_type::OBJECT:
        return object_of(element);
      case dom::element_type::INT64:
        return integer(element.get_int64().value_unsafe());
      case dom::element_type::UINT64:  // only those that int64 does not hold
        return real(static_cast<double>(element.get_uint64().value_unsafe()));
      case dom::element_type::DOUBLE:
        return real(element.get_double().value_unsafe());
      case dom::element_type::STRING:
        return values_.string(element.get_string().value_unsafe());
      case dom::element_type::BOOL:
        return boolean(element.get_bool().value_unsafe());
      default:
        return none();
    }
  }

  Value list_of(const dom::element& element) {
    const std::size_t start = elements_.size();
    const dom::array parts = element.get_array().value_unsafe();
    for (const dom::element part : parts) {
      const Value value = value_of(part);
      elements_.push_back(value);
    }
    const Value list = values_.list(std::span(elements_).subspan(start));
    elements_.resize(start);
    return list;
  }

  Value object_of(const dom::element& element) {
    const std::size_t start = members_.size();
    const dom::object parts = element.get_object().value_unsafe();
    for (const dom::key_value_pair part : parts) {
      const Value value = value_of(part.value);
      members_.push_back({values_.name(part.key), value});
    }
    const Value object = values_.object(std::span(members_).subspan(start));
    members_.resize(start);
    return object;
  }

  Values& values_;
  RecordForm form_;
  LineTemplates templates_;
  dom::parser parser_;
  std::vector<Value> elements_;  // of the lists that are being read, one after the other
  std::vector<Member> members_;  // of the objects
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
