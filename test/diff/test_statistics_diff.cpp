// SPDX-License-Identifier: Apache-2.0
// Limits, pooling, what cannot be judged, and one tensor whose statistics can be worked out by
// hand; test_statistics_twin.py compares the rest with numpy.
#include <cmath>
#include <functional>

#include "diff/statistics.hpp"
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"
#include "test/libttrace/trace_builder.hpp"

namespace ttrace {
namespace {

using testing::Tensor;

// A trace of one tensor on one rank. The trace must outlive what points into it.
struct Stored {
  explicit Stored(const Tensor& values) : builder("t.trace") {
    const Key key = testing::key_of("it0/mb0/forward/m/output.0");
    builder.mesh({});
    testing::Field field;
    field.key = key;
    builder.add(0, field, values);
    trace.emplace(builder.write());
    const ShardGroups groups = group_shards(*trace, 0, number_microbatches(*trace, 0));
    tensor = place_shards(key, groups.at(key), declared_layouts(groups, {}).at(key));
  }

  testing::TraceBuilder builder;
  std::optional<Trace> trace;
  LogicalTensor tensor;
};

Tensor filled(const Shape& shape, const std::function<float(std::size_t)>& value) {
  Tensor tensor = testing::constant_tensor(shape, 0);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = value(i);
  return tensor;
}

const Statistic& statistic(const StatisticsResult& result, StatisticKind kind) {
  for (const Statistic& entry : result.all) {
    if (entry.kind == kind) return entry;
  }
  throw std::invalid_argument(std::string(name_of(kind)));
}

constexpr double kCoarse = 0x1p-7;

}  // namespace

TEST_CASE("a constant error against alternating noise has the statistics that follow by hand") {
  // x = 1, d = 1/64, n = 1/256 of alternating sign, 4,096 elements.
  const Shape shape{64, 64};
  const Stored reference(filled(shape, [](std::size_t) { return 1.0f; }));
  const Stored candidate(filled(shape, [](std::size_t) { return 1.015625f; }));
  const Stored noise(filled(
      shape, [](std::size_t i) { return (i + i / 64) % 2 == 0 ? 1.00390625f : 0.99609375f; }));
  StatisticsInput input;
  input.reference = &reference.tensor;
  input.candidate = &candidate.tensor;
  input.noise = {&noise.tensor};
  input.epsilon = kCoarse;

  const StatisticsResult result = statistics(input, {});

  CHECK(result.sigma == Approx(0.25).epsilon(1e-12));  // sqrt(4096) / 256
  CHECK(result.relative_noise == Approx(0x1p-8).epsilon(1e-12));
  CHECK(result.error == Approx(0x1p-6).epsilon(1e-12));
  CHECK(result.factor == Approx(1 + 0x1p-6).epsilon(1e-12));
  // Every block's noise is what the whole tensor's would be in it.
  for (const StatisticKind kind :
       {StatisticKind::norm, StatisticKind::shard, StatisticKind::row, StatisticKind::column}) {
    CHECK(statistic(result, kind).value == Approx(4).epsilon(1e-12));
  }
  // sum d / sqrt(sum d^2 + sum n^2) over N elements: sqrt(N) / sqrt(1 + 1/16).
  CHECK(statistic(result, StatisticKind::scale).value == Approx(64 / std::sqrt(1.0625)));
  CHECK(statistic(result, StatisticKind::column_mean).value == Approx(8 / std::sqrt(1.0625)));
  CHECK(statistic(result, StatisticKind::shard_scale).value ==
        Approx(std::sqrt(512 / 1.0625)).epsilon(1e-12));
  // u = eps (1 + 1 + 0.1) + 1/256; U is at its least, 0.5.
  CHECK(statistic(result, StatisticKind::element).value ==
        Approx(0x1p-6 / (0.5 * (kCoarse * 2.1 + 0x1p-8))).epsilon(1e-12));
  CHECK(result.differs());
  CHECK(result.worst().kind == StatisticKind::scale);
}

TEST_CASE("a tensor without noise or of another shape cannot be judged") {
  const Stored square(testing::random_tensor({8, 8}, 1));
  const Stored flat(testing::random_tensor({64}, 1));
  StatisticsInput input;
  input.reference = input.candidate = &square.tensor;
  input.epsilon = kCoarse;

  CHECK_THROWS_AS(statistics(input, {}), Trouble);
  input.noise = {&flat.tensor};
  CHECK_THROWS_AS(statistics(input, {}), Trouble);
  input.noise = {&square.tensor};
  CHECK(statistics(input, {}).equal);
  input.candidate = &flat.tensor;
  CHECK_THROWS_AS(statistics(input, {}), Trouble);
}

TEST_CASE("limits depend on the method, the class, the size and the type") {
  const StatisticLimits limits;
  LimitQuery query;
  query.epsilon = kCoarse;
  query.elements = 1000;
  const auto limit = [&](StatisticKind kind, Method method, TensorClass tensor) {
    query.kind = kind;
    query.method = method;
    query.tensor = tensor;
    return limits.of(query);
  };
  const auto ordinary = TensorClass::ordinary, softmax = TensorClass::softmax_backward;

  CHECK(limit(StatisticKind::norm, Method::local, ordinary) == 2.5);
  CHECK(limit(StatisticKind::norm, Method::envelope, ordinary) == 3);
  CHECK(limit(StatisticKind::row, Method::local, ordinary) == 5);
  CHECK(limit(StatisticKind::row, Method::local, softmax) == 8);
  CHECK(limit(StatisticKind::column, Method::local, softmax) == 7);
  CHECK(limit(StatisticKind::column, Method::envelope, softmax) == 5);
  CHECK(limit(StatisticKind::element, Method::local, softmax) == 16);
  CHECK(limit(StatisticKind::shard_scale, Method::local, ordinary) == 7);
  CHECK(std::isinf(limit(StatisticKind::scale, Method::envelope, ordinary)));
  query.vector = true;
  CHECK(limit(StatisticKind::element, Method::local, ordinary) == 10);
  query.elements = 31;
  CHECK(limit(StatisticKind::shard, Method::local, ordinary) == 7);
  CHECK(limit(StatisticKind::row, Method::local, softmax) == 8);
  query.elements = 10000;
  CHECK(limit(StatisticKind::shard_scale, Method::local, ordinary) == 16);
  query.epsilon = 0x1p-23;
  CHECK(limit(StatisticKind::norm, Method::local, ordinary) == 3.75);
  CHECK(limit(StatisticKind::shard_scale, Method::local, ordinary) == 24);
}

TEST_CASE("healthy scores widen limits and never narrow them") {
  LimitQuery row, norm;
  row.kind = StatisticKind::row;
  row.epsilon = norm.epsilon = kCoarse;
  row.elements = norm.elements = 1000;

  const StatisticLimits wider =
      widen({}, {{StatisticKind::row, 1.2}, {StatisticKind::row, 0.1}, {StatisticKind::norm, 0.5}});
  CHECK(wider.of(row) == Approx(5 * 1.5));
  CHECK(wider.of(norm) == 2.5);

  // Scores are against the limits that were in force.
  const StatisticLimits again = widen(wider, {{StatisticKind::row, 0.7}});
  CHECK(again.of(row) == wider.of(row));
  CHECK(widen(wider, {{StatisticKind::row, 2}}, 1).of(row) == Approx(2 * wider.of(row)));
  CHECK(widen(wider, {{StatisticKind::row, std::nan("")}}).of(row) == wider.of(row));
}

TEST_CASE("a small factor in every layer adds up where independent noise does not") {
  const std::vector<PooledTerm> same(12, PooledTerm{3, 1e-3, 5e-3});
  std::vector<PooledTerm> mixed = same;
  for (std::size_t i = 0; i < mixed.size(); i += 2) mixed[i] = {-3, -1e-3, 5e-3};

  CHECK(pooled(same) == Approx(3 * std::sqrt(12.0)));
  CHECK(pooled(same) > StatisticLimits{}.pooled);
  CHECK(pooled(mixed) == 0);
  // Surely there, and smaller than what correct kernels do: 0.07 of the noise.
  CHECK(pooled(std::vector<PooledTerm>(12, PooledTerm{30, 0.07 * 5e-3, 5e-3})) == 0);
  CHECK(pooled(std::vector<PooledTerm>(3, PooledTerm{-4, -1e-3, 5e-3})) ==
        Approx(-4 * std::sqrt(3.0)));
  CHECK(pooled({}) == 0);
}

TEST_CASE("an error where none is allowed has a huge score, and no error none") {
  CHECK(Statistic{StatisticKind::zero_row, 1e-30, 0, 0, ""}.score() == kHugeStatistic);
  CHECK(Statistic{StatisticKind::zero_row, 0, 0, 0, ""}.score() == 0);
  CHECK(Statistic{StatisticKind::norm, 5, 2.5, 0, ""}.score() == 2);
}

}  // namespace ttrace
