// SPDX-License-Identifier: Apache-2.0
// Logical tensors against logical tensors, cut in many ways, with a comparison of plain arrays as
// the judge. The traces are real files.
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "diff/stream.hpp"
#include "libttrace/logical.hpp"
#include "test/catch.hpp"
#include "test/libttrace/trace_builder.hpp"

namespace ttrace {
namespace {

using testing::Field;
using testing::Tensor;
using testing::TraceBuilder;

const Key kKey = testing::key_of("it0/mb0/forward/m/output.0");

Field field_of(const Key& key) {
  Field field;
  field.key = key;
  return field;
}

// A trace of one tensor. The trace must outlive what points into it.
struct Stored {
  TraceBuilder builder;
  std::optional<Trace> trace;
  LogicalTensor tensor;

  explicit Stored(const std::string& name) : builder(name) {}
  void open() {
    trace.emplace(builder.write());
    const ShardGroups groups = group_shards(*trace, 0, number_microbatches(*trace, 0));
    const LayoutDecisions decisions = declared_layouts(groups, {});
    REQUIRE(groups.count(kKey) == 1);
    tensor = place_shards(kKey, groups.at(kKey), decisions.at(kKey));
  }
};

void store_whole(Stored& stored, const Tensor& tensor) {
  stored.builder.mesh({});
  stored.builder.add(0, field_of(kKey), tensor);
  stored.open();
}

using Cutter = std::function<Tensor(const Coordinates&)>;

void store_cut(Stored& stored, const std::vector<std::pair<std::string, std::uint64_t>>& mesh,
               const std::string& dims, const Cutter& cut, DType dtype = DType::float32) {
  stored.builder.mesh(mesh);
  Field field = field_of(kKey);
  field.dtype = dtype;
  field.layout = R"({"dims":")" + dims + R"("})";
  for (const auto& [rank, where] : stored.builder.places()) {
    stored.builder.add(rank, field, cut(where));
  }
  stored.open();
}

struct Truth {
  long double errors = 0, references = 0;
  std::uint64_t unequal = 0, first = kNoIndex, worst = kNoIndex;
  double largest = 0;
};

Truth compare_arrays(const Tensor& reference, const Tensor& candidate) {
  Truth truth;
  for (std::size_t i = 0; i < reference.values.size(); ++i) {
    const double r = reference.values[i], d = candidate.values[i] - r;
    truth.errors += static_cast<long double>(d) * d;
    truth.references += static_cast<long double>(r) * r;
    if (d == 0) continue;
    ++truth.unequal;
    if (truth.first == kNoIndex) truth.first = i;
    if (std::fabs(d) > truth.largest) truth.worst = i;
    truth.largest = std::max(truth.largest, std::fabs(d));
  }
  return truth;
}

void check(const PairMetrics& measured, const Tensor& reference, const Tensor& candidate) {
  const Truth truth = compare_arrays(reference, candidate);
  const Metrics& total = measured.total;
  CHECK(total.count == reference.values.size());
  CHECK(total.unequal == truth.unequal);
  CHECK(total.first_unequal == truth.first);
  CHECK(total.worst == truth.worst);
  CHECK(total.max_error == truth.largest);
  CHECK(total.sums.error_squares == Approx(static_cast<double>(truth.errors)).epsilon(1e-12));
  CHECK(total.sums.reference_squares ==
        Approx(static_cast<double>(truth.references)).epsilon(1e-12));
}

const auto kBackend = make_cpu_backend();

}  // namespace

TEST_CASE("whole tensors are compared element by element") {
  const Tensor reference = testing::random_tensor({37, 5, 64}, 1);
  const Tensor candidate = testing::noisy(reference, 1e-3, 2);
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_whole(right, candidate);

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend);

  CHECK(measured.evidence == Evidence::read);
  CHECK(measured.type == DType::float32);
  check(measured, reference, candidate);
}

TEST_CASE("a candidate cut over ranks is compared in its logical places") {
  const Tensor reference = testing::random_tensor({24, 3, 40}, 3);
  const Tensor candidate = testing::noisy(reference, 1e-4, 4);
  Stored left("r.trace"), columns("a.trace"), both("b.trace");
  store_whole(left, reference);
  store_cut(columns, {{"tp", 4}}, "s b h[tp]", [&](const Coordinates& where) {
    return testing::part(candidate, 2, where.at("tp").coord, 4);
  });
  store_cut(both, {{"cp", 2}, {"tp", 2}}, "s[cp:zigzag] b h[tp]", [&](const Coordinates& where) {
    return testing::part(testing::zigzag(candidate, 0, where.at("cp").coord, 2), 2,
                         where.at("tp").coord, 2);
  });

  check(measure(left.tensor, columns.tensor, *kBackend), reference, candidate);
  check(measure(left.tensor, both.tensor, *kBackend), reference, candidate);
  check(measure(columns.tensor, both.tensor, *kBackend), candidate, candidate);
}

