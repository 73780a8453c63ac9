// SPDX-License-Identifier: Apache-2.0
// TrainCheck's relations on small traces: counts and verdicts worked out by hand from its rules.
#include <algorithm>
#include <map>

#include "invariant/change_pattern.hpp"
#include "invariant/compat/contain.hpp"
#include "invariant/compat/infer.hpp"
#include "test/catch.hpp"
#include "test/invariant/event_log.hpp"

using namespace ttrace::invariant;
using event_log::Log;

namespace {

const char* const kTable = R"({"torch.m.f": [["x", "N"], ["y", "N", {"int": 3}]],
  "torch.m.g": [["p", "N"]], "torch.m.clip": [["x", "N"], ["max_norm", "N"]]})";

// A tensor of so many bytes, of one dimension.
std::string tensor(int bytes) {
  return R"({"torch.FloatTensor": {"nbytes": )" + std::to_string(bytes) + R"(, "is_leaf": true}})";
}

struct Learned {
  explicit Learned(const std::vector<Log>& logs) : known(event_log::signatures(kTable, values)) {
    for (const Log& log : logs) traces.push_back(log.read(values));
    found = compat::infer(values, known, traces, {{}, true, {}});
  }

  // "2/1" of the invariant with the text; "" when there is none. Several are listed.
  std::string counts(const std::string& text) const {
    std::string out;
    for (const Invariant& invariant : found.invariants) {
      if (invariant.text != text) continue;
      out += (out.empty() ? "" : " ") + std::to_string(invariant.positive_examples) + "/" +
             std::to_string(invariant.negative_examples);
    }
    return out;
  }
  std::string rejected(const std::string& text) const {
    for (const Rejected& entry : found.rejected) {
      if (entry.invariant.text == text) {
        return entry.reason + " " + std::to_string(entry.invariant.positive_examples) + "/" +
               std::to_string(entry.invariant.negative_examples);
      }
    }
    return "";
  }
  const Condition& condition(const std::string& text) const {
    const auto invariant = std::ranges::find(found.invariants, text, &Invariant::text);
    REQUIRE(invariant != found.invariants.end());
    REQUIRE(invariant->precondition.size() == 1);
    return invariant->precondition[0].condition;
  }
  // Of one clause and one value.
  std::string clause(const std::string& text) const {
    const Condition& all = condition(text);
    if (all.any.size() != 1 || all.any[0].size() != 1) return "?";
    const Clause& only = all.any[0][0];
    std::string out = all.inverted ? "not " : "";
    out += std::string(values.text(only.property)) + "=";
    for (const Value value : only.values) {
      if (value.kind == Kind::string) out += values.text(value);
      if (value.kind == Kind::integer) out += std::to_string(value.integer);
      if (value.kind == Kind::real) out += std::to_string(static_cast<int>(value.real)) + ".0";
    }
    return out;
  }
  std::string verdicts(const std::string& text, const Log& log) {
    Records records = log.read(values);
    std::vector<Invariant> asked;
    std::ranges::copy_if(found.invariants, std::back_inserter(asked),
                         [&](const Invariant& invariant) { return invariant.text == text; });
    std::string out;
    const compat::CheckResult result = compat::check(values, known, records, asked);
    for (const Outcome& outcome : result.outcomes) {
      out += outcome.verdict == Verdict::failed   ? "F" + std::to_string(outcome.violations.size())
             : outcome.verdict == Verdict::passed ? "P"
                                                  : "N";
    }
    return out;
  }

  Values values;
  Signatures known;
  std::vector<Records> traces;
  compat::Inference found;
};

Log alternating(int rounds, bool second) {
  Log log;
  for (int i = 0; i < rounds; ++i) {
    log.here.step = i;
    log.call("torch.m.A", 10 * i, 10 * i + 1);
    const bool there = second || i == 0;
    log.call(there ? "torch.m.B" : "torch.m.C", 10 * i + 2, 10 * i + 3);
  }
  return log;
}

}  // namespace

