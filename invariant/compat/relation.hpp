// SPDX-License-Identifier: Apache-2.0
// TrainCheck's relations: how each finds hypotheses in a trace, collects examples of one that
// another trace proposed, and checks an invariant.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "invariant/compat/hypothesis.hpp"
#include "invariant/compat/trace.hpp"
#include "invariant/outcome.hpp"

namespace ttrace::invariant::compat {

// What an inference or a check of one trace works on. Relations keep here what they share.
class OrderIndex;
struct Context {
  explicit Context(Trace& of);
  ~Context();
  Trace& trace;
  View view;  // the whole trace
  // No other trace takes part: examples of what happened once will not be asked for.
  bool lone = true;
  Gatherer gatherer;
  // Each stage as a trace of its own, in the order of the trace's stages; built when asked for.
  // Without stages the whole trace alone.
  [[nodiscard]] const std::vector<View*>& by_stage();
  std::unique_ptr<OrderIndex> order;  // of the order relations, built when one asks

 private:
  std::vector<std::unique_ptr<View>> stages_;
  std::vector<View*> by_stage_;
};

struct Relation {
  std::string_view name;
  std::string_view group;              // of records in an example
  std::vector<std::string_view> skip;  // no clauses on fields whose name contains one of these
  void (*infer)(Context& context, const Sink& sink);
  // Examples of a hypothesis from another trace, whose parameters are given.
  void (*collect)(Context& context, Hypothesis& hypothesis);
  void (*check)(Context& context, const Invariant& invariant, Outcome& outcome);
  std::string (*text)(const Values& values, const std::vector<Param>& params);
};

// In the order in which TrainCheck runs them.
[[nodiscard]] std::span<const Relation> relations();
[[nodiscard]] const Relation* find_relation(std::string_view name);

}  // namespace ttrace::invariant::compat
