// SPDX-License-Identifier: Apache-2.0
// Each relation on runs small enough to see by eye what holds in them.
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

}  // namespace

TEST_CASE("a call that a function makes each time is learned, its absence reported") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 5, [run, &broken](int step) {
      run->call("lib.Optim.step", [&] {
        if (run != &broken || step != 4) run->call("lib.functional.update");
      });
    });
  }

  const Inference learned = learn(healthy);
  const Judged result = judge(broken, learned);

  REQUIRE(violated(result) ==
          std::vector<std::string>{"Optim.step() always calls functional.update()"});
  const Judgement& judgement = *find(result, "Optim.step() always calls functional.update()");
  CHECK(judgement.covered == 5);
  CHECK(judgement.violations == 1);
  CHECK(judgement.evidence[0].place.step == 4);
  CHECK(judgement.evidence[0].found == "not called");
}

TEST_CASE("arguments that all calls have in common belong to the child, by stage if need be") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    const auto dropout = [&](bool training) {
      const Value args = run->object({{"p", run->typed("float", real(0.25))},
                                      {"training", run->typed("bool", boolean(training))}});
      run->call("lib.Dropout.forward", [&] { run->call("lib.functional.dropout", {}, args); });
    };
    train(*run, 4, [&](int) { dropout(true); });
    run->step(4, "testing");
    for (int i = 0; i < 3; ++i) dropout(run == &broken);  // model.eval() is gone
  }

  const Inference learned = learn(healthy);

  REQUIRE(find(learned,
               "Dropout.forward() always calls functional.dropout() with p=0.25, training=False"));
  const Judged result = judge(broken, learned);
  REQUIRE(violated(result) ==
          std::vector<std::string>{"Dropout.forward() always calls functional.dropout() with "
                                   "p=0.25, training=False"});
  CHECK(result.judgements.size() >= 3);
  const auto* judgement = find(result, violated(result)[0]);
  CHECK(judgement->violations == 3);
  CHECK(judgement->evidence[0].found == "called with other arguments");
}

TEST_CASE("a variable that a call changes is learned by words, not by its hashes") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    run->step(0, "init");
    run->state("w", {{"data", integer(7'000'000'001)}});
    train(*run, 5, [&](int step) {
      run->call("lib.Optim.step", [&] {
        const std::int64_t data = run == &broken && step > 2 ? 2 : step;
        run->state("w", {{"data", integer(7'000'000'000 + 10 * data)}});
      });
    });
  }

  const Inference learned = learn(healthy);
  const std::string text = "Optim.step() changes Parameter.data: non-zero --> non-zero";

  REQUIRE(find(learned, text));
  const Judgement* judgement = nullptr;
  const Judged result = judge(broken, learned);
  judgement = find(result, text);
  CHECK(judgement->violations == 3);
  CHECK(judgement->evidence[0].place.step == 3);
}

TEST_CASE("a parameter that stops to change violates its period") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 6, [&](int step) {
      const std::int64_t data = run == &broken ? std::min(step, 3) : step;
      run->state("a", {{"data", integer(1000 + step)}});
      run->state("b", {{"data", integer(2000 + data)}});
    });
  }

  const Judged result = judge(broken, learn(healthy));

  const Judgement* judgement = find(result, "Parameter.data changes every step");
  REQUIRE(judgement != nullptr);
  CHECK(judgement->violations == 1);
  CHECK(judgement->evidence[0].place.step == 5);  // unchanged in 4, and 5 shows it
  CHECK(values.text(judgement->evidence[0].place.what) == "b");
}

TEST_CASE("a period of three steps is found") {
  Values values;
  Run run(values);
  train(run, 12, [&](int step) { run.state("w", {{"data", integer(500 + step / 3)}}); });

  CHECK(find(learn(run), "Parameter.data changes every 3 steps") != nullptr);
}

TEST_CASE("outputs have the dtype that the context manager around the call asks for") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int) {
      const auto linear = [&](const char* dtype) {
        run->call("lib.Linear.forward", {}, {},
                  run->tensor({{"dtype", run->text(dtype)}, {"ndim", integer(2)}}));
      };
      run->object(11);
      run->call("lib.autocast.__init__");
      run->call("lib.autocast.__enter__");
      run->object(0);
      linear(run == &broken ? "torch.float32" : "torch.bfloat16");
      run->object(11);
      run->call("lib.autocast.__exit__");
      run->object(0);
      linear("torch.float32");
    });
  }

  const Inference learned = learn(healthy);
  const std::string text =
      "Linear.forward() consistently returns tensors with dtype=torch.bfloat16";

  REQUIRE(find(learned, text));
  CHECK(condition_text(values, *find(learned, text)) == "where within lib.autocast");
  CHECK(violated(judge(broken, learned)) == std::vector<std::string>{text});
}

