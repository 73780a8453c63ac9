// SPDX-License-Identifier: Apache-2.0
// Where invariants hold: stages, context managers, what was recorded and what was lost. Faults are
// those of TrainCheck.
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

TEST_CASE("fault 18: a missing attribute is a miss, whether it was seen before or not") {
  Values values;
  Run run(values);
  for (const char* stage : {"training", "testing"}) {
    for (int step = 3; step < 6; ++step) {
      run.step(step, stage);
      const bool graph = stage[1] == 'r';  // then grad_fn is not recorded
      const Value dtype = run.text("torch.float32");
      run.call("lib.forward", {}, {},
               graph ? run.tensor({{"dtype", dtype}})
                     : run.tensor({{"dtype", dtype}, {"grad_fn", none()}}));
    }
  }

  const Inference learned = learn(run);

  CHECK(condition_of(values, learned,
                     "lib.forward() consistently returns tensors with grad_fn=None") ==
        "where stage is testing");
  for (const Invariant& invariant : learned.invariants) {
    CHECK(invariant.text.find("missing") == std::string::npos);
  }
  CHECK(violated(judge(run, learned)).empty());
}

TEST_CASE("fault 21: a manager within another of its class hides that one until it is left") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int) {
      const auto autocast = [&](std::int64_t object, bool enabled,
                                const std::function<void()>& inside) {
        run->object(object);
        run->call("lib.autocast.__init__", {},
                  run->object({{"enabled", run->typed("bool", boolean(enabled))}}));
        run->call("lib.autocast.__enter__");
        run->object(0);
        inside();
        run->object(object);
        run->call("lib.autocast.__exit__");
        run->object(0);
      };
      const auto linear = [&](bool low) {
        run->call("lib.linear", {}, {},
                  run->tensor({{"dtype", run->text(low ? "torch.bfloat16" : "torch.float32")}}));
      };
      autocast(1, true, [&] {
        linear(true);
        autocast(2, false, [&] { linear(run == &broken); });
        linear(true);
      });
    });
  }

  const Inference learned = learn(healthy);

  CHECK(condition_of(values, learned,
                     "lib.linear() consistently returns tensors with dtype=torch.bfloat16") ==
        "where lib.autocast.enabled is True");
  const Judged result = judge(broken, learned);
  CHECK(violated(result) ==
        std::vector<std::string>{
            "lib.linear() consistently returns tensors with dtype=torch.float32"});
}

TEST_CASE("fault 22: the states that TrainCheck's tracker loses at the end are no violation") {
  Values values;
  Run healthy(values), cut(values);
  for (Run* run : {&healthy, &cut}) {
    run->step(0, "init");
    run->state("w", {{"data", integer(100)}});
    train(*run, 4, [&](int step) {
      run->call("lib.step", [&] {
        if (run == &cut && step == 4) return;
        run->state("w", {{"data", integer(100 + step)}});
      });
    });
  }
  const Inference learned = learn(healthy);
  const auto judged = [&](bool loses_tail) {
    return check(values, {cut.records, loses_tail}, learned.invariants, nullptr);
  };

  CHECK(violated(judged(true)).empty());
  CHECK(violated(judged(false)).size() == 1);
}

TEST_CASE("what was seen in one stage is not said to hold in another") {
  Values values;
  Run healthy(values), other(values);
  for (Run* run : {&healthy, &other}) {
    train(*run, 4, [&](int) {
      run->call("lib.forward", {}, {}, run->tensor({{"dtype", run->text("torch.bfloat16")}}));
    });
    run->step(4, "testing");
    run->call("lib.eval");
    if (run == &other) {
      run->call("lib.forward", {}, {}, run->tensor({{"dtype", run->text("torch.float32")}}));
    }
  }

  const Inference learned = learn(healthy);

  CHECK(condition_of(values, learned,
                     "lib.forward() consistently returns tensors with dtype=torch.bfloat16") ==
        "where stage is training");
  CHECK(violated(judge(other, learned)).empty());
}

TEST_CASE("what fails in the first step only is excepted there, by its number") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 6, [&](int step) {
      run->call("lib.zero_grad", [&] {
        if (step != 1 && (run != &broken || step != 5)) run->call("lib.set_none");
      });
    });
  }

  const Inference learned = learn(healthy);

  CHECK(condition_of(values, learned, "lib.zero_grad() always calls lib.set_none()") ==
        "except where step is 1");
  CHECK(violated(judge(broken, learned)) ==
        std::vector<std::string>{"lib.zero_grad() always calls lib.set_none()"});
}

TEST_CASE("what held in the first steps alone, by chance, is not learned") {
  Values values;
  Run run(values);
  train(run, 9, [&](int step) {
    run.call("lib.a", [&] {
      if (step < 3 || step % 2 == 0) run.call("lib.b");
    });
  });

  CHECK(!find(learn(run), "lib.a() always calls lib.b()"));
}

TEST_CASE("a function that no longer returns a tensor is a miss") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      const Value tensor = run->tensor({{"dtype", run->text("torch.float32")}});
      run->call("lib.loss", {}, {},
                run == &broken && step == 3 ? run->typed("NoneType", none()) : tensor);
    });
  }

  const Judged result = judge(broken, learn(healthy));

  REQUIRE(violated(result).size() == 1);
  CHECK(find(result, violated(result)[0])->evidence[0].found == "returned no tensor");
}

TEST_CASE("states of one place and step are told apart by how often it was passed") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      for (int rank = 0; rank < 2; ++rank) {
        run->process(rank);
        for (int pass = 0; pass < 3; ++pass) {
          const bool stray = run == &broken && step == 2 && rank == 1 && pass == 1;
          run->state("w", {{"data", integer(100 * step + pass + (stray ? 7 : 0))}});
        }
      }
    });
  }

  const Judged result = judge(broken, learn(healthy));

  const Judgement* judgement = find(result, "Parameter.data is the same in both variables");
  REQUIRE(judgement != nullptr);
  CHECK(judgement->violations == 1);
  CHECK(judgement->evidence[0].found == "201 and 208");
}

TEST_CASE(
    "an invariant of TrainCheck's may ask for any step, and may speak of an address in vain") {
  Values values;
  Run run(values);
  train(run, 8, [&](int step) {
    run.call("lib.a", [&] {
      if (step == 5) run.call("lib.b");
    });
  });
  Invariant invariant;
  invariant.relation = values.name("APIContainRelation");
  invariant.params.resize(2);
  invariant.params[0].api = values.name("lib.a");
  invariant.params[1].api = values.name("lib.b");
  Clause clause;
  clause.property = values.name("meta_vars.step");
  clause.dtype = values.name("int");
  clause.values = {integer(5)};
  invariant.precondition = {{values.name("parent_func_call_pre"), {false, {{clause}}}}};
  Invariant address = invariant;
  address.params[1].type = ParamType::variable_type;
  address.params[1].variable_type = values.name("torch.nn.Parameter");
  address.params[1].attribute = values.name("_TRAINCHECK_data_ID");
  const std::vector<Invariant> invariants{invariant, address};

  const CheckResult result = check(values, {run.records}, invariants, nullptr);

  CHECK(result.judgements[0].verdict == Verdict::passed);
  CHECK(result.judgements[0].covered == 1);
  CHECK(result.judgements[1].verdict == Verdict::not_triggered);
}