TEST_CASE("the order of calls") {
  // A B A B A
  Log log = alternating(2, true);
  log.here.step = 2;
  log.call("torch.m.A", 20, 21);
  Learned learned({log});
  CHECK(learned.counts("A() always precedes B()") == "2/0");  // the last A is not judged
  CHECK(learned.rejected("B() always precedes A()") == "only one positive example 1/0");
  CHECK(learned.counts("A() always occurs when B() is called") == "2/0");
  CHECK(learned.counts("B() always occurs when A() is called") == "2/1");  // not before step 0
  CHECK(learned.clause("B() always occurs when A() is called") == "not meta_vars.step=0");

  const std::string leads = "A() always precedes B()";
  CHECK(learned.verdicts(leads, alternating(4, true)) == "P");
  CHECK(learned.verdicts(leads, alternating(4, false)) == "F2");  // the As of steps 1 and 2
  Log nothing;
  nothing.call("torch.m.C", 1, 2);
  CHECK(learned.verdicts(leads, nothing) == "N");
  // A cover that holds is never said to have been triggered.
  CHECK(learned.verdicts("A() always occurs when B() is called", alternating(4, true)) == "N");
}

TEST_CASE("functions that repeat without anything between have no order") {
  Log log;
  for (int i = 0; i < 3; ++i) log.call("torch.m.A", 10 * i, 10 * i + 1);  // six records in a row
  log.call("torch.m.B", 40, 41);
  log.call("torch.m.A", 50, 51);
  log.call("torch.m.B", 60, 61);
  CHECK(Learned({log}).counts("A() always precedes B()").empty());
}

TEST_CASE("what a call contains, and with which arguments") {
  Log log;
  for (int i = 0; i < 3; ++i) {
    log.here = {1, 1, i, "training"};
    log.call("torch.m.f", 100 * i, 100 * i + 50, R"({"0": {"int": 1}})");
    log.call("torch.m.g", 100 * i + 10, 100 * i + 11, R"({"0": {"int": 5}})");
    log.call("torch.m.g", 100 * i + 20, 100 * i + 21, R"({"0": {"int": 5}})");
  }
  log.here = {1, 1, 9, "testing"};
  log.call("torch.m.f", 900, 950);
  Learned learned({log});
  // Twice in each of three calls; the stage that has none proposes nothing.
  const std::string text = "m.f() always calls m.g()";
  CHECK(learned.counts(text) == "6/0");
  CHECK(learned.clause(text) == "meta_vars.stage=training");
  const auto invariant = std::ranges::find(learned.found.invariants, text, &Invariant::text);
  const Value arguments =
      learned.values.member(invariant->params[1].arguments, learned.values.name("args"));
  CHECK(learned.values.member(arguments, learned.values.name("p")).present());

  Log other;
  other.here = {1, 1, 0, "training"};
  other.call("torch.m.f", 0, 50);
  other.call("torch.m.g", 10, 11, R"({"0": {"int": 6}})");  // another argument
  CHECK(learned.verdicts(text, other) == "F1");
  Log raising;
  raising.here = {1, 1, 0, "training"};
  raising.call("torch.m.f", 0, 50);
  raising.call("torch.m.g", 10, 11, R"({"0": {"int": 5}})", "raises");
  CHECK(learned.verdicts(text, raising) == "F1");
  CHECK(learned.verdicts(text, log) == "P");
}

