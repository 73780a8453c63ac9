// SPDX-License-Identifier: Apache-2.0
// Which gradients leave a softmax, and how large the rounding of delta may be in them.
#include <cmath>

#include "diff/attention.hpp"
#include "test/catch.hpp"
#include "test/diff/step_trace.hpp"

namespace ttrace {
namespace {

using testing::key_of;
using testing::Tensor;

const std::string kCore = "it0/mb0/forward/block.core/";

// Two tokens, one head of four elements. Rows have the squares 4, 16 (queries), 1, 9 (keys),
// 4, 1 (the output), 9, 1 (its gradient).
testing::StepTrace attention_step(const std::string& query, const std::string& key) {
  const auto rows = [](float first, float second) {
    return Tensor{{2, 1, 1, 4}, {first, 0, 0, 0, 0, second, 0, 0}};
  };
  testing::StepTrace trace;
  trace.add(kCore + query, rows(2, 4));
  trace.add(kCore + key, rows(1, 3));
  trace.add(kCore + (query == "input.0" ? "input.2" : "input.value"), rows(1, 1));
  trace.add(kCore + "output.0", {{2, 1, 4}, {2, 0, 0, 0, 1, 0, 0, 0}});
  trace.add("it0/mb0/forward/block.out/input.0", rows(1, 1));
  trace.add("it0/mb0/forward/block.out/output.0", rows(1, 1));
  trace.add("it0/mb0/backward/block.core/grad_output.0", {{2, 1, 4}, {0, 3, 0, 0, 0, 0, 1, 0}});
  return trace;
}

struct Prepared {
  explicit Prepared(const testing::StepTrace& step) : builder("reference.trace") {
    builder.mesh({});
    for (const auto& [field, tensor] : step.fields()) builder.add(0, field, tensor);
    trace.emplace(builder.write());
    side.groups = group_shards(*trace, 0, number_microbatches(*trace, 0));
    side.tensors = place_all(side.groups, declared_layouts(side.groups, {}));
    flow.emplace(side.groups);
  }
  testing::TraceBuilder builder;
  std::optional<Trace> trace;
  Side side;
  std::optional<Flow> flow;
};

}  // namespace

TEST_CASE("gradients of what a module multiplies, and of what no module takes, leave a softmax") {
  const Prepared prepared(attention_step("input.0", "input.1"));
  const Attention attention(prepared.side, *prepared.flow);
  CHECK(attention.leaves_softmax(key_of("it0/mb0/backward/block.core/grad_input.0")));
  CHECK(attention.leaves_softmax(key_of("it0/mb0/backward/block.core/grad_input.2")));
  CHECK(attention.leaves_softmax(key_of("it0/mb0/backward/block.out/grad_output.0")));
  CHECK_FALSE(attention.leaves_softmax(key_of("it0/mb0/backward/block.out/grad_input.0")));
  CHECK_FALSE(attention.leaves_softmax(key_of("it0/grad/block.out.weight/reduced")));
}

TEST_CASE("the rounding of delta goes with output, its gradient, and the other factor") {
  const double epsilon = 0x1p-7;
  const auto [query, key] =
      GENERATE(std::pair<std::string, std::string>{"input.0", "input.1"},
               std::pair<std::string, std::string>{"input.query", "input.key"});
  const Prepared prepared(attention_step(query, key));
  const Attention attention(prepared.side, *prepared.flow);
  const auto squares = [&](const std::string& slot) {
    const auto extra =
        attention.rounding_of_delta(key_of("it0/mb0/backward/block.core/grad_" + slot), epsilon);
    REQUIRE(extra);
    CHECK(extra->width == 4);
    return extra->squares;
  };
  // [0.22 eps |O| |dO| RMS(|K|)]^2 / 4^3; the mean square of keys is 5, of queries 10.
  const double unit = 0.22 * 0.22 * epsilon * epsilon / 64;
  CHECK(squares(query).at(0) == Approx(unit * 4 * 9 * 5));
  CHECK(squares(query).at(1) == Approx(unit * 1 * 1 * 5));
  CHECK(squares(key).at(0) == Approx(unit * 4 * 9 * 10));
  CHECK(squares(key).at(1) == Approx(unit * 1 * 1 * 10));
  const std::string value = query == "input.0" ? "grad_input.2" : "grad_input.value";
  const auto of_value =
      attention.rounding_of_delta(key_of("it0/mb0/backward/block.core/" + value), epsilon);
  CHECK_FALSE(of_value);
}

TEST_CASE("float32 rounds delta by a whole epsilon") {
  const Prepared prepared(attention_step("input.0", "input.1"));
  const Attention attention(prepared.side, *prepared.flow);
  const auto extra =
      attention.rounding_of_delta(key_of("it0/mb0/backward/block.core/grad_input.0"), 0x1p-23);
  REQUIRE(extra);
  CHECK(extra->squares.at(1) == Approx(0x1p-46 / 64 * 5));
}

}  // namespace ttrace
