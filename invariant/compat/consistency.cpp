// SPDX-License-Identifier: Apache-2.0
// "These attributes of two variables are equal": states that overlap in time are compared.
#include "invariant/compat/consistency.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "invariant/compat/applies.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

constexpr double kShare = 0.01;  // of the time that either lasts, that both must last
constexpr double kClose = 1e-8;

struct What {
  Name type = 0;
  Name attribute = 0;
  auto operator<=>(const What&) const = default;
};

bool close(const Values& values, Value a, Value b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::real) return std::abs(a.real - b.real) < kClose;
  return values.equal(a, b);
}

// Of any two times, damaged ones included.
double length(std::int64_t begin, std::int64_t end) {
  return static_cast<double>(static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin));
}

bool comparable(const State& a, const State& b) {
  if (a.begin >= b.end || a.end <= b.begin) return false;
  const double both = length(std::max(a.begin, b.begin), std::min(a.end, b.end));
  const double either = length(std::min(a.begin, b.begin), std::max(a.end, b.end));
  return both / either > kShare;
}

// Calls `use` with each comparable pair, in the order of the first, then of the second. `use`
// returns false to stop.
template <class Use>
void for_comparable(std::span<const State> first, std::span<const State> second, Use&& use) {
  std::size_t from = 0;
  for (const State& a : first) {
    while (from < second.size() && second[from].end <= a.begin) ++from;
    for (std::size_t i = from; i < second.size() && second[i].begin < a.end; ++i) {
      if (comparable(a, second[i]) && !use(a, second[i])) return;
    }
  }
}

// Of these the state at creation does not count: it is not the program's doing.
bool skips_first(std::string_view type) {
  std::string lower(type);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  });
  return lower.find("tensor") != std::string::npos || lower.find("module") != std::string::npos ||
         lower.find("parameter") != std::string::npos;
}

std::span<const State> states_of(const Variable& variable, Name attribute, bool skip_first) {
  const Attribute* found = variable.find(attribute);
  if (found == nullptr) return {};
  const std::span<const State> states = found->states;
  return states.subspan(skip_first && !states.empty() ? 1 : 0);
}

// Pairs of variables that two attributes are compared for.
template <class Use>
void for_variables(const std::vector<Variable>& all, What a, What b, Use&& use) {
  std::vector<const Variable*> first;
  std::vector<const Variable*> second;
  for (const Variable& variable : all) {
    if (variable.type == a.type) first.push_back(&variable);
    if (variable.type == b.type) second.push_back(&variable);
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t j = a == b ? i + 1 : 0; j < second.size(); ++j) {
      if (first[i] != second[j]) use(*first[i], *second[j]);
    }
  }
}

class Inference {
 public:
  explicit Inference(Context& context) : context_(context) { find_kinds(); }

