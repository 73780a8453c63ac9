// SPDX-License-Identifier: Apache-2.0
// An invariant as TrainCheck's files hold it (arXiv 2506.14813): a relation, its parameters and
// where it applies. Names here are those of the file format; invariant_file.hpp reads and writes
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "invariant/value.hpp"

namespace ttrace::invariant {

enum class ParamType : std::uint8_t { api, variable_type, variable_name, input_output };

struct Param {
  ParamType type = ParamType::api;
  Name api = 0;  // api_full_name, or api_name of input_output
  Value exception;
  Value arguments;                // object: name -> typed value
  Name variable = 0;              // var_name
  Name variable_type = 0;         // var_type
  Name attribute = 0;             // attr_name
  Value before, after, constant;  // pre_value, post_value, const_value
  Name name = 0;                  // input_output: "input_tensors", "output_tensors", an argument
  Value index;                    // integer or none
  Name value_type = 0;            // "torch.Tensor", "<class 'float'>"
  Value path;                     // additional_path: list or none
  bool is_input = false;
};

enum class ClauseType : std::uint8_t { constant, consistent, unequal, exist };

struct Clause {
  ClauseType type = ClauseType::constant;
  Name property = 0;          // a column of the records: "meta_vars.stage"
  Value path;                 // list of names within it; absent when there is none
  Name dtype = 0;             // the type's name in Python, as the file says it
  std::vector<Value> values;  // constant only
};

// Empty: unconditional.
using Conjunction = std::vector<Clause>;

// A disjunction; no conjunction at all is never true.
struct Condition {
  bool inverted = false;
  std::vector<Conjunction> any;
};

struct GroupCondition {
  Name group = 0;  // "parent_func_call_pre", "var", "pre_event", ...
  Condition condition;
};

struct Invariant {
  std::string text;  // text_description
  Name relation = 0;
  std::vector<Param> params;
  std::vector<GroupCondition> precondition;
  std::uint64_t positive_examples = 0;
  std::uint64_t negative_examples = 0;
  bool weak = false;  // may have held by chance: a violation alone says little
  Value source;       // the object that it was read from; absent when it was not
};

// A hypothesis that did not become one.
struct Rejected {
  std::string reason;
  Invariant invariant;  // without a precondition
  Value source;
};

}  // namespace ttrace::invariant
