// SPDX-License-Identifier: Apache-2.0
// Traces as TrainCheck's rules see them: columns, calls within calls, context managers, variables.
#include "invariant/compat/columns.hpp"
#include "invariant/compat/trace.hpp"
#include "test/catch.hpp"
#include "test/invariant/event_log.hpp"

using namespace ttrace::invariant;
using event_log::Log;

namespace {

// The whole of a log.
struct Seen {
  explicit Seen(const Log& log, const std::string& table = "{}")
      : known(event_log::signatures(table, values)),
        shared{values, known, {}},
        records(log.read(values)),
        trace(shared, records),
        view(trace, trace.rows) {}

  Values values;
  Signatures known;
  compat::Shared shared;
  Records records;
  compat::Trace trace;
  compat::View view;

  const compat::Call& call(std::string_view function, std::size_t number = 0) {
    const compat::Function* found = view.find(values.name(function));
    REQUIRE(found != nullptr);
    REQUIRE(found->calls.size() > number);
    return view.calls[found->calls[number]];
  }
  std::string inside(const compat::Call& outer) {
    std::string out;
    for (const compat::CallId id : view.calls_in(outer)) {
      out += (out.empty() ? "" : " ") + std::string(values.text(view.calls[id].function));
    }
    return out;
  }
  std::string managers(std::string_view function, std::size_t number = 0) {
    const SituationId id = view.situation(call(function, number).pre);
    std::string out;
    for (const Active& active : shared.situations[id].managers) {
      out += std::string(values.text(active.manager)) + "(";
      for (const Member& member : values.members(active.arguments)) {
        out += std::string(values.text(member.name)) + "=";
        if (member.value.kind == Kind::integer) out += std::to_string(member.value.integer);
        if (member.value.kind == Kind::object) out += "{}";
        out += " ";
      }
      out += ")";
    }
    return out;
  }
};

}  // namespace

TEST_CASE("a column of integers with a hole holds floats, one with a null holds what it held") {
  Log log;
  log.state("w", 1, R"({"data": 9007199254740993, "grad": 9007199254740993, "n": 1, "all": 7})");
  log.state("w", 2, R"({"data": 5, "grad": null, "all": 8})");
  log.call("torch.a.f", 3, 4);
  Values values;
  Records records = log.read(values);
  compat::apply_columns(records);
  const auto field = [&](std::size_t row, const char* column) {
    return records.records[row].field(values.name(column));
  };
  CHECK(field(0, "attributes.data").kind == Kind::real);  // the calls have none
  CHECK(field(0, "attributes.data").real == 9007199254740992.0);
  CHECK(field(0, "attributes.grad").kind == Kind::integer);
  CHECK(field(0, "attributes.grad").integer == 9007199254740993);
  CHECK(field(0, "attributes.n").kind == Kind::real);
  CHECK(field(0, "meta_vars.step").kind == Kind::integer);  // every record has it
}

TEST_CASE("calls within a call: strictly inside, on its thread") {
  Log log;
  log.call("torch.m.outer", 10, 50);
  log.call("torch.m.inner", 20, 40);
  log.call("torch.m.leaf", 25, 30);
  log.call("torch.m.after", 60, 70);
  log.here.thread = 2;
  log.call("torch.m.elsewhere", 21, 22);
  Seen seen(log);
  CHECK(seen.inside(seen.call("torch.m.outer")) == "torch.m.inner torch.m.leaf");
  CHECK(seen.inside(seen.call("torch.m.inner")) == "torch.m.leaf");
  CHECK(seen.inside(seen.call("torch.m.after")).empty());
  CHECK(seen.view.threads.size() == 2);
}

TEST_CASE("changes during a call are those of its process, begin and end included") {
  Log log;
  log.call("torch.m.step", 10, 20);
  log.state("w", 1, R"({"data": 1, "is_leaf": true})");
  log.state("w", 10, R"({"data": 2, "is_leaf": false})");
  log.state("w", 20, R"({"data": 3})");
  log.state("w", 21, R"({"data": 4})");
  log.state("w", 22, R"({"data": 4})");
  log.here = {2, 5, 0, ""};
  log.state("w", 15, R"({"data": 7})");
  log.state("w", 16, R"({"data": 8})");
  Seen seen(log);
  const auto changes = seen.view.changes_in(seen.call("torch.m.step"));
  REQUIRE(changes.size() == 2);
  CHECK(changes[0]->before.real == 1);
  CHECK(changes[1]->after.real == 3);
  // Flags are no states; the last state lasts to the end, and knows the records that showed it.
  REQUIRE(seen.view.variables.size() == 2);
  REQUIRE(seen.view.variables[0].attributes.size() == 1);
  const auto& states = seen.view.variables[0].attributes[0].states;
  REQUIRE(states.size() == 4);
  CHECK(states[0].end == 10);
  CHECK(states[3].begin == 21);
  CHECK(states[3].end == 22);
  CHECK(states[3].first != states[3].last);
}