TEST_CASE("a wrong rank shows in its own sums, and only there") {
  const Tensor reference = testing::random_tensor({16, 32}, 5);
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_cut(right, {{"tp", 4}}, "s h[tp]", [&](const Coordinates& where) {
    const Tensor own = testing::part(reference, 1, where.at("tp").coord, 4);
    return where.at("tp").coord == 2 ? testing::scaled(own, 2) : own;
  });

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend);

  REQUIRE(measured.shards.size() == 4);
  for (const ShardMetrics& shard : measured.shards) {
    CHECK(shard.count == 128);
    CHECK((shard.unequal > 0) == (shard.rank == 2));
  }
  const Sums& wrong = measured.shards[2].sums;
  CHECK(wrong.error_products == wrong.reference_squares);  // a factor of exactly 2
}

TEST_CASE("replicas are compared once; one that is unlike its original is measured beside it") {
  const Tensor reference = testing::random_tensor({8, 8}, 6);
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_cut(right, {{"dp", 2}, {"tp", 2}}, "s h[tp]", [&](const Coordinates& where) {
    const Tensor own = testing::part(reference, 1, where.at("tp").coord, 2);
    const bool odd = where.at("dp").coord == 1 && where.at("tp").coord == 1;
    return odd ? testing::scaled(own, 3) : own;
  });

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend);

  CHECK(measured.total.count == 64);
  CHECK(measured.total.unequal == 0);
  REQUIRE(measured.shards.size() == 3);
  CHECK(measured.shards[2].odd_copy);
  CHECK(measured.shards[2].rank == 3);
  CHECK(measured.shards[2].unequal == 32);
}

TEST_CASE("equal hashes of the same part are equality without reading") {
  const Tensor reference = testing::random_tensor({50, 20}, 7);
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_whole(right, reference);

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend);

  CHECK(measured.evidence == Evidence::hash);
  check(measured, reference, reference);
  CHECK(measured.total.ulp[0] == 1000);
}

TEST_CASE("what has equal hashes is read where they are not trusted") {
  const Tensor reference = testing::random_tensor({50, 20}, 7);
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_whole(right, reference);

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend, {.trust_hash = false});

  CHECK(measured.evidence == Evidence::read);
  check(measured, reference, reference);
}

// 1.1 million elements a rank: two stretches, the second of which begins within a row.
TEST_CASE("stretches that several threads measure add up to the same bits") {
  const Tensor reference = testing::random_tensor({1100, 2000}, 11);
  const Tensor candidate = testing::noisy(reference, 1e-4, 12);
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_cut(right, {{"tp", 2}}, "a b[tp]", [&](const Coordinates& where) {
    return testing::part(candidate, 1, where.at("tp").coord, 2);
  });
  for (const bool read_once : {false, true}) {
    const MeasureOptions options{.read_once = read_once};
    const PairMetrics alone = measure(left.tensor, right.tensor, *kBackend, options);
    check(alone, reference, candidate);

    Measurement shared(left.tensor, right.tensor, *kBackend, options);
    REQUIRE(shared.stretches() == 4);
    std::vector<std::thread> threads;
    for (const std::size_t stretch : {3u, 1u, 2u, 0u}) {
      threads.emplace_back([&shared, stretch] { shared.measure(stretch); });
    }
    for (std::thread& thread : threads) thread.join();
    const PairMetrics together = shared.finish();
    CHECK(std::memcmp(&together.total, &alone.total, sizeof alone.total) == 0);
    CHECK(together.shards.size() == 2);
  }
}

TEST_CASE("a factor to take out is applied also where hashes are equal") {
  const Tensor reference = testing::random_tensor({10, 10}, 8);
  Stored left("r.trace"), same("a.trace"), twice("b.trace");
  store_whole(left, reference);
  store_whole(same, reference);
  store_whole(twice, testing::scaled(reference, 2));

  CHECK(measure(left.tensor, same.tensor, *kBackend, {0.5, 0}).total.unequal == 100);
  CHECK(measure(left.tensor, twice.tensor, *kBackend, {0.5, 0}).total.unequal == 0);
}

