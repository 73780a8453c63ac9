// SPDX-License-Identifier: Apache-2.0
// What happened in a traced program, one thing after the other: calls begin and end, variables
// show their state and change, steps end. Relations learn and check from this alone, so that a
// trace on disk and one that is still being written look the same to them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "invariant/record.hpp"
#include "invariant/situation.hpp"

namespace ttrace::invariant {

inline constexpr std::int64_t kNoStep = -1;

// Where something happened, for reports: small, so that it may be kept when its record is not.
struct Place {
  std::uint32_t file = 0;
  std::uint32_t line = 0;
  std::int64_t time = 0;
  std::int64_t process = 0;
  std::int64_t thread = 0;
  std::int64_t step = kNoStep;
  Name stage = 0;  // valid if `staged`
  Name what = 0;   // the function, or the variable
  Name site = 0;   // in the program, see Record
  bool staged = false;
  bool variable = false;
};

struct Call {
  Name function = 0;
  std::uint64_t id = 0;
  std::uint32_t thread = 0;  // number of the thread in the order of appearance
  SituationId situation = 0;
  Place place;
  Value args, kwargs;       // as recorded
  Value returns;            // from leave() on
  bool raised = false;      // from leave() on
  std::uint64_t began = 0;  // counts the events of the thread
  std::uint64_t ended = 0;  // likewise, from leave() on
};

// A state record, and what of it is new.
struct Change {
  Name attribute = 0;  // without "attributes."
  Value before, after;
};

struct State {
  const Record* record = nullptr;
  std::uint32_t variable = 0;  // number of (process, name, type) in the order of appearance
  std::uint32_t thread = 0;
  Place place;
  SituationId situation = 0;
  bool observed = false;  // around a call or an assignment, not sampled now and then
  std::span<const Field> attributes;
  std::span<const Change> changes;  // none of the variable's first state
};

class Listener {
 public:
  virtual ~Listener() = default;
  // `index`: the call's place among the open calls of its thread, 0 outermost.
  virtual void enter(const Call& /*call*/, std::size_t /*index*/) {}
  virtual void leave(const Call& /*call*/, std::size_t /*index*/) {}
  virtual void state(const State& /*state*/) {}
  // A process has done its part of a step; then all of them have.
  virtual void end_of_part(std::int64_t /*process*/, std::int64_t /*step*/) {}
  virtual void end_of_step(std::int64_t /*step*/) {}
  virtual void end_of_trace() {}
};

}  // namespace ttrace::invariant