TEST_CASE("context managers are active from the end of enter to the begin of exit") {
  const std::string table =
      R"({"torch.C.__init__@class": [["self", "N"], ["p", "N"], ["q", "N", {"int": 9}]]})";
  Log log;
  const auto manage = [&](int object, int init, int enter, int exit, const std::string& args) {
    const std::string id = R"("obj_id": )" + std::to_string(object) + ", ";
    log.call("torch.C.__init__", init, init + 1, args, R"({"NoneType": null})", id);
    log.call("torch.C.__enter__", enter, enter + 2, "{}", R"({"NoneType": null})", id);
    log.call("torch.C.__exit__", exit, exit + 2, "{}", R"({"NoneType": null})", id);
  };
  manage(77, 10, 12, 40, R"({"0": {"torch.C": {}}, "1": {"int": 5}})");
  manage(78, 20, 22, 30, R"({"0": {"torch.C": {}}, "1": {"int": 6}, "2": {"int": 1}})");
  for (const int begin : {13, 15, 25, 35, 41, 50}) log.call("torch.f.g", begin, begin);
  Seen seen(log, table);
  // One argument is a default, which TrainCheck wraps once more.
  const std::string outer = "torch.C(self={} p=5 q={} )";
  CHECK(seen.managers("torch.f.g", 0).empty());
  CHECK(seen.managers("torch.f.g", 1) == outer);
  CHECK(seen.managers("torch.f.g", 2) == "torch.C(self={} p=6 q=1 )");  // the inner one hides it
  CHECK(seen.managers("torch.f.g", 3) == outer);
  CHECK(seen.managers("torch.f.g", 4).empty());
  CHECK(seen.managers("torch.f.g", 5).empty());
  CHECK(seen.managers("torch.C.__exit__", 1) == outer);  // at its begin it is active
}

TEST_CASE(
    "a killed run: the outermost call lasts, its thread is cut at the call that did not end") {
  Log log;
  log.call("torch.m.main", 0, -1);
  log.call("torch.m.whole", 10, 20);
  log.call("torch.m.cut", 30, -1);
  log.call("torch.m.late", 35, 36);
  Seen seen(log);
  CHECK(seen.trace.tolerated.incomplete_calls == 2);
  CHECK(seen.inside(seen.call("torch.m.main")) == "torch.m.whole");
  CHECK(seen.view.find(seen.values.name("torch.m.cut")) == nullptr);
  CHECK(seen.view.find(seen.values.name("torch.m.late")) == nullptr);
}

TEST_CASE("records without their begin and third records of a call are left out and counted") {
  const char* line =
      R"({"func_call_id": "a_1", "function": "torch.m.f", "process_id": 1, "thread_id": 1, "meta_vars": {}, )"
      R"("is_bound_method": false, "obj_id": null, )";
  const trace_folder::Folder folder;
  const std::string pre =
      std::string(line) + R"j("type": "function_call (pre)", "args": {}, "kwargs": {}, "time": )j";
  const std::string post =
      std::string(line) +
      R"j("type": "function_call (post)", "return_values": {"int": 1}, "time": )j";
  std::string orphan = post;
  orphan.replace(orphan.find("a_1"), 3, "b_1");
  folder.write("trace_API_1_1.log", pre + "1}\n" + post + "2}\n" + post + "3}\n" + orphan + "4}\n");
  Values values;
  const Signatures none;
  compat::Shared shared{values, none, {}};
  Records records = read_traincheck(folder.path(), values);
  compat::Trace trace(shared, records);
  CHECK(trace.tolerated.repeated_records == 1);
  CHECK(trace.tolerated.unmatched_ends == 1);
  CHECK(trace.rows.size() == 2);
}
