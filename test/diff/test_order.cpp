// SPDX-License-Identifier: Apache-2.0
// The order of a step as read from a trace, and which finding is called the first.
#include <algorithm>

#include "test/catch.hpp"
#include "test/diff/step_trace.hpp"

namespace ttrace {
namespace {

using testing::compare_steps;
using testing::key_of;
using testing::random_tensor;
using testing::scaled;
using testing::StepTrace;

// Two blocks of two modules each, an embedding and a head, in the order in which hooks fire:
// children before the module that contains them.
StepTrace model(unsigned seed = 1) {
  StepTrace trace;
  const auto activation = [&](const std::string& module, int microbatch) {
    const std::string start = "it0/mb" + std::to_string(microbatch);
    trace.add(start + "/forward/" + module + "/output.0", random_tensor({8, 4}, ++seed));
  };
  for (const std::string name : {"embedding", "layers.0.fc1", "layers.1.fc1", "head"}) {
    trace.add("it0/param/" + name + ".weight/value", random_tensor({4, 4}, ++seed));
  }
  const std::vector<std::string> modules{"embedding", "layers.0.fc1", "layers.0.fc2",
                                         "layers.0",  "layers.1.fc1", "layers.1.fc2",
                                         "layers.1",  "head",         "@root"};
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    trace.add("it0/mb" + std::to_string(microbatch) + "/forward/@root/input.0",
              testing::constant_tensor({4}, static_cast<float>(microbatch)), DType::int64);
    for (const std::string& module : modules) activation(module, microbatch);
    for (auto module = modules.rbegin(); module != modules.rend(); ++module) {
      trace.add("it0/mb" + std::to_string(microbatch) + "/backward/" + *module + "/grad_output.0",
                random_tensor({8, 4}, ++seed));
    }
  }
  for (const std::string name : {"embedding", "layers.0.fc1", "layers.1.fc1", "head"}) {
    trace.add("it0/grad/" + name + ".weight/reduced", random_tensor({4, 4}, ++seed));
    trace.add("it0/step/" + name + ".weight/param", random_tensor({4, 4}, ++seed));
  }
  return trace;
}

Flow flow_of(const StepTrace& step, testing::TraceBuilder& builder, std::optional<Trace>& trace) {
  builder.mesh({});
  for (const auto& [field, tensor] : step.fields()) builder.add(0, field, tensor);
  trace.emplace(builder.write());
  return Flow(group_shards(*trace, 0, number_microbatches(*trace, 0)));
}

// The keys of the findings when these tensors are doubled.
std::vector<std::string> order_of(const std::vector<std::string>& wrong) {
  StepTrace candidate = model();
  for (const std::string& key : wrong) candidate.set(key, scaled(candidate.get(key), 1.5f));
  std::vector<std::string> keys;
  for (const OrderedFinding& entry : compare_steps(model(), candidate).findings) {
    keys.push_back(to_string(entry.finding.key));
  }
  return keys;
}

}  // namespace

TEST_CASE("depth counts the blocks that had finished before") {
  testing::TraceBuilder builder("r.trace");
  std::optional<Trace> trace;
  const Flow flow = flow_of(model(), builder, trace);

  CHECK(flow.blocks() == 2);
  CHECK(flow.depth(key_of("it0/mb0/forward/embedding/output.0")) == 1);
  CHECK(flow.depth(key_of("it0/mb0/forward/layers.0.fc2/output.0")) == 1);
  CHECK(flow.depth(key_of("it0/mb1/forward/layers.0/output.0")) == 1);
  CHECK(flow.depth(key_of("it0/mb0/forward/layers.1.fc1/output.0")) == 2);
  CHECK(flow.depth(key_of("it0/mb0/forward/head/output.0")) == 3);
  CHECK(flow.depth(key_of("it0/mb0/backward/layers.1/grad_output.0")) == 2);
  CHECK(flow.depth(key_of("it0/grad/embedding.weight/reduced")) == 1);
  CHECK(flow.depth(key_of("it0/step/head.weight/param")) == 3);
}