TEST_CASE("changes of a variable are joined when that is likelier") {
  Log log;
  for (int i = 0; i < 5; ++i) {
    log.here.step = i;
    log.call("torch.m.f", 100 * i, 100 * i + 50);
    log.state("w", 100 * i + 10, R"({"data": )" + std::to_string(7 + i) + "}");
  }
  Learned learned({log});
  // Four changes in calls 1 to 4; call 0 has the first state, which is none. Each alone has the
  // likelihood 1 / (1 + e^0.3) = 0.426, all together 1 / (1 + e^-0.3) = 0.574, 1.35 times as much.
  const std::string text = "m.f() changes Parameter.data: above_zero --> above_zero";
  CHECK(learned.counts(text) == "4/1");
  CHECK(learned.clause(text) == "not meta_vars.step=0");

  // With one round less it would be 1.22 times: less than 1.3, so that they stay apart.
  Log shorter;
  for (int i = 0; i < 4; ++i) {
    shorter.here.step = i;
    shorter.call("torch.m.f", 100 * i, 100 * i + 50);
    shorter.state("w", 100 * i + 10, R"({"data": )" + std::to_string(7 + i) + "}");
  }
  CHECK(Learned({shorter}).counts(text).empty());
}

TEST_CASE("words for many values") {
  Values values;
  const auto word = [&](std::vector<Value> of) {
    const auto found = compat::generalise(values, of);
    if (!found) return std::string("?");
    return found->kind == Kind::string ? std::string(values.text(*found)) : std::string("value");
  };
  CHECK(word({integer(3), real(3.0)}) == "value");
  CHECK(word({integer(1), integer(2)}) == "above_zero");
  CHECK(word({integer(0), integer(2)}) == "non_negative");
  CHECK(word({integer(-1), real(-2.5)}) == "below_zero");
  CHECK(word({integer(-1), integer(0)}) == "non_positive");
  CHECK(word({integer(-1), integer(1)}) == "non_zero");
  CHECK(word({integer(-1), integer(0), integer(1)}) == "non_none");
  CHECK(word({none(), integer(-1), integer(0), integer(1)}) == "?");
  CHECK(word({none(), integer(4)}) == "above_zero");
  CHECK(word({none(), values.string("a")}) == "anything");
  CHECK(word({values.string("b"), values.string("a")}) == "non_none");
  CHECK(word({integer(1), values.string("a")}) == "?");
  const auto admits = [&](std::string_view stated, Value met) {
    return ttrace::invariant::admits(values, values.string(stated), met);
  };
  CHECK(admits("non_zero", integer(-1)));
  CHECK_FALSE(admits("non_zero", none()));
  CHECK_FALSE(admits("non_zero", real(0)));
  CHECK(admits("non_positive", none()));
  CHECK_FALSE(admits("above_zero", none()));
  CHECK(admits("anything", none()));
  CHECK_FALSE(admits("non_none", none()));
  CHECK(admits("some text", values.string("some text")));
}

TEST_CASE("equal variables: initial states count in checks only") {
  const auto run = [](int first, int second) {
    Log log;
    for (const char* name : {"a", "b"}) {
      log.state(name, 0, R"({"data": )" + std::to_string(name[0] == 'a' ? first : second) + "}");
      log.state(name, 100, R"({"data": 5})");
      log.state(name, 200, R"({"data": 6})");
      log.state(name, 300, R"({"data": 7})");
    }
    log.call("torch.m.end", 400, 401);
    return log;
  };
  Learned learned({run(1, 2)});
  const std::string text = "Parameter.data stays consistent across training steps";
  CHECK(learned.counts(text) == "3/0");
  CHECK(learned.verdicts(text, run(1, 1)) == "P");
  CHECK(learned.verdicts(text, run(1, 2)) == "F1");
}

TEST_CASE("pairs of states: where two agree and on what tells them apart") {
  Log log;
  for (const char* name : {"a", "b", "c"}) {
    const bool odd = name[0] == 'c';
    const std::string bytes = R"(, "nbytes": )" + std::to_string(odd ? 4 : 8) + "}";
    log.state(name, 0, R"({"data": 1)" + bytes);
    for (int step = 1; step < 4; ++step) {
      log.here.step = step;
      log.state(name, 100 * step, R"({"data": )" + std::to_string(odd ? -step : step + 4) + bytes);
    }
    log.here.step = 0;
  }
  log.call("torch.m.end", 400, 401);
  Learned learned({log});
  // a and b agree in three states each; with c neither does. All names, and all steps, are alike
  // in both: only the size is the same where the data are.
  const std::string text = "Parameter.data stays consistent across training steps";
  CHECK(learned.counts(text) == "3/6");
  CHECK(learned.clause(text) == "attributes.nbytes=8.0");
}

