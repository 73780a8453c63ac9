// SPDX-License-Identifier: Apache-2.0
// What TrainCheck gets wrong, each with what is right; named after the fault. Faults of its
// collector are tested with ours.
#include <algorithm>

#include "invariant/report.hpp"
#include "test/catch.hpp"
#include "test/invariant/made_run.hpp"

using namespace made_run;

namespace {

void train(Run& run, int steps, const std::function<void(int)>& body) {
  for (int step = 1; step <= steps; ++step) {
    run.step(step);
    body(step);
  }
}

std::string condition_of(const Values& values, const Inference& learned, const std::string& text) {
  const Invariant* invariant = find(learned, text);
  return invariant == nullptr ? "not learned" : condition_text(values, *invariant);
}

}  // namespace

TEST_CASE("fault 1: a clause that did not matter to one hypothesis is there for the next") {
  Values values;
  Run run(values);
  // The stage tells nothing about a(), which always calls x(), and everything about b().
  for (const char* stage : {"training", "testing"}) {
    for (int step = 3; step < 6; ++step) {
      run.step(step, stage);
      run.call("lib.a", [&] { run.call("lib.x"); });
      run.call("lib.b", [&] {
        if (stage[1] == 'r') run.call("lib.y");
      });
    }
  }

  const Inference learned = learn(run);

  CHECK(condition_of(values, learned, "lib.a() always calls lib.x()").empty());
  CHECK(condition_of(values, learned, "lib.b() always calls lib.y()") == "where stage is training");
}

TEST_CASE("fault 2: hashes count with all of their 64 bits") {
  Values values;
  Run healthy(values), broken(values);
  const std::int64_t hash = (std::int64_t{1} << 60) + 1;  // as a double it is the same as hash - 1
  for (Run* run : {&healthy, &broken}) {
    train(*run, 3, [&](int) {
      for (int rank = 0; rank < 2; ++rank) {
        run->process(rank);
        run->state("w", {{"data", integer(run == &broken && rank == 1 ? hash - 1 : hash)}});
      }
    });
  }

  CHECK(violated(judge(broken, learn(healthy))) ==
        std::vector<std::string>{"Parameter.data is the same in both variables"});
}

TEST_CASE("faults 3 and 20: no invariant speaks of addresses or of paths of one run") {
  Values values;
  Run run(values);
  train(run, 3, [&](int) {
    for (const char* name : {"v", "w"}) {
      run.state(name, {{"_TRAINCHECK_data_ID", integer(140309101383584)}, {"data", integer(5)}});
    }
    run.call("lib.init", [&] {
      run.call("lib.init_process_group", {},
               run.object({{"url", run.typed("str", run.text("file:///tmp/tmpx1/store"))},
                           {"address", run.typed("int", integer(140309101383584))},
                           {"port", run.typed("int", integer(29308))},
                           {"world", run.typed("int", integer(2))}}));
    });
    run.call("lib.make", {}, {},
             run.tensor({{"_TRAINCHECK_data_ID", integer(140309101383584)},
                         {"dtype", run.text("torch.float32")}}));
  });

  const Inference learned = learn(run);

  CHECK(find(learned, "lib.init() always calls lib.init_process_group() with world=2"));
  CHECK(find(learned, "lib.make() consistently returns tensors with dtype=torch.float32"));
  for (const Invariant& invariant : learned.invariants) {
    CHECK(invariant.text.find("_ID") == std::string::npos);
    CHECK(invariant.text.find("url") == std::string::npos);
    CHECK(invariant.text.find("address") == std::string::npos);
    CHECK(invariant.text.find("port") == std::string::npos);
  }
}

TEST_CASE("fault 20: a number that one of two runs had is dropped, one of both is kept") {
  Values values;
  std::vector<Run> runs;
  for (const int batch : {32, 48}) {
    Run& run = runs.emplace_back(values);
    train(run, 3, [&](int) {
      const Value shape = run.list({integer(batch), integer(4)});
      run.call("lib.head", {}, {}, run.tensor({{"shape", shape}, {"ndim", integer(2)}}));
    });
  }
  const std::vector<TraceInput> traces{{runs[0].records}, {runs[1].records}};

  const Inference learned = infer(values, traces, nullptr);

  CHECK(find(learned, "lib.head() consistently returns tensors with ndim=2"));
  CHECK(!find(learned, "lib.head() consistently returns tensors with shape=(32, 4)"));
  CHECK(!find(learned, "lib.head() consistently returns tensors with shape=(48, 4)"));
}

