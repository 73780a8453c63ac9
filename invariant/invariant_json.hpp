// SPDX-License-Identifier: Apache-2.0
// Invariants as the JSON objects of TrainCheck's files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "invariant/invariant.hpp"

namespace ttrace::invariant {

class InvariantForm {
 public:
  explicit InvariantForm(Values& values) : values_(values) {}

  // nullopt: it is none; why() then says what is wrong with it.
  [[nodiscard]] std::optional<Invariant> read(Value object);
  [[nodiscard]] std::optional<Rejected> read_rejected(Value object);
  [[nodiscard]] const std::string& why() const { return why_; }

  // What it was read from, as long as it still says the same; whatever else stood there stays.
  [[nodiscard]] Value write(const Invariant& invariant);
  [[nodiscard]] Value write(const Rejected& rejected);

  // From the fields alone.
  [[nodiscard]] Value params(const Invariant& invariant);
  [[nodiscard]] Value precondition(const Invariant& invariant);

 private:
  bool read_params(Value list, std::vector<Param>& params);
  bool read_param(Value object, Param& param);
  bool read_precondition(Value object, std::vector<GroupCondition>& groups);
  bool read_condition(Value object, Condition& condition);
  bool read_clause(Value object, Clause& clause);
  bool read_text(Value object, std::string_view key, Name& text);
  bool fail(std::string_view what, std::string_view key);
  Value get(Value object, std::string_view key) {
    return values_.member(object, values_.name(key));
  }

  Value param(const Param& param);
  Value condition(const Condition& condition);
  Value clause(const Clause& clause);
  Value written(const Invariant& invariant);
  Value written(const Rejected& rejected);
  Value with_rest_of(Value source, Value object);
  Value text(Name name) { return values_.string(values_.text(name)); }

  Values& values_;
  std::string why_;
};

}  // namespace ttrace::invariant
