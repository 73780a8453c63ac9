// SPDX-License-Identifier: Apache-2.0
// Placing real shards: segments written to disk, placed, proved, read back. The logical tensor is
// known, each shard's content is the values that plain loops pick for it.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "libttrace/logical.hpp"
#include "test/catch.hpp"
#include "test/libttrace/trace_builder.hpp"

using namespace ttrace;
using ttrace::testing::TemporaryFolder;

namespace {

Key weight_key() { return {0, -1, Phase::param, "layer.weight", 0, "value"}; }

// What one rank is to hold of the tensor "layer.weight".
struct Part {
  Coordinates where;
  Shape shape;
  std::vector<float> values;
  std::string layout_json;
  RecordKind kind = RecordKind::full;
};

// One segment a rank, on disk.
class Ranks {
 public:
  explicit Ranks(const std::vector<Part>& parts) {
    for (const Part& part : parts) add(part);
  }

  [[nodiscard]] std::vector<Shard> shards() const {
    std::vector<Shard> list;
    for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
      list.push_back({static_cast<std::int32_t>(rank), where_[rank], segments_[rank].get(),
                      &segments_[rank]->records().at(0)});
    }
    return list;
  }

 private:
  void add(const Part& part) {
    const auto rank = static_cast<std::int32_t>(segments_.size());
    const auto path = folder_.path() / ("rank" + std::to_string(rank) + ".h5");
    SegmentWriter writer(path, {"run", rank, 0, true});
    Record record;
    record.key = weight_key();
    record.shape = part.shape;
    record.kind = part.kind;
    record.bytes = part.values.size() * sizeof(float);
    writer.begin(record, part.layout_json);
    writer.append(std::as_bytes(std::span(part.values)));
    writer.commit();
    writer.close(true);
    segments_.push_back(std::make_unique<SegmentReader>(path));
    where_.push_back(part.where);
  }

  TemporaryFolder folder_;
  std::vector<std::unique_ptr<SegmentReader>> segments_;
  std::vector<Coordinates> where_;
};

// Logical tensor of 4 x 6: element (i, j) is 10 i + j.
float known(std::uint64_t row, std::uint64_t column) {
  return static_cast<float>(10 * row + column);
}

// Rows [row, row + rows) and columns [column, column + columns) of it.
std::vector<float> block(std::uint64_t row, std::uint64_t rows, std::uint64_t column,
                         std::uint64_t columns) {
  std::vector<float> values;
  for (std::uint64_t i = row; i < row + rows; ++i) {
    for (std::uint64_t j = column; j < column + columns; ++j) values.push_back(known(i, j));
  }
  return values;
}

// tp cuts the columns, dp replicates: ranks 0 and 1 hold the two halves, ranks 2 and 3 again.
std::vector<Part> tp2_dp2(const std::string& layout = R"({"dims":"h d[tp]","source":"test"})") {
  std::vector<Part> parts;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    parts.push_back({{{"tp", {rank % 2, 2}}, {"dp", {rank / 2, 2}}},
                     {4, 3},
                     block(0, 4, 3 * (rank % 2), 3),
                     layout});
  }
  return parts;
}

LogicalTensor place_declared(const std::vector<Shard>& shards,
                             const std::vector<LayoutRule>& rules = {}) {
  const ShardGroups groups{{weight_key(), shards}};
  return place_all(groups, declared_layouts(groups, rules)).at(weight_key());
}

