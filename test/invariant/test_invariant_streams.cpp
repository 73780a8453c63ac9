// SPDX-License-Identifier: Apache-2.0
// Properties on random runs: a run never violates what was learned from it, the order of files and
// of records of one time does not matter, and a growing trace gives what the whole one gives.
#include <algorithm>
#include <random>

#include "invariant/invariant_order.hpp"
#include "test/catch.hpp"
#include "test/invariant/made_run.hpp"

using namespace made_run;

namespace {

// A program of some functions that call each other, change variables, raise and return tensors;
// no two runs are alike in what they call.
class RandomRun {
 public:
  RandomRun(Values& values, unsigned seed) : random_(seed), run_(values) {}

  Run make() {
    const int processes = 1 + below(3);
    for (int step = 0; step < 8; ++step) {
      for (int process = 0; process < processes; ++process) {
        run_.process(process, 1);
        const char* stages[] = {"init", "training", "testing"};
        run_.step(step, step == 0 ? stages[0] : stages[1 + (step % 4 == 3)]);
        for (int i = 0; i < 6; ++i) call(0);
        if (below(3) == 0) run_.process(process, 2), call(2);
      }
    }
    if (below(2) == 0) run_.begin("lib.cut");
    return std::move(run_);
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  void call(int depth) {
    static const char* const kNames[] = {"lib.a", "lib.b", "lib.c.D.forward",
                                         "lib.e", "lib.f", "lib.g._h"};
    const char* name = kNames[below(6)];
    const Value args =
        run_.object({{"0", run_.typed("int", integer(below(3)))},
                     {"1", run_.tensor({{"dtype", run_.text(below(2) ? "x" : "y")},
                                        {"shape", run_.list({integer(below(2)), integer(4)})}})}});
    const std::uint64_t id = run_.begin(name, args);
    while (depth < 3 && below(3) == 0) call(depth + 1);
    if (below(4) == 0) state();
    const bool raises = below(12) == 0;
    run_.end(name, id,
             below(3) ? run_.tensor({{"dtype", run_.text(below(3) ? "x" : "y")},
                                     {"shape", run_.list({integer(below(2)), integer(4)})}})
                      : run_.typed("float", real(below(4))),
             raises ? RecordKind::exception : RecordKind::post);
  }

  void state() {
    static const char* const kNames[] = {"u", "v", "w"};
    run_.state(kNames[below(3)], {{"data", integer(below(5))},
                                  {"grad", below(2) ? none() : integer(below(3))},
                                  {"requires_grad", boolean(below(9) != 0)}});
  }

  std::mt19937 random_;
  Run run_;
};

std::int64_t step_of(Values& values, const Record& record) {
  return record.field(values.name("meta_vars.step")).integer;
}

bool same(const CheckResult& a, const CheckResult& b) {
  return std::ranges::equal(a.judgements, b.judgements, [](const auto& one, const auto& other) {
    return one.verdict == other.verdict && one.covered == other.covered &&
           one.violations == other.violations;
  });
}

}  // namespace

TEST_CASE("a run never violates what was learned from it, alone or with others") {
  std::size_t invariants = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Values values;
    Run one = RandomRun(values, seed).make();
    Run other = RandomRun(values, seed + 1000).make();
    const std::vector<TraceInput> traces{{one.records}, {other.records}};
    for (const std::size_t count : {1, 2}) {
      const Inference learned = infer(values, std::span(traces).subspan(0, count), nullptr);
      invariants += learned.invariants.size();
      for (std::size_t i = 0; i < count; ++i) {
        const CheckResult result = check(values, traces[i], learned.invariants, nullptr);
        CHECK(violated(result).empty());
        if (count == 1) CHECK(result.count(Verdict::not_triggered) == 0);
      }
    }
  }
  CHECK(invariants > 1000);  // it was not for lack of any
}

TEST_CASE("fault 11: neither the order of files nor that of records of one time matters") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Values values;
    Run run = RandomRun(values, seed).make();
    for (Record& record : run.records) record.time -= record.time % (2 + seed % 8);  // ties
    Run shuffled = run;
    std::mt19937 random(seed);
    std::shuffle(shuffled.records.begin(), shuffled.records.end(), random);
    std::uint32_t line = 0;
    for (Record& record : shuffled.records) record.line = ++line;

    const Inference one = learn(run);
    const Inference other = learn(shuffled);

    CHECK(std::ranges::equal(
        one.invariants, other.invariants, [&](const Invariant& a, const Invariant& b) {
          return compare(values, a, b) == 0 && a.positive_examples == b.positive_examples &&
                 a.negative_examples == b.negative_examples;
        }));
    CHECK(same(judge(run, one), judge(shuffled, one)));
  }
}