TEST_CASE("a step passes from parameters through forward and backward to the update") {
  const std::vector<std::string> expected{
      "it0/param/head.weight/value",
      "it0/mb0/forward/embedding/output.0",
      "it0/mb1/forward/layers.0.fc2/output.0",
      "it0/mb0/forward/layers.0/output.0",
      "it0/mb0/forward/head/output.0",
      "it0/mb1/forward/@root/output.0",
      "it0/mb0/backward/head/grad_output.0",
      "it0/mb0/backward/layers.1/grad_output.0",
      "it0/mb0/backward/layers.0.fc1/grad_output.0",
      "it0/grad/head.weight/reduced",
      "it0/grad/layers.1.fc1.weight/reduced",
      "it0/grad/embedding.weight/reduced",
      "it0/step/layers.1.fc1.weight/param",
      "it0/step/layers.0.fc1.weight/param",
  };
  std::vector<std::string> shuffled = expected;
  std::reverse(shuffled.begin(), shuffled.end());
  CHECK(order_of(shuffled) == expected);
}

TEST_CASE("the gradient of an output was computed by what comes after the module") {
  const auto maker_of = [](const std::string& wrong) {
    StepTrace candidate = model();
    candidate.set(wrong, scaled(candidate.get(wrong), 1.5f));
    const auto findings = compare_steps(model(), candidate).findings;
    REQUIRE(to_string(findings.front().finding.key) == wrong);
    return findings.front().maker;
  };
  const auto of_block = maker_of("it0/mb1/backward/layers.0/grad_output.0");
  REQUIRE(of_block);
  CHECK(of_block->modules == std::vector<std::string>{"layers.1"});  // not layers.1.fc1 alone
  CHECK_FALSE(of_block->recorded);
  CHECK_FALSE(of_block->around);
  REQUIRE(of_block->agrees);
  CHECK(to_string(*of_block->agrees) == "it0/mb1/backward/layers.1.fc1/grad_output.0");

  const auto inner = maker_of("it0/mb0/backward/layers.0.fc1/grad_output.0");
  REQUIRE(inner);
  CHECK(inner->modules == std::vector<std::string>{"layers.0.fc2"});

  const auto last = maker_of("it0/mb0/backward/layers.1.fc2/grad_output.0");
  REQUIRE(last);  // layers.1 goes on after its last module and returns
  CHECK(last->modules == std::vector<std::string>{"layers.1"});
  CHECK(last->around);

  CHECK_FALSE(maker_of("it0/mb0/forward/layers.0.fc1/output.0"));
}

TEST_CASE("the leaf comes before the modules that contain it, in each direction") {
  const auto keys =
      order_of({"it0/mb0/forward/layers.0/output.0", "it0/mb0/forward/layers.0.fc1/output.0"});
  CHECK(keys.front() == "it0/mb0/forward/layers.0.fc1/output.0");
}

TEST_CASE("the first module in data flow wins over the first micro-batch") {
  const auto keys =
      order_of({"it0/mb0/forward/head/output.0", "it0/mb1/forward/embedding/output.0"});
  CHECK(keys.front() == "it0/mb1/forward/embedding/output.0");
}

TEST_CASE("missing tensors come first, a missing module is one finding under its own name") {
  StepTrace candidate;
  const StepTrace reference = model();
  for (const auto& [field, tensor] : reference.fields()) {
    if (!lies_in(field.key.module, "layers.1"))
      candidate.add(to_string(field.key), tensor, field.dtype);
  }
  candidate.set("it0/param/embedding.weight/value", random_tensor({4, 4}, 900));

  const Report report = compare_steps(reference, candidate);

  REQUIRE(report.findings.size() == 2);
  CHECK(report.findings[0].finding.kind == FindingKind::missing);
  CHECK(report.findings[0].finding.key.module == "layers.1");
  CHECK(report.findings[0].finding.message.find("2 modules in it") != std::string::npos);
  CHECK(report.findings[1].finding.key.phase == Phase::param);
}

TEST_CASE("a single missing tensor keeps its own key") {
  StepTrace candidate = model();
  candidate.remove("it0/mb0/backward/head/grad_output.0");
  candidate.remove("it0/mb1/backward/head/grad_output.0");

  const Finding finding = testing::only_finding(compare_steps(model(), candidate));
  CHECK(finding.kind == FindingKind::missing);
  CHECK(to_string(finding.key) == "it0/mb0/backward/head/grad_output.0");
}

TEST_CASE("what only the candidate has is unexpected") {
  StepTrace candidate = model();
  candidate.add("it0/mb0/forward/layers.2.fc1/output.0", random_tensor({8, 4}, 5));
  const Finding finding = testing::only_finding(compare_steps(model(), candidate));
  CHECK(finding.kind == FindingKind::unexpected);
  CHECK(finding.key.module == "layers.2");
}