TEST_CASE("an output that keeps its input's dtype no longer does") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      const char* in = step % 2 == 0 ? "torch.float32" : "torch.bfloat16";
      const char* out = run == &broken && step == 3 ? "torch.float32" : in;
      run->call("lib.relu", {}, run->object({{"0", run->tensor({{"dtype", run->text(in)}})}}),
                run->tensor({{"dtype", run->text(out)}}));
    });
  }

  const Judged result = judge(broken, learn(healthy));

  REQUIRE(violated(result) ==
          std::vector<std::string>{"lib.relu(): input[0].dtype consistent with output[0].dtype"});
  CHECK(find(result, violated(result)[0])->evidence[0].found ==
        "the input has torch.bfloat16, the output torch.float32");
}

TEST_CASE("a function that leads and one that covers: the order of a step") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 5, [&](int) {
      if (run != &broken) run->call("lib.zero_grad");
      run->call("lib.backward");
      run->call("lib.step");
    });
  }

  const Judged result = judge(broken, learn(healthy));

  const auto texts = violated(result);
  CHECK(
      texts ==
      std::vector<std::string>{
          "each call of lib.backward() comes after one of lib.zero_grad() since the last "
          "lib.backward()",
          "each call of lib.step() comes after one of lib.zero_grad() since the last lib.step()",
          "after each call of lib.backward() comes one of lib.zero_grad() before the next "
          "lib.backward()",
          "after each call of lib.step() comes one of lib.zero_grad() before the next lib.step()"});
  const std::vector<Culprit> groups = culprits(result, values);
  REQUIRE(groups.size() == 1);
  CHECK(values.text(groups[0].name) == "lib.zero_grad");
}

TEST_CASE("two functions that are called now and then have an order by chance") {
  Values values;
  Run healthy(values), other(values), broken(values);
  for (Run* run : {&healthy, &other, &broken}) {
    train(*run, 8, [&](int step) {
      for (int rank = 1; rank <= 3; ++rank) {
        run->process(rank);
        if (run == &other ? step > 1 : step % 3 == 2) run->call("lib.augment");
        if (run != &broken || step < 4) run->call("lib.step");
        if (step % 3 == 0) run->call("lib.save");
      }
    });
  }
  const std::string rare =
      "after each call of lib.augment() comes one of lib.save() before the next lib.augment()";
  const std::string dense =
      "after each call of lib.save() comes one of lib.step() before the next lib.save()";

  const Inference learned = learn(healthy);

  REQUIRE(find(learned, rare) != nullptr);
  CHECK(find(learned, rare)->positive_examples == 6);  // three ranks, which do the same
  CHECK(find(learned, rare)->weak);
  REQUIRE(find(learned, dense) != nullptr);
  CHECK_FALSE(find(learned, dense)->weak);
  const Judged result = judge(other, learned);
  CHECK(find(result, rare)->verdict == Verdict::possible);
  CHECK(result.count(Verdict::failed) == 0);
  CHECK(find(judge(broken, learned), dense)->verdict == Verdict::failed);
}

TEST_CASE("seeds of workers are distinct in a step until two workers share one") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 3, [&](int step) {
      for (int worker = 1; worker <= 3; ++worker) {
        run->process(worker);
        const std::int64_t seed = run == &broken && worker == 3 ? 2 : worker;
        run->call("lib.seed", {},
                  run->object({{"0", run->typed("int", integer(seed + 10 * step))}}));
      }
    });
  }

  const Judged result = judge(broken, learn(healthy));

  REQUIRE(violated(result) ==
          std::vector<std::string>{"lib.seed() receives distinct arguments at each step"});
  const Judgement& judgement = *find(result, violated(result)[0]);
  CHECK(judgement.violations == 3);  // one pair in each step
  CHECK(judgement.evidence[0].place.process == 2);
  CHECK(judgement.evidence[0].other.process == 3);
}

