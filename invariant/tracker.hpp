// SPDX-License-Identifier: Apache-2.0
// Turns records, in the order of time within each process, into the events of events.hpp: keeps
// the open calls of each thread, the context managers that are active and the variables' states.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "invariant/events.hpp"
#include "invariant/manager_stack.hpp"
#include "invariant/world.hpp"

namespace ttrace::invariant {

// The step tells the first iterations from the others and no more: a clause on the thousandth
// would say nothing about another run, and situations stay few. Other counters (of batches within
// an evaluation, of epochs) tell nothing.
inline constexpr std::int64_t kFirstSteps = 2;

// What a trace lacked; none of it stops a relation.
struct Gaps {
  std::uint64_t never_ended = 0;  // calls without an end: the run was killed, or lines were lost
  std::uint64_t never_began = 0;  // ends of calls without their begin
};

class Tracker {
 public:
  Tracker(World& world, std::span<Listener* const> listeners);

  void take(const Record& record, std::int64_t step);
  void end_of_part(std::int64_t process, std::int64_t step);
  void end_of_step(std::int64_t step);
  void end_of_trace();

  [[nodiscard]] const Gaps& gaps() const { return gaps_; }
  // How many steps a process or a thread has: for reports.
  [[nodiscard]] std::size_t threads() const { return threads_.size(); }

 private:
  struct Thread {
    std::vector<Call> open;
    ManagerStack managers;
    std::uint64_t events = 0;
    std::vector<Field> meta;  // of the last call; its situation is the next one's, mostly
    std::uint64_t managers_version = ~std::uint64_t{0};
    SituationId situation = 0;
  };
  struct Variable {
    std::vector<Field> last;  // attribute -> value
  };

  std::uint32_t thread_of(std::int64_t process, std::int64_t thread);
  void enter(const Record& record, std::int64_t step);
  void leave(const Record& record, std::int64_t step);
  void state(const Record& record, std::int64_t step);
  void note_changes(const Record& record, Variable& variable);
  SituationId situation_of(const Record& record, Thread& thread);
  SituationId situation_of_state(const Record& record, Thread& thread);
  void read_meta(const Record& record);
  [[nodiscard]] Place place_of(const Record& record, std::int64_t step);

  World& world_;
  std::vector<Listener*> listeners_;
  Gaps gaps_;
  Name process_id_, var_name_, var_type_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> thread_numbers_;
  std::vector<Thread> threads_;
  ManagerObjects objects_;
  std::map<std::tuple<std::int64_t, Name, Name>, std::uint32_t> variable_numbers_;
  std::vector<Variable> variables_;
  std::vector<Field> meta_;        // scratch: what a clause may say of the loop
  std::vector<Field> attributes_;  // scratch
  std::vector<Change> changes_;    // scratch
};

}  // namespace ttrace::invariant