std::vector<float> read(const LogicalTensor& tensor, const Box& box) {
  std::vector<float> values(volume(box), -1);
  read_box(tensor, box, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

void drop(std::vector<Shard>& shards, std::int32_t rank) { shards.erase(shards.begin() + rank); }

std::vector<FindingKind> kinds(const LogicalTensor& tensor) {
  std::vector<FindingKind> list;
  for (const Finding& problem : tensor.problems) list.push_back(problem.kind);
  return list;
}

using Kinds = std::vector<FindingKind>;

}  // namespace

TEST_CASE("shards of a declared layout are proved, and any box reads as the known tensor") {
  const Ranks ranks(tp2_dp2());
  const LogicalTensor tensor = place_declared(ranks.shards());

  REQUIRE(tensor.proved());
  CHECK(tensor.shape == Shape{4, 6});
  CHECK(tensor.shards[2].copy);
  CHECK_FALSE(tensor.whole());
  for (std::uint64_t row = 0; row < 4; ++row) {
    for (std::uint64_t column = 0; column < 6; ++column) {
      for (std::uint64_t rows = 1; row + rows <= 4; ++rows) {
        for (std::uint64_t columns = 1; column + columns <= 6; ++columns) {
          const std::vector<float> values = read(tensor, {{row, column}, {rows, columns}});
          REQUIRE(values == block(row, rows, column, columns));
        }
      }
    }
  }
  CHECK_THROWS_AS(read(tensor, {{0, 0}, {5, 6}}), Trouble);
}

TEST_CASE("a tensor of three dimensions, cut in two of them, reads in any box") {
  // Element (i, j, k) of 3 x 4 x 6 is 100 i + 10 j + k; cp holds rows {0, 3} or {1, 2}.
  const auto value = [](std::uint64_t i, std::uint64_t j, std::uint64_t k) {
    return static_cast<float>(100 * i + 10 * j + k);
  };
  std::vector<Part> parts;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const std::uint64_t cp = rank / 2;
    Part part{{{"cp", {cp, 2}}, {"tp", {rank % 2, 2}}}, {3, 2, 3}, {}, ""};
    part.layout_json = R"({"dims":"b s[cp:zigzag] h[tp]"})";
    for (std::uint64_t i = 0; i < 3; ++i) {
      for (const std::uint64_t j : {cp, 3 - cp}) {
        for (std::uint64_t k = 0; k < 3; ++k)
          part.values.push_back(value(i, j, 3 * (rank % 2) + k));
      }
    }
    parts.push_back(part);
  }
  const Ranks ranks(parts);
  const LogicalTensor tensor = place_declared(ranks.shards());
  REQUIRE(tensor.proved());
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    CAPTURE(seed);
    Box box;
    for (const std::uint64_t extent : {3u, 4u, 6u}) {
      box.start.push_back(random() % extent);
      box.count.push_back(1 + random() % (extent - box.start.back()));
    }
    std::vector<float> truth;
    for (std::uint64_t i = 0; i < box.count[0]; ++i) {
      for (std::uint64_t j = 0; j < box.count[1]; ++j) {
        for (std::uint64_t k = 0; k < box.count[2]; ++k) {
          truth.push_back(value(box.start[0] + i, box.start[1] + j, box.start[2] + k));
        }
      }
    }
    REQUIRE(read(tensor, box) == truth);
  }
}

TEST_CASE("shards with two dimensions in the other order read in the logical one") {
  std::vector<Part> parts;
  std::vector<float> truth(36);
  for (std::uint64_t tp = 0; tp < 2; ++tp) {
    parts.push_back({{{"tp", {tp, 2}}}, {3, 2, 3}, {}, R"j({"dims":"b s[tp] h swap(0,1)"})j"});
    for (std::uint64_t i = 0; i < 18; ++i) {  // [s, b, h] of the shard is [b, 3 tp + s, h]
      const auto value = static_cast<float>(100 * tp + i);
      parts[tp].values.push_back(value);
      truth[i / 3 % 2 * 18 + (3 * tp + i / 6) * 3 + i % 3] = value;
    }
  }
  const Ranks ranks(parts);
  const LogicalTensor tensor = place_declared(ranks.shards());
  REQUIRE(tensor.proved());
  CHECK(tensor.shape == Shape{2, 6, 3});
  CHECK(read(tensor, {{0, 0, 0}, {2, 6, 3}}) == truth);
}

TEST_CASE("flat ranges of a sharded weight read as the known tensor") {
  std::vector<Part> parts;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const std::uint64_t dp = rank / 2;
    const std::vector<float> shard = block(0, 4, 3 * (rank % 2), 3);
    const std::uint64_t start = dp == 0 ? 0 : 5;
    const std::uint64_t count = dp == 0 ? 5 : 7;
    const auto first = shard.begin() + static_cast<std::ptrdiff_t>(start);
    Layout layout = parse_dims("- [tp]");
    layout.flat = FlatRange{{4, 3}, start, count};
    parts.push_back({{{"tp", {rank % 2, 2}}, {"dp", {dp, 2}}},
                     {count},
                     {first, first + static_cast<std::ptrdiff_t>(count)},
                     layout_to_json(layout)});
  }
  const Ranks ranks(parts);
  const LogicalTensor tensor = place_declared(ranks.shards());

  REQUIRE(tensor.proved());
  CHECK(tensor.shape == Shape{4, 6});
  CHECK(read(tensor, {{0, 0}, {4, 6}}) == block(0, 4, 0, 6));
  CHECK(read(tensor, {{1, 1}, {2, 4}}) == block(1, 2, 1, 4));
}