  void run(const Sink& sink) {
    const std::vector<Variable>& variables = context_.view.variables;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      for (std::size_t j = i + 1; j < variables.size(); ++j) propose(variables[i], variables[j]);
    }
    for (const auto& [a, b] : accepted_) {
      Hypothesis out;
      out.params = {variable_param(a.type, a.attribute), variable_param(b.type, b.attribute)};
      collect_consistency(context_, out);
      sink(std::move(out));
    }
  }

 private:
  // Of each attribute the kind of its first value.
  void find_kinds() {
    constexpr std::string_view kPrefix = "attributes.";
    Values& values = context_.trace.values();
    std::unordered_map<Name, Name> attributes;  // by column
    for (const Row row : context_.view.rows) {
      if (context_.trace.at(row).kind != RecordKind::state) continue;
      for (const Field& field : context_.trace.at(row).fields) {
        if (field.value.kind == Kind::none) continue;
        const auto [entry, added] = attributes.try_emplace(field.column, 0);
        if (!added) continue;
        const std::string_view column = values.text(field.column);
        if (!column.starts_with(kPrefix)) continue;
        kinds_.try_emplace(values.name(column.substr(kPrefix.size())), field.value.kind);
      }
    }
  }

  Kind kind_of(Name attribute) const {
    const auto found = kinds_.find(attribute);
    return found == kinds_.end() ? Kind::none : found->second;
  }

  bool known(What a, What b) const { return seen_.contains({a, b}) || seen_.contains({b, a}); }

  void propose(const Variable& first, const Variable& second) {
    const Values& values = context_.trace.values();
    const bool skip = skips_first(values.text(first.type)) || skips_first(values.text(second.type));
    for (const Attribute& a : first.attributes) {
      for (const Attribute& b : second.attributes) {
        const std::size_t least = skip ? 2 : 1;
        if (a.states.size() < least || b.states.size() < least) continue;
        const What x{first.type, a.name};
        const What y{second.type, b.name};
        if (kind_of(a.name) != kind_of(b.name) || known(x, y)) continue;
        int equal = 0;
        for_comparable(states_of(first, a.name, skip), states_of(second, b.name, skip),
                       [&](const State& s, const State& t) {
                         equal += close(values, s.value, t.value) ? 1 : 0;
                         return equal < 2;
                       });
        if (equal < 2) continue;
        seen_.insert({x, y});
        accepted_.emplace_back(x, y);
      }
    }
  }

  struct HashPair {
    std::size_t operator()(const std::pair<What, What>& pair) const {
      std::uint64_t out = 0;
      for (const Name part :
           {pair.first.type, pair.first.attribute, pair.second.type, pair.second.attribute}) {
        out = (out ^ part) * 0x9e3779b97f4a7c15u;
        out ^= out >> 32;
      }
      return out;
    }
  };

  Context& context_;
  std::unordered_map<Name, Kind> kinds_;
  std::unordered_set<std::pair<What, What>, HashPair> seen_;
  std::vector<std::pair<What, What>> accepted_;
};

}  // namespace

void infer_consistency(Context& context, const Sink& sink) { Inference(context).run(sink); }

void collect_consistency(Context& context, Hypothesis& hypothesis) {
  const Values& values = context.trace.values();
  const What a{hypothesis.params[0].variable_type, hypothesis.params[0].attribute};
  const What b{hypothesis.params[1].variable_type, hypothesis.params[1].attribute};
  const bool skip = skips_first(values.text(a.type)) || skips_first(values.text(b.type));
  for_variables(context.view.variables, a, b, [&](const Variable& u, const Variable& w) {
    for_comparable(states_of(u, a.attribute, skip), states_of(w, b.attribute, skip),
                   [&](const State& s, const State& t) {
                     context.gatherer.add(context.view.example(s.first, t.first),
                                          close(values, s.value, t.value));
                     return true;
                   });
  });
  context.gatherer.finish(hypothesis);
}

void check_consistency(Context& context, const Invariant& invariant, Outcome& outcome) {
  if (invariant.params.size() != 2) return;
  const What a{invariant.params[0].variable_type, invariant.params[0].attribute};
  const What b{invariant.params[1].variable_type, invariant.params[1].attribute};
  const auto lacks = [](const Variable& variable, What what) {
    return variable.type == what.type && variable.find(what.attribute) == nullptr;
  };
  for (const Variable& variable : context.view.variables) {
    if (lacks(variable, a) || lacks(variable, b)) return;
  }
  Applies applies(context, invariant);
  for_variables(context.view.variables, a, b, [&](const Variable& u, const Variable& w) {
    for_comparable(states_of(u, a.attribute, false), states_of(w, b.attribute, false),
                   [&](const State& s, const State& t) {
                     const bool equal = context.trace.values().equal(s.value, t.value);
                     const bool known = equal && outcome.verdict != Verdict::not_triggered;
                     if (known || !applies.at(s.last, t.last)) return true;
                     trigger(outcome);
                     if (!equal) violate(context, outcome, {s.last, t.last});
                     return true;
                   });
  });
}

std::string consistency_text(const Values& values, const std::vector<Param>& params) {
  return variable_text(values, params[0]) + " stays consistent across training steps";
}

}  // namespace ttrace::invariant::compat