TEST_CASE("a clipped norm stays within its bound, also where the bound is zero") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      const double bound = step == 2 ? 0 : 1;
      const double norm = step == 2 ? 0 : run == &broken && step == 3 ? 1.5 : 0.95;
      run->call("lib.clip", {}, run->object({{"max_norm", run->typed("float", real(bound))}}),
                run->typed("float", real(norm)));
    });
  }

  const Judged result = judge(broken, learn(healthy));

  REQUIRE(violated(result) == std::vector<std::string>{"lib.clip(): output[0] \u2264 max_norm"});
  CHECK(find(result, violated(result)[0])->evidence[0].found == "1.5 against 1");
}

TEST_CASE("replicas of a parameter agree between processes, shards need not") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      for (int rank = 0; rank < 2; ++rank) {
        run->process(100 + rank);
        const bool stray = run == &broken && step == 3 && rank == 1;
        run->state("norm.weight", {{"data", integer(50 + step + (stray ? 7 : 0))},
                                   {"tensor_parallel", boolean(false)}});
        run->state("linear.weight",
                   {{"data", integer(900 + 10 * step + rank)}, {"tensor_parallel", boolean(true)}});
      }
    });
  }

  const Inference learned = learn(healthy);
  const Judged result = judge(broken, learned);

  const Judgement* judgement = find(result, "Parameter.data is the same in both variables");
  REQUIRE(judgement != nullptr);
  CHECK(judgement->violations == 1);
  CHECK(judgement->evidence[0].place.step == 3);
  CHECK(values.text(judgement->evidence[0].place.what) == "norm.weight");
}

TEST_CASE("one frozen parameter among trainable ones is found at once") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    run->step(0, "init");
    for (const char* name : {"a", "b", "c", "d"}) {
      const bool frozen = run == &broken && name[0] == 'c';
      run->state(name, {{"requires_grad", boolean(!frozen)}});
    }
  }

  const Judged result = judge(broken, learn(healthy));

  const Judgement* judgement =
      find(result, "Parameter.requires_grad is the same in both variables");
  REQUIRE(judgement != nullptr);
  CHECK(judgement->violations == 2);  // its neighbours b and d
}

TEST_CASE("two ranks that train on the same shard are found by what they are given") {
  Values values;
  Run healthy(values), broken(values);
  for (Run* run : {&healthy, &broken}) {
    train(*run, 4, [&](int step) {
      for (int rank = 0; rank < 2; ++rank) {
        run->process(rank);
        const int shard = run == &broken ? 0 : rank;
        const Value batch = run->tensor({{"shape", run->list({integer(8), integer(16)})},
                                         {"data", integer(1'000'003 * step + shard)}});
        run->call("lib.Model.forward", {}, run->object({{"0", batch}}));
      }
    });
  }

  const Judged result = judge(broken, learn(healthy));

  REQUIRE(violated(result) ==
          std::vector<std::string>{"Model.forward() receives distinct arguments at each step"});
  const Judgement& judgement = *find(result, violated(result)[0]);
  CHECK(judgement.violations == 4);
  CHECK(judgement.evidence[0].place.process == 0);
  CHECK(judgement.evidence[0].other.process == 1);
}

TEST_CASE("tensors without their content are not told apart, whatever else they have") {
  Values values;
  Run run(values);
  train(run, 3, [&](int step) {
    for (int call = 0; call < 2; ++call) {
      const Value batch = run.tensor({{"shape", run.list({integer(8), integer(step + call)})}});
      run.call("lib.Model.forward", {}, run.object({{"0", batch}}));
    }
  });

  CHECK(!find(learn(run), "Model.forward() receives distinct arguments at each step"));
}

TEST_CASE("a result close to its lower bound makes a hypothesis, a far one none") {
  Values values;
  Run run(values);
  train(run, 3, [&](int) {
    const Value args = run.object({{"min_scale", run.typed("float", real(10))}});
    run.call("lib.near", {}, args, run.typed("float", real(12.2)));
    run.call("lib.far", {}, args, run.typed("float", real(13)));
  });

  const Inference learned = learn(run);

  CHECK(find(learned, "lib.near(): output[0] \u2265 min_scale"));
  CHECK(!find(learned, "lib.far(): output[0] \u2265 min_scale"));
}
