// SPDX-License-Identifier: Apache-2.0
#include "invariant/invariant_order.hpp"

#include <algorithm>

namespace ttrace::invariant {
namespace {

template <class T>
int order_of(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

int compare_names(const Values& values, Name a, Name b) {
  return a == b ? 0 : order_of(values.text(a), values.text(b));
}

int compare_clauses(const Values& values, const Clause& a, const Clause& b) {
  if (const int order = compare_names(values, a.property, b.property)) return order;
  if (const int order = order_of(a.type, b.type)) return order;
  if (const int order = values.compare(a.path, b.path)) return order;
  if (const int order = compare_names(values, a.dtype, b.dtype)) return order;
  if (const int order = order_of(a.values.size(), b.values.size())) return order;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (const int order = values.compare(a.values[i], b.values[i])) return order;
  }
  return 0;
}

int compare_conjunctions(const Values& values, const Conjunction& a, const Conjunction& b) {
  if (const int order = order_of(a.size(), b.size())) return order;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (const int order = compare_clauses(values, a[i], b[i])) return order;
  }
  return 0;
}

}  // namespace

int compare(const Values& values, const Param& a, const Param& b) {
  if (const int order = order_of(a.type, b.type)) return order;
  for (const auto name : {&Param::api, &Param::variable, &Param::variable_type, &Param::attribute,
                          &Param::name, &Param::value_type}) {
    if (const int order = compare_names(values, a.*name, b.*name)) return order;
  }
  for (const auto value : {&Param::exception, &Param::arguments, &Param::before, &Param::after,
                           &Param::constant, &Param::index, &Param::path}) {
    if (const int order = values.compare(a.*value, b.*value)) return order;
  }
  return order_of(a.is_input, b.is_input);
}

int compare(const Values& values, const Condition& a, const Condition& b) {
  if (const int order = order_of(a.inverted, b.inverted)) return order;
  if (const int order = order_of(a.any.size(), b.any.size())) return order;
  for (std::size_t i = 0; i < a.any.size(); ++i) {
    if (const int order = compare_conjunctions(values, a.any[i], b.any[i])) return order;
  }
  return 0;
}

int compare(const Values& values, const Invariant& a, const Invariant& b) {
  if (const int order = compare_names(values, a.relation, b.relation)) return order;
  if (const int order = order_of(a.text, b.text)) return order;
  if (const int order = order_of(a.params.size(), b.params.size())) return order;
  for (std::size_t i = 0; i < a.params.size(); ++i) {
    if (const int order = compare(values, a.params[i], b.params[i])) return order;
  }
  if (const int order = order_of(a.precondition.size(), b.precondition.size())) return order;
  for (std::size_t i = 0; i < a.precondition.size(); ++i) {
    const auto& one = a.precondition[i].condition;
    if (const int order = compare(values, one, b.precondition[i].condition)) return order;
  }
  return 0;
}

void sort_condition(const Values& values, Condition& condition) {
  for (Conjunction& conjunction : condition.any) {
    for (Clause& clause : conjunction) {
      std::ranges::sort(clause.values, [&](Value a, Value b) { return values.compare(a, b) < 0; });
    }
    std::ranges::sort(conjunction, [&](const Clause& a, const Clause& b) {
      return compare_clauses(values, a, b) < 0;
    });
  }
  std::ranges::sort(condition.any, [&](const Conjunction& a, const Conjunction& b) {
    return compare_conjunctions(values, a, b) < 0;
  });
}

}  // namespace ttrace::invariant