TEST_CASE("fault 4: one miss among thousands of calls is seen") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    run->step(3);
    for (int i = 0; i < 5000; ++i) {
      run->call("lib.a", [&] {
        if (run != &broken || i != 4321) run->call("lib.b");
      });
    }
  }

  const Inference learned = learn(healthy);
  const Judged result = judge(broken, learned);

  REQUIRE(find(learned, "lib.a() always calls lib.b()")->positive_examples == 5000);
  CHECK(find(result, "lib.a() always calls lib.b()")->violations == 1);
}

TEST_CASE("fault 5: a child that raises is another child, for learning and for checking") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      run->call("lib.load", [&] {
        run->end("lib.probe", run->begin("lib.probe"), {}, RecordKind::exception);
        const bool raises = run == &broken && step == 3;
        run->end("lib.read", run->begin("lib.read"), {},
                 raises ? RecordKind::exception : RecordKind::post);
      });
    });
  }

  const Inference learned = learn(healthy);

  CHECK(find(learned, "lib.load() always calls lib.probe(), which raises"));
  CHECK(!find(learned, "lib.load() always calls lib.probe()"));
  CHECK(violated(judge(healthy, learned)).empty());
  const auto texts = violated(judge(broken, learned));
  CHECK(std::ranges::find(texts, "lib.load() always calls lib.read()") != texts.end());
}

TEST_CASE("faults 6 and 19: states of one step are compared, however far apart processes run") {
  Values values;
  Run healthy(values), rerun(values), broken(values);
  for (Run* run : {&healthy, &rerun, &broken}) {
    // In the re-run the second process is three steps behind all the time.
    for (int step = 0; step < 6; ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        run->process(rank).step(step);
        run->at(1000 * (step + (run == &healthy ? 0 : 3 * rank)) + 10 * rank + 1);
        const bool stray = run == &broken && rank == 1 && step == 4;
        run->state("w", {{"data", integer(70 + step + (stray ? 500 : 0))}});
      }
    }
  }

  const Inference learned = learn(healthy);

  REQUIRE(find(learned, "Parameter.data is the same in both variables"));
  CHECK(violated(judge(rerun, learned)).empty());
  const Judged result = judge(broken, learned);
  const Judgement* judgement = find(result, "Parameter.data is the same in both variables");
  CHECK(judgement->violations == 1);
  CHECK(judgement->evidence[0].place.step == 4);
  CHECK(judgement->evidence[0].found == "74 and 574");
}

TEST_CASE("fault 7: arguments are compared exactly and judged pair by pair") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 3, [&](int step) {
      for (int call = 0; call < 3; ++call) {
        // Lists that share an element are not the same list.
        const std::int64_t other = run == &broken && step == 2 && call == 2 ? 1 : call;
        run->call(
            "lib.pick", {},
            run->object({{"0", run->typed("list", run->list({integer(7), integer(other)}))}}));
      }
    });
  }

  const Inference learned = learn(healthy);
  const Judged result = judge(broken, learned);

  CHECK(violated(judge(healthy, learned)).empty());
  const Judgement* judgement = find(result, "lib.pick() receives distinct arguments at each step");
  REQUIRE(judgement != nullptr);
  CHECK(judgement->violations == 1);
  CHECK(judgement->evidence[0].place.step == 2);
}

TEST_CASE("fault 8: an order that held counts as passed, one that never applied does not") {
  Values values;
  Run healthy(values), other(values);
  for (Run* run : {&healthy, &other}) {
    train(*run, 4, [&](int) {
      run->call("lib.a");
      run->call("lib.b");
      if (run == &healthy) run->call("lib.c");
    });
  }

  const Judged result = judge(other, learn(healthy));

  CHECK(find(result, "each call of lib.b() comes after one of lib.a() since the last lib.b()")
            ->verdict == Verdict::passed);
  CHECK(find(result, "after each call of lib.a() comes one of lib.b() before the next lib.a()")
            ->verdict == Verdict::passed);
  CHECK(find(result, "each call of lib.c() comes after one of lib.b() since the last lib.c()")
            ->verdict == Verdict::not_triggered);
}