TEST_CASE("results: calls that raise are left out, and counted") {
  Log log;
  for (int i = 0; i < 3; ++i) {
    log.here.step = i;
    log.call("torch.m.f", 10 * i, 10 * i + 5, R"({"0": )" + tensor(8) + "}",
             i == 1 ? "raises" : tensor(i == 0 ? 8 : 16));
  }
  Learned learned({log});
  CHECK(learned.counts("m.f() consistently returns tensors with is_leaf=True") == "2/0");
  CHECK(learned.counts("m.f(): input[0].is_leaf consistent with output[0].is_leaf") == "2/0");
  CHECK(learned.rejected("m.f() consistently returns tensors with nbytes=8") ==
        "only one positive example 1/1");
  CHECK(learned.found.tolerated.exceptions == 2);  // by both relations
  Log other;
  other.call("torch.m.f", 0, 5, R"({"0": )" + tensor(8) + "}", R"({"int": 3})");
  CHECK(learned.verdicts("m.f() consistently returns tensors with is_leaf=True", other) == "F1");
  CHECK(learned.verdicts("m.f(): input[0].is_leaf consistent with output[0].is_leaf", other) ==
        "N");
}

TEST_CASE("distinct arguments: shapes that share a size are the same") {
  const auto shaped = [](const char* shape) {
    return R"({"0": {"torch.FloatTensor": {"shape": )" + std::string(shape) + "}}}";
  };
  Log log;
  log.call("torch.m.A", 0, 1, shaped("[8, 144]"));
  log.call("torch.m.B", 2, 3);
  log.call("torch.m.A", 4, 5, shaped("[8, 3]"));  // with the first 1 of 3: the same
  log.call("torch.m.B", 6, 7);
  log.call("torch.m.A", 8, 9, shaped("[5, 7]"));  // another one than both
  log.here.step = 1;
  log.call("torch.m.A", 10, 11, shaped("[8, 3]"));  // alone in its step
  Learned learned({log});
  // Both kinds of pairs have one situation, so that no precondition tells them apart.
  CHECK(learned.rejected("A() receives distinct arguments at each step") ==
        "Precondition not found 2/1");
}

TEST_CASE("bounds: what is close below max, zero is none") {
  const auto clip = [](Log& log, int time, const char* bound, const char* norm) {
    log.call("torch.m.clip", time, time + 1, R"({"1": {"float": )" + std::string(bound) + "}}",
             R"({"torch.FloatTensor": {"norm": )" + std::string(norm) + "}}");
  };
  Log log;
  clip(log, 0, "1.0", "0.9");
  clip(log, 10, "1.0", "0.5");
  clip(log, 20, "0.0", "0.0");
  Learned learned({log});
  const std::string text = "m.clip(): output[0].norm \u2264 max_norm";
  CHECK(learned.counts(text) == "3/0");
  CHECK(learned.found.tolerated.other == 1);
  Log other;
  clip(other, 0, "1.0", "1.5");
  CHECK(learned.verdicts(text, other) == "F1");
}

TEST_CASE("several traces: the same hypothesis once, examples from where it was not proposed") {
  const auto run = [](int process, bool contains) {
    Log log;
    log.here.process = process;
    for (int i = 0; i < 2; ++i) {
      log.here.step = i;
      log.call("torch.m.f", 100 * i, 100 * i + 50);
      if (contains) log.call("torch.m.g", 100 * i + 10, 100 * i + 11, R"({"0": {"int": 5}})");
    }
    return log;
  };
  const std::string text = "m.f() always calls m.g()";
  CHECK(Learned({run(1, true), run(2, true)}).counts(text) == "4/0");
  Learned learned({run(1, true), run(2, false)});
  CHECK(learned.counts(text) == "2/2");
  CHECK(learned.clause(text) == "process_id=1");
}
