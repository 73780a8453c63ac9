// SPDX-License-Identifier: Apache-2.0
// A trace as TrainCheck's rules see it: calls, states of variables and their changes, active
// context managers. A Trace holds the whole of it; a View is the whole or one stage of it, because
// TrainCheck takes a stage for a complete trace of its own.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "invariant/compat/contexts.hpp"
#include "invariant/record.hpp"
#include "invariant/signature.hpp"
#include "invariant/situation.hpp"

namespace ttrace::invariant::compat {

using Row = std::uint32_t;  // in Records::records
inline constexpr Row kNoRow = std::numeric_limits<Row>::max();

struct Call {
  Row pre = kNoRow;
  Row post = kNoRow;       // none: the run ended before the call did
  std::int64_t begin = 0;  // times of the records
  std::int64_t end = 0;
  std::uint32_t thread = 0;  // in View::threads
  Name function = 0;
  bool exception = false;
  [[nodiscard]] bool returned() const { return post != kNoRow && !exception; }
};

using CallId = std::uint32_t;  // in View::calls

struct Function {
  Name name = 0;
  std::vector<CallId> calls;  // in the order of rows
};

struct Thread {
  std::int64_t process = 0;
  std::int64_t thread = 0;
  std::vector<CallId> calls;  // in the order of begins
};

struct State {
  Value value;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Row first = kNoRow;  // records that showed the value
  Row last = kNoRow;
};

struct Attribute {
  Name name = 0;
  std::vector<State> states;
};

struct Variable {
  std::int64_t process = 0;
  Name name = 0;
  Name type = 0;
  std::vector<Attribute> attributes;
  [[nodiscard]] const Attribute* find(Name attribute) const;
};

struct Change {
  std::uint32_t order = 0;  // by variable, attribute, time
  std::int64_t time = 0;
  Name variable = 0;
  Name type = 0;
  Name attribute = 0;
  Value before;
  Value after;
};

// What was tolerated where TrainCheck would end with an error, and what rules had to leave out.
struct Tolerated {
  std::uint64_t incomplete_calls = 0;   // without an end
  std::uint64_t unmatched_ends = 0;     // without a begin
  std::uint64_t repeated_records = 0;   // a third record of a call
  std::uint64_t dropped_rows = 0;       // after a call that never ended
  std::uint64_t unknown_arguments = 0;  // more positional arguments than the signature has
  std::uint64_t exceptions = 0;         // calls of functions with tensors that raised
  std::uint64_t other = 0;              // values of kinds that cannot be compared, zero thresholds
};

// Names of the columns that rules ask for.
struct Words {
  explicit Words(Values& values);
  Name stage;
  Name step;
  Name data_id;
};

// What all traces of an inference have in common.
struct Shared {
  Values& values;
  const Signatures& signatures;
  Situations situations;
};

class Trace {
 public:
  // Both must outlive it; their values are of the pool of `common`.
  Trace(Shared& common, Records& records);

  [[nodiscard]] Values& values() { return shared.values; }
  [[nodiscard]] const Values& values() const { return shared.values; }
  [[nodiscard]] const Record& at(Row row) const { return records.records[row]; }
  // The typed arguments of a call by the names of the parameters; without a signature only those
  // that were given by name.
  [[nodiscard]] std::vector<Member> bound(const Record& pre, bool with_defaults);
  // Functions that no rule looks at, as a parent or on its own.
  [[nodiscard]] bool skipped(Name function);
  [[nodiscard]] bool is_tensor(Value typed);

  Shared& shared;
  Records& records;
  Words words;
  // TrainCheck looks for changes of variables only where a tracker noted how it saw them.
  bool tracked = false;
  std::vector<Value> stages;  // in the order of rows; empty: not staged
  std::vector<Row> rows;      // all that rules see
  std::vector<Row> open;      // begins of calls that never ended, but count as calls
  Tolerated tolerated;

 private:
  void fill_stages();

  std::unordered_map<Name, bool> skipped_;
  std::unordered_map<Name, bool> tensors_;
};

// The rows without calls that TrainCheck leaves out because they have no end or no begin.
void drop_incomplete(Trace& trace);

class View {
 public:
  View(Trace& trace, std::vector<Row> rows);

  // Calls within the call on its thread, in the order of begins.
  [[nodiscard]] std::span<const CallId> calls_in(const Call& call) const;
  // Changes of variables of its process meanwhile.
  [[nodiscard]] std::vector<const Change*> changes_in(const Call& call) const;
  [[nodiscard]] const Function* find(Name function) const;
  // The situation of a call's first record, or of a state's record.
  [[nodiscard]] SituationId situation(Row row);
  [[nodiscard]] Example example(Row row) { return {situation(row), 0, false}; }
  [[nodiscard]] Example example(Row first, Row second);

  Trace& trace;
  std::vector<Row> rows;
  std::vector<Call> calls;          // in the order of rows
  std::vector<Function> functions;  // in the order of rows
  std::vector<Thread> threads;      // in the order of rows
  std::vector<Variable> variables;  // in the order of rows

 private:
  void collect_calls();
  void add_call(Call call);
  void collect_changes();
  [[nodiscard]] Situation situation_of(Row row, const std::vector<Active>& managers) const;

  Contexts contexts_;
  std::unordered_map<Name, std::size_t> by_name_;
  std::unordered_map<std::int64_t, std::vector<Change>> changes_;  // by process, by time
  std::unordered_map<Row, SituationId> situations_;
};

// Variables with their states from the rows; the last states end with the rows.
[[nodiscard]] std::vector<Variable> collect_variables(Trace& trace, std::span<const Row> rows);

}  // namespace ttrace::invariant::compat