TEST_CASE("an update that is wrong although its gradient is right is no consequence") {
  StepTrace candidate = model();
  for (const char* key : {"it0/grad/head.weight/reduced", "it0/step/head.weight/param",
                          "it0/step/embedding.weight/param"}) {
    candidate.set(key, random_tensor({4, 4}, 901));
  }
  const Report report = compare_steps(model(), candidate);

  REQUIRE(report.findings.size() == 3);
  CHECK_FALSE(report.findings[0].inherited);
  CHECK(to_string(report.findings[1].finding.key) == "it0/step/head.weight/param");
  CHECK(report.findings[1].inherited);
  CHECK_FALSE(report.findings[2].inherited);
  CHECK(report.inherited() == 1);
}

TEST_CASE("an output is a consequence of its inputs if they are far enough off for it") {
  const std::string input = "it0/mb0/forward/layers.1.fc1/input.0";
  const std::string output = "it0/mb0/forward/layers.1.fc1/output.0";
  StepTrace reference;
  reference.add(input, random_tensor({8, 4}, 21));
  const StepTrace rest = model();
  for (const auto& [field, tensor] : rest.fields()) {
    reference.add(to_string(field.key), tensor, field.dtype);
  }
  // In float32 the limit is 4 epsilon a block, so 2^-17 is some ten limits and 1/2 a million.
  const auto inherited = [&](float of_input) {
    StepTrace candidate = reference;
    candidate.set(input, scaled(reference.get(input), 1 + of_input));
    candidate.set(output, scaled(reference.get(output), 1.5f));
    const Report report = compare_steps(reference, candidate);
    REQUIRE(report.findings.size() == 2);
    CHECK(to_string(report.findings[0].finding.key) == input);
    return report.findings[1].inherited;
  };
  CHECK_FALSE(inherited(0x1p-17f));
  CHECK(inherited(0.25f));
}

TEST_CASE("stages of a pipelined reference are put in the order of their blocks") {
  // Rank 0 runs blocks 0 and 2, rank 1 blocks 1 and 3 and the head: interleaved stages.
  testing::TraceBuilder builder("r.trace");
  builder.mesh({{"pp", 2}});
  const std::vector<std::vector<std::string>> stages{{"embedding", "layers.0", "layers.2", "@root"},
                                                     {"layers.1", "layers.3", "head", "@root"}};
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    testing::Field tokens;
    tokens.key = key_of("it0/mb0/forward/@root/input.0");
    tokens.dtype = DType::int64;
    builder.add(rank, tokens, testing::constant_tensor({3}, 1));
    for (const std::string& module : stages[static_cast<std::size_t>(rank)]) {
      testing::Field output;
      output.key = key_of("it0/mb0/forward/" + module + "/output.0");
      builder.add(rank, output, random_tensor({2, 2}, 7));
    }
  }
  const Trace trace = builder.write();
  const Flow flow(group_shards(trace, 0, number_microbatches(trace, 0)));

  std::vector<Place> places;
  for (const char* module :
       {"embedding", "layers.0", "layers.1", "layers.2", "layers.3", "head", "@root"}) {
    places.push_back(flow.place(key_of(std::string("it0/mb0/forward/") + module + "/output.0")));
  }
  CHECK(std::is_sorted(places.begin(), places.end()));
  CHECK(flow.depth(key_of("it0/mb0/forward/layers.3/output.0")) == 4);
  CHECK(flow.depth(key_of("it0/mb0/forward/head/output.0")) == 5);
}

TEST_CASE("names of blocks, parents and parameters' modules") {
  CHECK(block_of("decoder.layers.3.mlp") == "decoder.layers.3");
  CHECK(block_of("decoder.layers.3.experts.7") == "decoder.layers.3");
  CHECK(block_of("net.fc1").empty());
  CHECK(parent_of("a.b.c") == "a.b");
  CHECK(parent_of("a") == kRootModule);
  CHECK(lies_in("layers.10.fc", "layers.10"));
  CHECK_FALSE(lies_in("layers.10.fc", "layers.1"));
  CHECK(module_of(key_of("it0/grad/layers.1.fc.weight/reduced")) == "layers.1.fc");
  CHECK(module_of(key_of("it0/mb0/forward/layers.1.fc/output.0")) == "layers.1.fc");
}

}  // namespace ttrace
