// SPDX-License-Identifier: Apache-2.0
#include "invariant/invariant_json.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace ttrace::invariant {

namespace {

constexpr std::array<std::pair<ParamType, std::string_view>, 4> param_types{{
    {ParamType::api, "APIParam"},
    {ParamType::variable_type, "VarTypeParam"},
    {ParamType::variable_name, "VarNameParam"},
    {ParamType::input_output, "InputOutputParam"},
}};
constexpr std::array<std::pair<ClauseType, std::string_view>, 4> clause_types{{
    {ClauseType::constant, "constant"},
    {ClauseType::consistent, "consistent"},
    {ClauseType::unequal, "unequal"},
    {ClauseType::exist, "exist"},
}};

template <class Table, class Type>
bool find_type(const Table& table, std::string_view name, Type& type) {
  const auto found = std::ranges::find(table, name, &Table::value_type::second);
  if (found != table.end()) type = found->first;
  return found != table.end();
}
template <class Table, class Type>
std::string_view name_of(const Table& table, Type type) {
  return std::ranges::find(table, type, &Table::value_type::first)->second;
}

// null, and nothing at all, mean that it was not counted.
bool read_count(Value value, std::uint64_t& count) {
  if (!value.present() || value.kind == Kind::none) return true;
  if (value.kind != Kind::integer || value.integer < 0) return false;
  count = static_cast<std::uint64_t>(value.integer);
  return true;
}

// Of which a rejected hypothesis has its counts once more within.
constexpr std::array<std::string_view, 3> counted_within{
    "APIContainRelation", "ConsistentOutputRelation", "ConsistentInputOutputRelation"};

Value count(std::uint64_t number) { return integer(static_cast<std::int64_t>(number)); }

// Members of an object in the making.
class Members {
 public:
  explicit Members(Values& values) : values_(values) {}
  Members& add(std::string_view name, Value value) {
    if (value.present()) members_.push_back({values_.name(name), value});
    return *this;
  }
  [[nodiscard]] Value object() { return values_.object(members_); }

 private:
  Values& values_;
  std::vector<Member> members_;
};

}  // namespace

bool InvariantForm::fail(std::string_view what, std::string_view key) {
  why_ = std::string(what) + " '" + std::string(key) + "'";
  return false;
}

bool InvariantForm::read_text(Value object, std::string_view key, Name& text) {
  const Value value = get(object, key);
  if (value.kind != Kind::string) return fail("no text under", key);
  text = value.ref;
  return true;
}

std::optional<Invariant> InvariantForm::read(Value object) {
  Invariant invariant;
  invariant.source = object;
  const Value described = get(object, "text_description");
  if (described.kind == Kind::string) invariant.text = values_.text(described);
  if (object.kind != Kind::object) {
    why_ = "no JSON object";
    return std::nullopt;
  }
  if (!read_text(object, "relation", invariant.relation) ||
      !read_params(get(object, "params"), invariant.params) ||
      !read_precondition(get(object, "precondition"), invariant.precondition)) {
    return std::nullopt;
  }
  for (const auto& [key, number] :
       {std::pair("num_positive_examples", &invariant.positive_examples),
        {"num_negative_examples", &invariant.negative_examples}}) {
    if (read_count(get(object, key), *number)) continue;
    fail("no number under", key);
    return std::nullopt;
  }
  const Value weak = get(object, "weak");
  invariant.weak = weak.kind == Kind::boolean && weak.boolean;
  return invariant;
}

std::optional<Rejected> InvariantForm::read_rejected(Value object) {
  const Value reason = get(object, "failed_reason");
  if (reason.kind != Kind::string) {
    fail("no text under", "failed_reason");
    return std::nullopt;
  }
  const Value inner = get(object, "invariant");
  Rejected rejected{std::string(values_.text(reason)), {}, object};
  Invariant& invariant = rejected.invariant;
  invariant.source = inner;
  const Value described = get(inner, "text_description");
  if (described.kind == Kind::string) invariant.text = values_.text(described);
  if (!read_text(inner, "relation", invariant.relation) ||
      !read_params(get(inner, "params"), invariant.params)) {
    return std::nullopt;
  }
  for (const auto& [key, number] :
       {std::pair("num_positive_examples", &invariant.positive_examples),
        {"num_negative_examples", &invariant.negative_examples}}) {
    if (read_count(get(object, key), *number)) continue;
    fail("no number under", key);
    return std::nullopt;
  }
  return rejected;
}

