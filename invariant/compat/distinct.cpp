// SPDX-License-Identifier: Apache-2.0
// "No two calls in a step have the same arguments": DistinctArgumentRelation. Lists of integers
// are the same when they share a tenth of their numbers, which is how shapes compare there.
#include "invariant/compat/distinct.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "invariant/compat/applies.hpp"
#include "invariant/compat/order.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

constexpr std::uint32_t kLongestRun = 6;
constexpr double kClose = 1e-8;
constexpr double kShared = 0.1;

bool is_integer(Value value) { return value.kind == Kind::integer || value.kind == Kind::boolean; }

bool same_lists(const Values& values, Value a, Value b);

bool same_argument(const Values& values, Value a, Value b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::list) return same_lists(values, a, b);
  if (a.kind == Kind::real) return std::abs(a.real - b.real) < kClose;
  if (a.kind != Kind::object) return values.equal(a, b);
  const auto members = values.members(a);
  if (members.size() != values.members(b).size()) return false;
  return std::ranges::all_of(members, [&](const Member& member) {
    const Value other = values.member(b, member.name);
    return other.present() && same_argument(values, member.value, other);
  });
}

bool same_integers(const Values& values, std::span<const Value> a, std::span<const Value> b) {
  const auto add = [&](std::vector<Value>& to, Value value) {
    const auto same = [&](Value other) { return values.equal(value, other); };
    const bool fresh = std::ranges::none_of(to, same);
    if (fresh) to.push_back(value);
    return fresh;
  };
  std::vector<Value> first;
  for (const Value value : a) add(first, value);
  std::vector<Value> both = first;
  std::vector<Value> second;
  std::size_t shared = 0;
  for (const Value value : b) {
    if (add(second, value) && !add(both, value)) ++shared;
  }
  return !both.empty() && static_cast<double>(shared) / static_cast<double>(both.size()) >= kShared;
}

bool same_lists(const Values& values, Value a, Value b) {
  const auto first = values.elements(a);
  const auto second = values.elements(b);
  if (std::ranges::all_of(first, is_integer) && std::ranges::all_of(second, is_integer)) {
    return same_integers(values, first, second);
  }
  if (first.size() != second.size()) return false;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!same_argument(values, first[i], second[i])) return false;
  }
  return true;
}

bool same_arguments(const Trace& trace, Row a, Row b) {
  const Value x = trace.at(a).args;
  const Value y = trace.at(b).args;
  return x.kind == Kind::object && y.kind == Kind::object && same_argument(trace.values(), x, y);
}

// The first records of a function's calls in one step, by thread.
struct Bucket {
  Value step;
  std::vector<std::vector<Row>> threads;
  std::vector<std::uint32_t> numbers;  // of the threads
};

std::vector<Bucket> buckets_of(const Context& context, const Function& function) {
  std::vector<Bucket> out;
  const Values& values = context.trace.values();
  std::unordered_multimap<std::uint64_t, std::size_t> known;
  const auto place_of = [&](Value step) {
    const std::uint64_t hash = step.present() ? values.hash(step) : 0;
    const auto [begin, end] = known.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
      const Value other = out[entry->second].step;
      const bool same = step.present() ? values.equal(step, other) : !other.present();
      if (same) return entry->second;
    }
    known.emplace(hash, out.size());
    out.push_back({step, {}, {}});
    return out.size() - 1;
  };
  for (const CallId id : function.calls) {
    const Call& call = context.view.calls[id];
    Bucket& bucket = out[place_of(context.trace.at(call.pre).field(context.trace.words.step))];
    const auto thread = std::ranges::find(bucket.numbers, call.thread);
    const auto place = static_cast<std::size_t>(thread - bucket.numbers.begin());
    if (thread == bucket.numbers.end()) {
      bucket.numbers.push_back(call.thread);
      bucket.threads.emplace_back();
    }
    bucket.threads[place].push_back(call.pre);
  }
  return out;
}

// Calls `use` with all pairs: first those across threads.
template <class Use>
void for_pairs(const Bucket& bucket, Use&& use) {
  for (std::size_t i = 0; i < bucket.threads.size(); ++i) {
    for (std::size_t j = i + 1; j < bucket.threads.size(); ++j) {
      for (const Row a : bucket.threads[i]) {
        for (const Row b : bucket.threads[j]) use(a, b);
      }
    }
  }
  for (const std::vector<Row>& rows : bucket.threads) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = i + 1; j < rows.size(); ++j) use(rows[i], rows[j]);
    }
  }
}

}  // namespace

void infer_distinct(Context& context, const Sink& sink) {
  const auto runs = longest_runs(context.view);
  for (const Function& function : context.view.functions) {
    if (context.trace.skipped(function.name) || runs.at(function.name) > kLongestRun) continue;
    Hypothesis out;
    out.params = {api_param(function.name)};
    collect_distinct(context, out);
    if (out.positive > 0) sink(std::move(out));
  }
}

void collect_distinct(Context& context, Hypothesis& hypothesis) {
  const Function* function = context.view.find(hypothesis.params[0].api);
  if (function == nullptr) return;
  for (const Bucket& bucket : buckets_of(context, *function)) {
    for_pairs(bucket, [&](Row a, Row b) {
      context.gatherer.add(context.view.example(a, b), !same_arguments(context.trace, a, b));
    });
  }
  context.gatherer.finish(hypothesis);
}

void check_distinct(Context& context, const Invariant& invariant, Outcome& outcome) {
  if (invariant.params.empty()) return;
  const Function* function = context.view.find(invariant.params[0].api);
  if (function == nullptr) return;
  std::vector<Row> rows;
  for (const CallId id : function->calls) rows.push_back(context.view.calls[id].pre);
  if (!Applies(context, invariant).at(rows)) return;
  trigger(outcome);
  for (const Bucket& bucket : buckets_of(context, *function)) {
    for_pairs(bucket, [&](Row a, Row b) {
      if (same_arguments(context.trace, a, b)) violate(context, outcome, {a, b});
    });
  }
}

std::string distinct_text(const Values& values, const std::vector<Param>& params) {
  return short_name(values, params[0].api) + "() receives distinct arguments at each step";
}

}  // namespace ttrace::invariant::compat
