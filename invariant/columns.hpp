// SPDX-License-Identifier: Apache-2.0
// What the columns of records mean, by name; looked up once a name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "invariant/value.hpp"

namespace ttrace::invariant {

enum class Column : std::uint8_t {
  unknown,  // not looked up yet
  other,
  step,       // "meta_vars.step"
  stage,      // "meta_vars.stage"
  counter,    // other variables of the loop that count: "meta_vars.eval_step"
  meta,       // other variables of the loop
  mode,       // "mode": how a state came to be recorded
  location,   // "dump_loc"
  object,     // "obj_id"
  attribute,  // of a variable: "attributes.requires_grad"
  flag,       // likewise, but "attributes.is_cuda", which no change of is of interest
  content,    // likewise, but what a tensor holds: "attributes.data", "attributes.grad"
  identity,   // addresses and the like: "attributes._TRAINCHECK_data_ID"
};

class Columns {
 public:
  explicit Columns(Values& values) : values_(&values) {}
  [[nodiscard]] Column of(Name column);
  // "attributes.requires_grad" -> "requires_grad"
  [[nodiscard]] Name attribute(Name column);

 private:
  Values* values_;
  std::vector<Column> columns_;
  std::vector<Name> attributes_;  // 0: not looked up yet
};

// Attributes that training decides on. The others say where a library runs, or follow from these.
[[nodiscard]] bool is_of_interest(std::string_view attribute);
// What a tensor holds: "data", "grad" and their statistics.
[[nodiscard]] bool is_content(std::string_view attribute);

// Addresses and what else names objects of one run.
[[nodiscard]] bool is_identity(std::string_view name);

}  // namespace ttrace::invariant