bool InvariantForm::read_params(Value list, std::vector<Param>& params) {
  if (list.kind != Kind::list) return fail("no list under", "params");
  for (const Value object : values_.elements(list)) {
    if (!read_param(object, params.emplace_back())) return false;
  }
  return true;
}

bool InvariantForm::read_param(Value object, Param& param) {
  Name type = 0;
  if (!read_text(object, "param_type", type)) return false;
  if (!find_type(param_types, values_.text(type), param.type))
    return fail("unknown param_type", values_.text(type));
  switch (param.type) {
    case ParamType::api:
      param.exception = get(object, "exception");
      param.arguments = get(object, "arguments");
      return read_text(object, "api_full_name", param.api);
    case ParamType::variable_name:
      if (!read_text(object, "var_name", param.variable)) return false;
      [[fallthrough]];
    case ParamType::variable_type:
      param.before = get(object, "pre_value");
      param.after = get(object, "post_value");
      param.constant = get(object, "const_value");
      return read_text(object, "var_type", param.variable_type) &&
             read_text(object, "attr_name", param.attribute);
    case ParamType::input_output:
      break;
  }
  param.index = get(object, "index");
  param.path = get(object, "additional_path");
  const Value input = get(object, "is_input");
  if (input.kind != Kind::boolean) return fail("neither true nor false under", "is_input");
  param.is_input = input.boolean;
  return read_text(object, "name", param.name) && read_text(object, "type", param.value_type) &&
         read_text(object, "api_name", param.api);
}

bool InvariantForm::read_precondition(Value object, std::vector<GroupCondition>& groups) {
  if (object.kind != Kind::object) return fail("no object under", "precondition");
  for (const Member& member : values_.members(object)) {
    groups.push_back({member.name, {}});
    if (!read_condition(member.value, groups.back().condition)) return false;
  }
  return true;
}

bool InvariantForm::read_condition(Value object, Condition& condition) {
  const Value inverted = get(object, "inverted");
  if (inverted.present() && inverted.kind != Kind::boolean)
    return fail("neither true nor false under", "inverted");
  condition.inverted = inverted.present() && inverted.boolean;
  const Value any = get(object, "preconditions");
  if (any.kind != Kind::list) return fail("no list under", "preconditions");
  for (const Value all : values_.elements(any)) {
    Conjunction& conjunction = condition.any.emplace_back();
    const Value clauses = get(all, "clauses");
    if (clauses.kind == Kind::string && values_.text(clauses) == "Unconditional") continue;
    if (clauses.kind != Kind::list) return fail("no list under", "clauses");
    for (const Value clause : values_.elements(clauses)) {
      if (!read_clause(clause, conjunction.emplace_back())) return false;
    }
  }
  return true;
}

bool InvariantForm::read_clause(Value object, Clause& clause) {
  Name type = 0;
  if (!read_text(object, "type", type)) return false;
  if (!find_type(clause_types, values_.text(type), clause.type))
    return fail("unknown type of clause", values_.text(type));
  if (!read_text(object, "prop_name", clause.property)) return false;
  const Value dtype = get(object, "prop_dtype");
  clause.dtype = dtype.kind == Kind::string ? dtype.ref : values_.name("None");
  const Value path = get(object, "additional_path");
  if (path.kind == Kind::list) {
    clause.path = path;
  } else if (path.kind == Kind::string && values_.text(path) != "None") {
    return fail("no path under", "additional_path");
  }
  if (clause.type != ClauseType::constant) return true;
  const Value list = get(object, "values");
  if (list.kind != Kind::list) return fail("no list under", "values");
  const std::span<const Value> elements = values_.elements(list);
  clause.values.assign(elements.begin(), elements.end());
  return true;
}

Value InvariantForm::params(const Invariant& invariant) {
  std::vector<Value> list;
  for (const Param& entry : invariant.params) list.push_back(param(entry));
  return values_.list(list);
}