TEST_CASE("fault 15: invariants come in one order, whatever was in the pool of values before") {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::vector<std::vector<std::string>> texts;
    for (const bool filled : {false, true}) {
      Values values;
      // Other numbers for the same names.
      if (filled) {
        for (const char* name : {"lib.g._h", "lib.f", "lib.e", "lib.c.D.forward", "lib.b", "lib.a",
                                 "w", "v", "u", "y", "x", "testing", "training", "init", "shape"}) {
          values.name(name);
        }
      }
      Run run = RandomRun(values, seed).make();
      for (Record& record : run.records) record.time -= record.time % 8;
      auto& list = texts.emplace_back();
      for (const Invariant& invariant : learn(run).invariants) {
        list.push_back(invariant.text + " " + std::to_string(invariant.positive_examples) + " " +
                       std::to_string(invariant.negative_examples));
      }
    }

    CHECK(texts[0] == texts[1]);
  }
}

TEST_CASE("fault 13: a growing trace is judged like the whole one, step by step") {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    Values values;
    Run run = RandomRun(values, seed).make();
    const Inference learned = learn(run);
    Run other = RandomRun(values, seed + 500).make();
    // Files of processes grow side by side, one now and then a little behind.
    std::vector<std::vector<Record>> files(3);
    for (Record record : other.records) {
      record.file = static_cast<std::uint32_t>(record.process);
      files[record.file].push_back(record);
    }
    Checker checker(values, learned.invariants, nullptr, false);
    std::mt19937 random(seed);
    std::vector<std::size_t> done(3, 0);
    std::uint64_t early = 0;
    for (bool any = true; any;) {
      any = false;
      std::int64_t slowest = INT64_MAX;
      for (std::size_t i = 0; i < 3; ++i) {
        if (done[i] == files[i].size()) continue;
        slowest = std::min(slowest, done[i] == 0 ? 0 : step_of(values, files[i][done[i] - 1]));
      }
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t part = random() % 4; part > 0 && done[i] < files[i].size(); --part) {
          if (step_of(values, files[i][done[i]]) > slowest + 1) break;
          checker.push(files[i][done[i]++]);
        }
        any = any || done[i] < files[i].size();
      }
      checker.advance(INT64_MAX);
      early = std::max(early, any ? checker.violations() : 0);
    }
    checker.finish();
    const CheckResult grown = checker.result();
    const Judged whole = judge(other, learned);

    CHECK(grown.late == 0);
    CHECK(same(grown, whole));
    CHECK((early > 0 || checker.violations() == 0));  // not only at the end
  }
}

TEST_CASE("records that come after their step was judged are counted, not judged") {
  Values values;
  Run run(values);
  for (int step = 0; step < 6; ++step) {
    run.step(step);
    run.call("lib.a");
  }
  Record late = run.records[2];  // of step 1
  const Inference learned = learn(run);
  Checker checker(values, learned.invariants, nullptr, false);

  for (const Record& record : run.records) checker.push(record);
  checker.advance(INT64_MAX);
  checker.push(late);
  checker.finish();

  CHECK(checker.result().late == 1);
}

TEST_CASE("a step is judged as soon as the next one begins, a gap of two lets one lag behind") {
  Values values;
  Run run(values);
  for (int step = 0; step < 8; ++step) {
    run.step(step);
    run.call("lib.a", [&] { run.call("lib.b"); });
  }
  const Inference learned = learn(run);
  Run broken(values);
  for (int step = 0; step < 8; ++step) {
    broken.step(step);
    broken.call("lib.a", [&] {
      if (step != 5) broken.call("lib.b");
    });
  }
  Checker checker(values, learned.invariants, nullptr, false);
  std::int64_t seen_in = kNoStep;

  for (const Record& record : broken.records) {
    const std::int64_t step = checker.push(record);
    checker.advance(INT64_MAX);
    if (seen_in == kNoStep && checker.violations() > 0) seen_in = step;
  }

  CHECK(seen_in == 6);
}
