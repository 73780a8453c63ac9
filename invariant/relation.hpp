// SPDX-License-Identifier: Apache-2.0
// A relation, once for learning and checking. From traces it proposes hypotheses: invariants
// without a precondition. An evaluator then reads a trace as a stream and says, again and again,
// where a hypothesis held and where it did not. Learning searches the precondition that tells
// those examples apart; checking runs the same evaluator and reports each example that the
// precondition covers and where the invariant did not hold. So a trace never violates what was
// learned from it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invariant/events.hpp"
#include "invariant/invariant.hpp"
#include "invariant/precondition.hpp"
#include "invariant/world.hpp"

namespace ttrace::invariant {

// What an example is made of, for the report of a violation.
struct Evidence {
  Place place;
  Place other;  // of examples that are pairs
  bool pair = false;
  std::string found;  // "returned torch.float32", "was called 3 times"
};

class Sink {
 public:
  virtual ~Sink() = default;
  // True: it is a violation, and report() is expected.
  virtual bool example(std::size_t hypothesis, const Example& example, bool held) = 0;
  virtual void report(std::size_t hypothesis, Evidence evidence) = 0;
};

// Reads all traces of an inference, one after the other.
class Proposer : public Listener {
 public:
  virtual void begin_trace(std::size_t /*trace*/) {}
  // `traces`: how many were read. What a single one of several had is left out if another run
  // need not have it.
  virtual std::vector<Invariant> proposals(std::size_t traces) = 0;
};

class Relation {
 public:
  virtual ~Relation() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;   // as the files have it
  [[nodiscard]] virtual std::string_view group() const = 0;  // of the precondition
  [[nodiscard]] virtual std::string describe(const Values& values,
                                             const Invariant& invariant) const = 0;
  // What is judged one by one: "calls of SGD.step()"; where not overridden those of the first
  // function that the invariant names.
  [[nodiscard]] virtual std::string cases(const Values& values, const Invariant& invariant) const;
  // What to look at where it is violated.
  [[nodiscard]] virtual std::string advice(const Values& values,
                                           const Invariant& invariant) const = 0;
  [[nodiscard]] virtual std::unique_ptr<Proposer> proposer(World& world) const = 0;
  // `hypotheses` are all of this relation; those that it cannot read are never judged. Lives for
  // one trace.
  [[nodiscard]] virtual std::unique_ptr<Listener> evaluator(
      World& world, std::span<const Invariant* const> hypotheses, Sink& sink) const = 0;
  // How often what is proposed as weak must have held in a process, over all traces, not to be.
  [[nodiscard]] virtual std::uint64_t least_support() const { return 0; }
  // Columns that say nothing about where this relation holds.
  [[nodiscard]] virtual std::vector<std::string_view> skip() const { return {}; }
};

// In the order of reports.
[[nodiscard]] const std::vector<std::unique_ptr<Relation>>& relations();

[[nodiscard]] std::unique_ptr<Relation> api_contain_relation();
[[nodiscard]] std::unique_ptr<Relation> consistency_relation();
[[nodiscard]] std::unique_ptr<Relation> consistent_output_relation();
[[nodiscard]] std::unique_ptr<Relation> consistent_input_output_relation();
[[nodiscard]] std::unique_ptr<Relation> function_cover_relation();
[[nodiscard]] std::unique_ptr<Relation> function_lead_relation();
[[nodiscard]] std::unique_ptr<Relation> distinct_argument_relation();
[[nodiscard]] std::unique_ptr<Relation> threshold_relation();
[[nodiscard]] std::unique_ptr<Relation> var_periodic_change_relation();

// Functions that a relation takes no notice of: queries without effect.
[[nodiscard]] bool ignored(std::string_view relation, std::string_view function);

// "torch.optim.sgd.SGD.step" -> "SGD.step"
[[nodiscard]] std::string short_name(std::string_view function);
[[nodiscard]] std::string printed(const Values& values, Value value);

}  // namespace ttrace::invariant