TEST_CASE("fault 9: orders of Module.train and of private functions are learned") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      if (run != &broken || step < 3) run->call("torch.nn.modules.module.Module.train");
      run->call("torch.optim.optimizer.Optimizer._step_hook");
      run->call("torch.nn.modules.linear.Linear.forward");
    });
  }

  const auto texts = violated(judge(broken, learn(healthy)));

  const auto has = [&](const char* text) { return std::ranges::find(texts, text) != texts.end(); };
  CHECK(
      has("each call of Linear.forward() comes after one of Module.train() since the last "
          "Linear.forward()"));
  CHECK(
      has("each call of Optimizer._step_hook() comes after one of Module.train() since the last "
          "Optimizer._step_hook()"));
}

TEST_CASE("fault 10: exceptions, lost ends, equal object numbers and zero bounds are tolerated") {
  Values values;
  Run run(values);
  train(run, 4, [&](int step) {
    for (int rank = 0; rank < 2; ++rank) {
      run.process(rank);
      run.object(77);  // the same on both
      const std::uint64_t id = run.begin("lib.norm");
      run.end("lib.norm", id, run.typed("float", real(0)),
              step == 2 ? RecordKind::exception : RecordKind::post);
      run.call("lib.clip", {}, run.object({{"max_norm", run.typed("float", real(0))}}),
               run.typed("float", real(0)));
    }
  });
  run.begin("lib.cut");       // the run was killed
  run.end("lib.lost", 4711);  // its begin is on a lost line

  const Inference learned = learn(run);
  const Judged result = judge(run, learned);

  CHECK(learned.gaps.never_ended == 1);
  CHECK(learned.gaps.never_began == 1);
  CHECK(result.gaps.never_ended == 1);
  CHECK(find(learned, "lib.clip(): output[0] \u2264 max_norm"));
  CHECK(violated(result).empty());
}

TEST_CASE("fault 12: a vanished function is reported on either side of an order") {
  Values values;
  Run healthy(values), no_first(values), no_second(values), cut(values);
  for (Run* run : {&healthy, &no_first, &no_second, &cut}) {
    train(*run, 6, [&](int step) {
      if (run != &no_first) run->call("lib.first");
      if (run == &cut && step == 6) return;  // the run ends here
      if (run != &no_second) run->call("lib.second");
      run->call("lib.third");
    });
  }

  const Inference learned = learn(healthy);

  const auto cover = violated(judge(no_first, learned));
  CHECK(
      std::ranges::find(
          cover,
          "each call of lib.second() comes after one of lib.first() since the last lib.second()") !=
      cover.end());
  const auto lead = violated(judge(no_second, learned));
  CHECK(
      std::ranges::find(
          lead,
          "after each call of lib.first() comes one of lib.second() before the next lib.first()") !=
      lead.end());
  CHECK(violated(judge(cut, learned)).empty());  // the last window is not over
}

TEST_CASE("fault 12: the last call is judged when the thread goes on for more than a period") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      run->call("lib.save");
      if (run != &broken || step != 4) run->call("lib.sync");
      for (int i = 0; i < 4; ++i) run->call("lib.other");
    });
    for (int i = 0; i < 30; ++i) run->call("lib.other");
  }

  const Judged result = judge(broken, learn(healthy));

  const Judgement* judgement = find(
      result, "after each call of lib.save() comes one of lib.sync() before the next lib.save()");
  REQUIRE(judgement != nullptr);
  REQUIRE(judgement->violations == 1);
  CHECK(judgement->evidence[0].place.step == 4);
  CHECK(judgement->evidence[0].found == "no call of lib.sync() after the last time");
}

TEST_CASE("fault 14: a change that the first call of a stage makes counts in that stage") {
  Values values;
  Run run(values);
  run.step(0, "init");
  run.state("w", {{"data", integer(100)}});
  for (int step = 3; step < 5; ++step) {
    run.step(step, "training");
    run.call("lib.step", [&] { run.state("w", {{"data", integer(100 + step)}}); });
  }

  const Inference learned = learn(run);

  const Invariant* invariant =
      find(learned, "lib.step() changes Parameter.data: non-zero --> non-zero");
  REQUIRE(invariant != nullptr);
  CHECK(invariant->positive_examples == 2);
  CHECK(invariant->negative_examples == 0);
}