TEST_CASE("a missing rank is a hole that names its coordinates") {
  const Ranks ranks(tp2_dp2());
  std::vector<Shard> shards = ranks.shards();
  drop(shards, 3);
  CHECK(place_declared(shards).proved());  // rank 1 holds the same
  drop(shards, 1);
  const LogicalTensor tensor = place_declared(shards);

  REQUIRE(kinds(tensor) == Kinds{FindingKind::hole});
  CHECK_THAT(tensor.problems[0].message,
             Catch::Contains("[0:4, 3:6]") && Catch::Contains("no rank at tp=1"));
  CHECK_THROWS_AS(read(tensor, {{0, 0}, {1, 1}}), Trouble);
}

TEST_CASE("the odd copy is named, with how far it is off") {
  std::vector<Part> parts = tp2_dp2(R"({"dims":"- -"})");
  for (Part& part : parts) {
    part.shape = {4, 6};
    part.values = block(0, 4, 0, 6);
  }
  parts[2].values[0] = 1.0f;  // was 0
  double squares = 0;
  for (const float value : parts[0].values) squares += static_cast<double>(value) * value;

  const Ranks ranks(parts);
  const LogicalTensor tensor = place_declared(ranks.shards());

  REQUIRE(kinds(tensor) == Kinds{FindingKind::replica_conflict});
  CHECK(tensor.problems[0].ranks == std::vector<std::int32_t>{2});
  CHECK_THAT(tensor.problems[0].message, Catch::Contains("rank 2 differs from ranks 0, 1, 3"));
  REQUIRE(tensor.problems[0].evidence.size() == 2);
  CHECK(tensor.problems[0].evidence[1].second == "1 of 24, the first is [0, 0]");
  CHECK(std::stod(tensor.problems[0].evidence[0].second) ==
        Approx(1 / std::sqrt(squares)).epsilon(1e-2));
  CHECK(tensor.whole());
}

TEST_CASE("without a majority both sides are named") {
  std::vector<Part> parts = tp2_dp2(R"({"dims":"- -"})");
  for (Part& part : parts) {
    part.shape = {4, 6};
    part.values = block(0, 4, 0, 6);
  }
  parts[1].values[3] = parts[2].values[3] = 7.0f;

  SECTION("two against two") {
    const Ranks ranks(parts);
    const LogicalTensor tensor = place_declared(ranks.shards());
    REQUIRE(kinds(tensor) == Kinds{FindingKind::replica_conflict});
    CHECK(tensor.problems[0].ranks == std::vector<std::int32_t>{0, 1, 2, 3});
    CHECK_THAT(tensor.problems[0].message,
               Catch::Contains("ranks 0, 3 against ranks 1, 2, evenly split"));
  }
  SECTION("one against one") {
    const Ranks ranks({parts[0], parts[1]});
    const LogicalTensor tensor = place_declared(ranks.shards());
    REQUIRE(kinds(tensor) == Kinds{FindingKind::replica_conflict});
    CHECK_THAT(tensor.problems[0].message, Catch::Contains("ranks 0, 1 differ"));
  }
}

TEST_CASE("copies kept without bytes are compared by hash, and the one with bytes is read") {
  std::vector<Part> parts = tp2_dp2();
  parts[0].kind = RecordKind::hash;
  parts[1].kind = RecordKind::stats;
  const Ranks ranks(parts);
  const LogicalTensor tensor = place_declared(ranks.shards());
  REQUIRE(tensor.proved());
  CHECK(tensor.shards[0].copy);
  CHECK(read(tensor, {{0, 0}, {4, 6}}) == block(0, 4, 0, 6));

  parts[2].kind = RecordKind::hash;
  const Ranks without(parts);
  const LogicalTensor placed = place_declared(without.shards());
  CHECK(placed.proved());
  CHECK_THROWS_AS(read(placed, {{0, 0}, {4, 6}}), Trouble);
}

TEST_CASE("a sum that is still pending is a problem, not a replica conflict") {
  std::vector<Part> parts = tp2_dp2(R"json({"dims":"- [tp] partial(dp)"})json");
  parts[2].values[0] = 5;
  const Ranks ranks(parts);
  std::vector<Shard> shards = ranks.shards();
  CHECK(kinds(place_declared(shards)) == Kinds{FindingKind::partial_incomplete});
  shards = {shards[0], shards[1]};
  const LogicalTensor half = place_declared(shards);
  REQUIRE(kinds(half) == Kinds{FindingKind::partial_incomplete});
  CHECK_THAT(half.problems[0].message, Catch::Contains("over dp: 1 of 2 addends"));
}

