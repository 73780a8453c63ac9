// SPDX-License-Identifier: Apache-2.0
// What makes a JSON object a record: the fields that each kind has.
#pragma once

#include <string_view>

#include "invariant/record.hpp"

namespace ttrace::invariant {

struct ReadOptions {
  // Fields that hold addresses ("_TRAINCHECK_data_ID", "_ML_DAIKON_data_ID"), in typed values, too.
  bool keep_ids = true;
};

class RecordForm {
 public:
  RecordForm(Values& values, const ReadOptions& options);

  // Fills what every record of its kind has from the fields; false when one is missing or of
  // another type.
  [[nodiscard]] bool complete(Record& record) const;
  // The record that an object is; false when it is none.
  [[nodiscard]] bool read(Value object, Record& record);

  [[nodiscard]] bool drops(std::string_view name) const;  // by the options
  // Typed values, which are not taken apart: at the top of a record only.
  [[nodiscard]] Value* place_of_typed(Name column, Record& record) const;

 private:
  bool flatten(Value object, std::string& prefix, Record& record);
  void add(Name column, Value value, Record& record);
  Value without_ids(Value value);

  Values& values_;
  ReadOptions options_;
  bool irregular_ = false;
  Name lowest_ = 0, highest_ = 0;  // of the next eight
  Name type_, function_, variable_, variable_type_, process_, thread_, time_, call_;
  Name pre_, post_, exception_, state_;
  Name args_, kwargs_, returns_;
};

}  // namespace ttrace::invariant