TEST_CASE("addends of a sum are added before they are compared") {
  const Tensor reference = testing::random_tensor({6, 10}, 9);
  const Tensor share = testing::random_tensor({6, 10}, 10);
  Tensor rest = reference;
  for (std::size_t i = 0; i < rest.values.size(); ++i) rest.values[i] -= share.values[i];
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_cut(right, {{"tp", 2}}, "s h partial(tp)",
            [&](const Coordinates& where) { return where.at("tp").coord == 0 ? share : rest; });

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend);

  CHECK(measured.total.count == 60);
  // share + (reference - share) is the reference up to two roundings of float32.
  CHECK(std::sqrt(measured.total.sums.error_squares / measured.total.sums.reference_squares) <
        2e-7);
  CHECK(measured.total.sums.reference_squares > 1);
}

TEST_CASE("sums of bfloat16 are compared in a type that holds them") {
  // 400 elements of 2 bytes, whose sums are of 4. 255 + 254 has nine digits, bfloat16 eight.
  const Shape shape{20, 20};
  Tensor share{shape, std::vector<float>(400)}, rest = share, reference = share;
  for (std::size_t i = 0; i < 400; ++i) {
    share.values[i] = static_cast<float>(i % 256);
    rest.values[i] = static_cast<float>(i % 255);
    reference.values[i] = share.values[i] + rest.values[i];
  }
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_cut(
      right, {{"tp", 2}}, "s h partial(tp)",
      [&](const Coordinates& where) { return where.at("tp").coord == 0 ? share : rest; },
      DType::bfloat16);

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend);
  CHECK(measured.type == DType::float32);
  check(measured, reference, reference);

  Stored narrow("n.trace");
  store_cut(
      narrow, {}, "s h", [&](const Coordinates&) { return share; }, DType::bfloat16);
  const PairMetrics both = measure(narrow.tensor, right.tensor, *kBackend);
  CHECK(both.type == DType::float32);
  check(both, share, reference);
}

TEST_CASE("scalars and empty tensors are tensors") {
  const Tensor scalar{{}, {2.5f}};
  const Tensor empty{{0, 4}, {}};
  Stored left("r.trace"), right("c.trace"), none("a.trace"), nothing("b.trace");
  store_whole(left, scalar);
  store_whole(right, Tensor{{}, {2.0f}});
  store_whole(none, empty);
  store_whole(nothing, empty);

  const Metrics total = measure(left.tensor, right.tensor, *kBackend).total;
  CHECK(total.count == 1);
  CHECK(total.max_error == 0.5);
  CHECK(total.worst == 0);
  CHECK(measure(none.tensor, nothing.tensor, *kBackend).total.count == 0);
}

TEST_CASE("statistics stand in for bytes that were not kept, and are called norms") {
  const Tensor reference = testing::random_tensor({30, 30}, 11);
  Stored left("r.trace"), right("c.trace"), hashed("h.trace");
  store_whole(left, reference);
  right.builder.mesh({});
  right.builder.add(0, {kKey, DType::float32, RecordKind::stats, "", 0},
                    testing::scaled(reference, 2));
  right.open();
  hashed.builder.mesh({});
  hashed.builder.add(0, {kKey, DType::float32, RecordKind::hash, "", 0},
                     testing::scaled(reference, 2));
  hashed.open();

  const PairMetrics norms = measure(left.tensor, right.tensor, *kBackend);
  CHECK(norms.evidence == Evidence::norms);
  CHECK(norms.total.sums.candidate_squares ==
        Approx(4 * norms.total.sums.reference_squares).epsilon(1e-12));
  CHECK(measure(left.tensor, hashed.tensor, *kBackend).evidence == Evidence::nothing);
}

TEST_CASE("a sample looks at so many elements of each part") {
  const Tensor reference = testing::random_tensor({64, 64}, 12);
  Stored left("r.trace"), right("c.trace");
  store_whole(left, reference);
  store_cut(right, {{"tp", 2}}, "s h[tp]", [&](const Coordinates& where) {
    return testing::part(testing::scaled(reference, 2), 1, where.at("tp").coord, 2);
  });

  const PairMetrics measured = measure(left.tensor, right.tensor, *kBackend, {1, 100});

  CHECK(measured.total.count >= 200);
  CHECK(measured.total.count < 400);
  CHECK(measured.total.sums.error_products == measured.total.sums.reference_squares);
}

}  // namespace ttrace
