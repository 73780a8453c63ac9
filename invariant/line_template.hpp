// SPDX-License-Identifier: Apache-2.0
// A line of JSON as a template for others: the same text but for its scalars, and the same
// function. A line that fits is read by comparing it with the template, where only scalars that
// differ are looked at. What a program does after one thing it did before, so templates know what
// came next.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "invariant/record_form.hpp"

namespace ttrace::invariant {

class LineTemplate {
 public:
  // False when the line cannot be one: too long, or with names that have escapes. `record` is what
  // it was read as.
  bool learn(std::string_view line, const Record& record, const RecordForm& form, Values& values);

  // False when the line does not fit, or a scalar of it needs a closer look. line_padding bytes
  // behind it can be read.
  bool read(std::string_view line, Values& values, Record& record);

  std::array<LineTemplate*, 4> next{};  // what the lines behind fitted, the latest first

 private:
  class Learner;

  struct Scalar {
    std::uint32_t begin, end;  // in the text, with quotes
  };
  // A value within the line. Its parts follow it.
  struct Node {
    Kind kind = Kind::absent;  // list, object; else a scalar
    std::uint32_t size = 1;    // with all that is in it
    Name name = 0;             // as a member of an object
    std::uint32_t first_scalar = 0, scalars = 0;
    bool distinct = false;  // an object with as many members as parts: no name comes twice
    Value value;
  };
  // A value that a record holds as it is.
  struct Target {
    std::uint32_t node;
    std::int32_t field;  // its number; args, kwargs and return_values are negative
  };
  struct Change {
    std::uint32_t scalar;
    Value value;
  };

  static std::uint32_t end_of(const Node& node) { return node.first_scalar + node.scalars; }
  bool compare(std::string_view line, Values& values);
  void apply(Values& values, Record& record);
  Value value_of(std::uint32_t node, Values& values);
  Value changed_object(std::uint32_t node, Values& values);
  // nullptr: there is none. For nodes in their order.
  const Change* change_in(const Node& node);
  static Value* place(Record& record, std::int32_t field);

  std::string text_;  // and line_padding bytes
  std::size_t size_ = 0;
  std::vector<Scalar> scalars_;
  std::vector<Node> nodes_;
  std::vector<Target> targets_;
  Record record_;
  // Of the line that is being read.
  std::vector<Change> changes_;
  std::size_t change_ = 0;  // the first that later nodes can have
  std::vector<Value> elements_;
  std::vector<Member> members_;
};

// Templates of the lines so far.
class LineTemplates {
 public:
  LineTemplates(const RecordForm& form, Values& values) : form_(form), values_(values) {}

  // False when no template fits.
  bool read(std::string_view line, Record& record);
  // The line that read() has just given up, and what it is.
  void learn(std::string_view line, const Record& record);

 private:
  bool read_by(LineTemplate* candidate, std::string_view line, Record& record);

  const RecordForm& form_;
  Values& values_;
  std::unordered_map<std::uint64_t, std::unique_ptr<LineTemplate>> by_shape_;  // or nullptr
  LineTemplate* latest_ = nullptr;
  std::uint64_t shape_ = 0;  // of the line that no template fitted; 0: not to be learnt
};

}  // namespace ttrace::invariant