Value InvariantForm::param(const Param& param) {
  Members members(values_);
  members.add("param_type", values_.string(name_of(param_types, param.type)));
  switch (param.type) {
    case ParamType::api:
      members.add("api_full_name", text(param.api))
          .add("exception", param.exception)
          .add("arguments", param.arguments);
      break;
    case ParamType::variable_name:
      members.add("var_name", text(param.variable));
      [[fallthrough]];
    case ParamType::variable_type:
      members.add("var_type", text(param.variable_type))
          .add("attr_name", text(param.attribute))
          .add("pre_value", param.before)
          .add("post_value", param.after)
          .add("const_value", param.constant);
      break;
    case ParamType::input_output:
      members.add("name", text(param.name))
          .add("index", param.index.present() ? param.index : none())
          .add("type", text(param.value_type))
          .add("additional_path", param.path.present() ? param.path : none())
          .add("api_name", text(param.api))
          .add("is_input", boolean(param.is_input));
  }
  return members.object();
}

Value InvariantForm::precondition(const Invariant& invariant) {
  std::vector<Member> groups;
  for (const GroupCondition& group : invariant.precondition)
    groups.push_back({group.group, condition(group.condition)});
  return values_.object(groups);
}

Value InvariantForm::condition(const Condition& condition) {
  std::vector<Value> any;
  for (const Conjunction& conjunction : condition.any) {
    std::vector<Value> clauses;
    for (const Clause& entry : conjunction) clauses.push_back(clause(entry));
    any.push_back(Members(values_)
                      .add("clauses", clauses.empty() ? values_.string("Unconditional")
                                                      : values_.list(clauses))
                      .object());
  }
  return Members(values_)
      .add("inverted", boolean(condition.inverted))
      .add("preconditions", values_.list(any))
      .object();
}

Value InvariantForm::clause(const Clause& clause) {
  Members members(values_);
  members.add("type", values_.string(name_of(clause_types, clause.type)))
      .add("prop_name", text(clause.property))
      .add("additional_path", clause.path.present() ? clause.path : values_.string("None"))
      .add("prop_dtype", text(clause.dtype));
  if (clause.type == ClauseType::constant) members.add("values", values_.list(clause.values));
  return members.object();
}

Value InvariantForm::written(const Invariant& invariant) {
  Members members(values_);
  members.add("text_description", values_.string(invariant.text))
      .add("relation", text(invariant.relation))
      .add("params", params(invariant))
      .add("precondition", precondition(invariant))
      .add("num_positive_examples", count(invariant.positive_examples))
      .add("num_negative_examples", count(invariant.negative_examples));
  if (invariant.weak) members.add("weak", boolean(true));
  return members.object();
}

Value InvariantForm::written(const Rejected& rejected) {
  const Invariant& invariant = rejected.invariant;
  const bool counted =
      std::ranges::find(counted_within, values_.text(invariant.relation)) != counted_within.end();
  const Value inner =
      Members(values_)
          .add("text_description", values_.string(invariant.text))
          .add("relation", text(invariant.relation))
          .add("params", params(invariant))
          .add("precondition", values_.string("Failed"))
          .add("num_positive_examples", counted ? count(invariant.positive_examples) : none())
          .add("num_negative_examples", counted ? count(invariant.negative_examples) : none())
          .object();
  return Members(values_)
      .add("failed_reason", values_.string(rejected.reason))
      .add("invariant", inner)
      .add("num_positive_examples", count(invariant.positive_examples))
      .add("num_negative_examples", count(invariant.negative_examples))
      .object();
}

// Members of the source that the object does not have go behind its own.
Value InvariantForm::with_rest_of(Value source, Value object) {
  const std::span<const Member> own = values_.members(object);
  std::vector<Member> members(own.begin(), own.end());
  for (const Member& member : values_.members(source)) {
    if (!values_.member(object, member.name).present()) members.push_back(member);
  }
  return values_.object(members);
}

Value InvariantForm::write(const Invariant& invariant) {
  const Value now = written(invariant);
  const std::optional<Invariant> before = read(invariant.source);
  if (before && identical(written(*before), now)) return invariant.source;
  return with_rest_of(invariant.source, now);
}

Value InvariantForm::write(const Rejected& rejected) {
  const Value now = written(rejected);
  const std::optional<Rejected> before = read_rejected(rejected.source);
  if (before && identical(written(*before), now)) return rejected.source;
  return with_rest_of(rejected.source, now);
}

}  // namespace ttrace::invariant