TEST_CASE("a layout that does not give the shards' shapes is a problem, not trouble") {
  const Ranks ranks(tp2_dp2(R"({"dims":"[tp] -","shape":[4,6]})"));
  const LogicalTensor tensor = place_declared(ranks.shards());
  REQUIRE(kinds(tensor) == Kinds{FindingKind::layout_unknown});
  CHECK_THAT(tensor.problems[0].message, Catch::Contains("2x6 of 4x6"));
}

TEST_CASE("flat ranges that share elements overlap, and the ranks that hold them are named") {
  std::vector<Part> parts;
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    // Elements 0-9, 8-17 and 18-23 of 24: 8 and 9 are held twice.
    const std::uint64_t start = rank == 0 ? 0 : 10 * rank - 2;
    const std::uint64_t count = rank == 2 ? 6 : 10;
    Layout layout = parse_dims("- -");
    layout.flat = FlatRange{{4, 6}, start, count};
    parts.push_back(
        {{{"dp", {rank, 3}}}, {count}, std::vector<float>(count, 1.0f), layout_to_json(layout)});
  }
  const Ranks ranks(parts);
  const LogicalTensor tensor = place_declared(ranks.shards());
  REQUIRE(kinds(tensor) == Kinds{FindingKind::overlap});
  CHECK(tensor.problems[0].ranks == std::vector<std::int32_t>{0, 1});
  CHECK_THAT(tensor.problems[0].message, Catch::Contains("[1:2, 2:4]"));
  CHECK_THROWS_AS(read(tensor, {{0, 0}, {1, 1}}), Trouble);
}

TEST_CASE("what is not declared is known only when there is one shard or all are equal") {
  std::vector<Part> parts = tp2_dp2("");
  const Ranks ranks(parts);
  std::vector<Shard> shards = ranks.shards();
  const LogicalTensor unknown = place_declared(shards);
  REQUIRE(kinds(unknown) == Kinds{FindingKind::layout_unknown});
  CHECK_THAT(unknown.problems[0].message, Catch::Contains("no layout is declared"));

  CHECK(place_declared({shards[0]}).whole());
  const LogicalTensor equal = place_declared({shards[0], shards[2]});
  CHECK(equal.proved());
  CHECK(equal.shape == Shape{4, 3});

  for (Part& part : parts) part.values.assign(12, 1.0f);
  const Ranks ones(parts);
  const ShardGroups groups{{weight_key(), ones.shards()}};
  CHECK(declared_layouts(groups, {}).at(weight_key()).assumed);
}

TEST_CASE("ranks that declare different layouts contradict each other") {
  std::vector<Part> parts = tp2_dp2();
  parts[3].layout_json = R"({"dims":"- -"})";
  const Ranks ranks(parts);
  const LogicalTensor tensor = place_declared(ranks.shards());
  REQUIRE(kinds(tensor) == Kinds{FindingKind::layout_unknown});
  CHECK_THAT(tensor.problems[0].message, Catch::Contains("rank 0") && Catch::Contains("rank 3"));
}

TEST_CASE("a rule overrides what was declared, and the first match wins") {
  const Ranks ranks(tp2_dp2(R"({"dims":"[tp] -"})"));
  CHECK(place_declared(ranks.shards()).shape == Shape{8, 3});  // as declared
  const TemporaryFolder folder;
  const auto path = folder.path() / "rules";
  std::ofstream(path) << "# a comment, then rules\n"
                         "\n"
                         "other.*            \"a[tp]\"\n"
                         "layer.*   \"h d[tp]\"   4x6   # columns\n"
                         "layer.weight  \"h[tp] d\"\n";
  const auto rules = read_layout_rules(path.string());
  REQUIRE(rules.size() == 3);
  const LogicalTensor tensor = place_declared(ranks.shards(), rules);
  REQUIRE(tensor.proved());
  CHECK(read(tensor, {{0, 0}, {4, 6}}) == block(0, 4, 0, 6));
}

TEST_CASE("scalars and empty tensors are placed and read") {
  const Ranks scalar({{{}, {}, {3.5f}, ""}});
  const LogicalTensor loss = place_declared(scalar.shards());
  CHECK(loss.whole());
  CHECK(read(loss, Box{}) == std::vector<float>{3.5f});

  const Ranks empty({{{{"tp", {0, 2}}}, {0, 3}, {}, R"({"dims":"[tp] -","shape":[0,3]})"},
                     {{{"tp", {1, 2}}}, {0, 3}, {}, R"({"dims":"[tp] -","shape":[0,3]})"}});
  const LogicalTensor nothing = place_declared(empty.shards());
  CHECK(nothing.proved());
  CHECK(read(nothing, {{0, 0}, {0, 3}}).empty());
}
