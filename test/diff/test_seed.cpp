// SPDX-License-Identifier: Apache-2.0
// The gradient seed: what counts as a common factor, and which factors a mesh explains.
#include <cmath>
#include <map>
#include <vector>

#include "diff/compare.hpp"
#include "test/catch.hpp"
#include "test/libttrace/trace_builder.hpp"
#include "tolerance/bound.hpp"

namespace ttrace {
namespace {

using testing::TraceBuilder;

const std::map<double, std::string> kFactors{{0.5, "1 / dp"}, {1.0, ""}, {2.0, "dp"}};

testing::Field field(const std::string& key) {
  testing::Field field;
  field.key = testing::key_of(key);
  return field;
}

Trace mesh_trace(TraceBuilder& builder,
                 const std::vector<std::pair<std::string, std::uint64_t>>& mesh) {
  builder.mesh(mesh);
  for (const auto& [rank, where] : builder.places()) {
    builder.add(rank, field("it0/mb0/forward/a/output.0"), testing::constant_tensor({2}, 1));
  }
  return builder.write();
}

// A step of three modules: gradients of outputs, a loss and its gradient.
void add_step(TraceBuilder& builder, float factor, const std::vector<float>& own_factors) {
  builder.mesh({});
  const char* modules[] = {"a", "b", "c"};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string path = "it0/mb0/";
    const auto output = testing::random_tensor({8, 16}, 20 + static_cast<unsigned>(i));
    const auto gradient = testing::random_tensor({8, 16}, 30 + static_cast<unsigned>(i));
    builder.add(0, field(path + "forward/" + modules[i] + "/output.0"), output);
    builder.add(0, field(path + "backward/" + modules[i] + "/grad_output.0"),
                testing::scaled(gradient, factor * own_factors[i]));
  }
  builder.add(0, field("it0/mb0/forward/@root/output.0"), testing::constant_tensor({}, 3));
  builder.add(0, field("it0/mb0/backward/@root/grad_output.0"), testing::constant_tensor({}, 1));
}

Report compare_steps(TraceBuilder& reference, TraceBuilder& candidate) {
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt);
  };
  const Trace left = reference.write();
  const Trace right = candidate.write();
  return compare(left, right, *make_cpu_backend(), options);
}

}  // namespace

TEST_CASE("the most frequent ratio is the middle of the fullest window") {
  CHECK(most_frequent({}) == 1);
  CHECK(most_frequent({2}) == 2);
  CHECK(most_frequent({1, 2, 2.001, 1.999, 5, 0.1}) == 2);
  CHECK(most_frequent({0.5, 0.5, 0.5, 2, 2}) == 0.5);
}

TEST_CASE("products of mesh sizes and their inverses are explained by name") {
  TraceBuilder one("r.trace"), many("c.trace");
  const Trace reference = mesh_trace(one, {});
  const Trace candidate = mesh_trace(many, {{"dp", 2}, {"cp", 3}});

  const auto factors = explainable_factors(reference, candidate);

  CHECK(factors.at(1) == "");
  CHECK(factors.at(2) == "dp");
  CHECK(factors.at(3) == "cp");
  CHECK(factors.at(6) == "cp * dp");
  CHECK(factors.at(1.0 / 2) == "1 / dp");
  CHECK(factors.at(1.0 / 6) == "1 / (cp * dp)");
  CHECK(factors.count(5) == 0);
}

TEST_CASE("a factor near a ratio of mesh sizes is that ratio, within the tolerance only") {
  const Seed close = explain_seed(2 * (1 + 5e-6), 1e-5, kFactors);
  CHECK(close.explained);
  CHECK(close.factor == 2);
  CHECK(close.meaning == "dp");

  const Seed off = explain_seed(2 * (1 + 4e-4), 1e-5, kFactors);
  CHECK_FALSE(off.explained);
  CHECK(off.factor == Approx(2.0008));
}

TEST_CASE("only a factor that most tensors share closely is a seed") {
  const Seed shared = seed_of({1.0004, 1.0004, 1.0004, 1.7}, 1e-5, kFactors);
  CHECK_FALSE(shared.explained);
  CHECK(shared.factor == Approx(1.0004));

  // An error that grows through the backward pass: the nearest explainable factor is assumed.
  const Seed scattered = seed_of({2.0, 2.01, 2.02, 2.03, 2.05}, 1e-5, kFactors);
  CHECK(scattered.explained);
  CHECK(scattered.factor == 2);
}

TEST_CASE("a common factor that no mesh explains is one finding, and no tensor is blamed for it") {
  TraceBuilder reference("r.trace"), candidate("c.trace");
  add_step(reference, 1, {1, 1, 1});
  add_step(candidate, 1.0009765625f, {1, 1, 1});

  const Report report = compare_steps(reference, candidate);

  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].finding.kind == FindingKind::gradient_seed);
  CHECK(report.findings[0].place.stage == Stage::backward);
  CHECK(report.seeds.at(0).factor == Approx(1.0009765625));
}

TEST_CASE("a tensor with another factor than the rest is found") {
  TraceBuilder reference("r.trace"), candidate("c.trace");
  add_step(reference, 1, {1, 1, 1});
  add_step(candidate, 1, {2, 1, 1});

  const Report report = compare_steps(reference, candidate);

  REQUIRE(report.findings.size() == 1);
  CHECK(to_string(report.findings[0].finding.key) == "it0/mb0/backward/a/grad_output.0");
  CHECK(report.findings[0].finding.message.find("a factor of exactly 2") != std::string::npos);
}

}  // namespace ttrace
