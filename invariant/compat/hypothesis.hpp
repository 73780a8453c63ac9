// SPDX-License-Identifier: Apache-2.0
// What a relation proposes from a trace, with the examples for and against it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "invariant/precondition.hpp"

namespace ttrace::invariant::compat {

struct Hypothesis {
  std::vector<Param> params;
  Examples examples;
  std::uint64_t positive = 0;  // with repetitions
  std::uint64_t negative = 0;
  std::vector<Value> stages;           // where it has a precondition; empty: not looked at by stage
  std::optional<Condition> condition;  // known already, from these very examples
  std::vector<std::uint32_t> traces;   // that proposed it or were searched for examples
};

using Sink = std::function<void(Hypothesis&&)>;

// Collects examples, one each situation, in the order of first appearance. For many hypotheses one
// after another: memory is kept. Of pairs only what a precondition sees counts, where the two agree
// and on what: two variables have a pair of states each step, a thousand have half a million.
class Gatherer {
 public:
  Gatherer(const Values& values, const Situations& situations)
      : values_(values), situations_(situations) {}
  // Preconditions of the next hypotheses do not look at fields whose name contains one of these.
  void skip(std::span<const std::string_view> parts);
  void add(const Example& example, bool holds, std::uint64_t count = 1);
  // Hands over what was collected, and starts anew.
  void finish(Hypothesis& hypothesis);

 private:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const Key&) const = default;
    void mix(std::uint64_t part);
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return key.low; }
  };
  struct Side {
    std::vector<CountedExample> examples;
    std::uint64_t total = 0;
    std::vector<std::uint32_t> places;  // by situation
    std::vector<std::uint32_t> rounds;  // in which a place was set
    std::unordered_map<Key, std::uint32_t, KeyHash> of_pairs;
  };
  std::uint32_t& place_of(Side& side, const Example& example, bool& added);

  [[nodiscard]] Key key_of_pair(const Example& example);
  [[nodiscard]] bool skipped(Name column);

  enum class Known : std::uint8_t { no_answer, yes, no };
  const Values& values_;
  const Situations& situations_;
  std::vector<std::string_view> skip_;
  std::vector<Known> skipped_;  // by column
  Side positive_;
  Side negative_;
  std::uint32_t round_ = 1;
};

// Adds what is known of the same hypothesis from elsewhere.
void append(const Values& values, Hypothesis& to, const Hypothesis& from);

[[nodiscard]] Param api_param(Name function);
[[nodiscard]] Param variable_param(Name type, Name attribute);
// Equal parameters, as Python's == has it, name the same hypothesis.
[[nodiscard]] bool same(const Values& values, const std::vector<Param>& a,
                        const std::vector<Param>& b);
[[nodiscard]] std::uint64_t hash(const Values& values, const std::vector<Param>& params);

// Hypotheses of several stages or traces, the same ones put together.
class Merged {
 public:
  explicit Merged(const Values& values) : values_(values) {}
  void add(Hypothesis&& hypothesis);
  std::vector<Hypothesis> all;  // in the order of first appearance

 private:
  const Values& values_;
  std::unordered_multimap<std::uint64_t, std::size_t> places_;
};

}  // namespace ttrace::invariant::compat
