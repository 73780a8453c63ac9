// SPDX-License-Identifier: Apache-2.0
// Where documents end: what inputs tell of it, layouts that name such an input, and micro-batches
// of packed documents.
#include "libttrace/documents.hpp"
#include "test/catch.hpp"
#include "test/libttrace/documents_bench.hpp"
#include "test/libttrace/microbatch_runs.hpp"

namespace ttrace::testing {
namespace {

using Found = std::optional<DocumentLengths>;

Found lengths(const std::vector<double>& values) {
  return document_lengths(values, {values.size()});
}

}  // namespace

TEST_CASE("offsets and positions tell where documents end") {
  CHECK(lengths({0, 8, 20, 32}) == Found{{8, 12, 12}});
  CHECK(lengths({0, 8, 20, 32, 32, 32}) == Found{{8, 12, 12}});  // filled up
  CHECK(lengths({0, 0, 8}) == Found{{8}});
  CHECK(lengths({0, 1, 2, 0, 1, 0, 1, 2, 3}) == Found{{3, 2, 4}});
  CHECK(lengths({0, 1, 2, 3}) == Found{{4}});
  CHECK(document_lengths({0, 8, 20}, {1, 3}) == Found{{8, 12}});
}

TEST_CASE("what looks like neither tells nothing") {
  CHECK_FALSE(lengths({}));
  CHECK_FALSE(lengths({0}));
  CHECK_FALSE(lengths({0, 0, 0, 0}));
  CHECK_FALSE(lengths({8, 20, 32}));
  CHECK_FALSE(lengths({0, 8, 7, 32}));
  CHECK_FALSE(lengths({0, -1, -2}));
  CHECK_FALSE(lengths({0, 1, 2, 1, 2}));
}

TEST_CASE("rows that are alike are one sequence, others lie one after the other") {
  CHECK(document_lengths({0, 1, 0, 0, 1, 0}, {2, 3}) == Found{{2, 1}});
  CHECK(document_lengths({0, 1, 0, 0, 0, 1}, {2, 3}) == Found{{2, 1, 1, 2}});
}

TEST_CASE("context parallel ranks that cut each document by itself share a micro-batch") {
  const std::vector<Lengths> packed{{8, 4, 4}, {4, 12}};
  Run reference("reference");
  reference.builder.place(0, {});
  Run candidate("candidate");
  candidate.builder.mesh({{"ctx", 2}});
  for (const bool offsets : {false, true}) {  // these are not cut, positions are
    for (std::int32_t i = 0; i < 2; ++i) {
      const Lengths& own = packed[static_cast<std::size_t>(i)];
      const Tensor row = tokens({static_cast<unsigned>(i)});
      const Tensor told = offsets ? offsets_of(own) : positions_of(own);
      const std::int32_t number = offsets ? i + 2 : i;
      reference.input(0, number, "input.0", row);
      reference.input(0, number, "input.told", told);
      for (const auto& [rank, where] : candidate.builder.places()) {
        const Cutter cutter = documents_over(1, "ctx", own);
        candidate.input(rank, 3 - number, "input.0", cutter(row, where));
        candidate.input(rank, 3 - number, "input.told", offsets ? told : cutter(told, where));
      }
    }
  }

  const MicrobatchMatch found = match(reference, candidate);

  CHECK(found.findings.empty());
  CHECK(numbers_of(found.candidate, 0) == Numbers{3, 2, 1, 0});
  CHECK(numbers_of(found.candidate, 1) == Numbers{3, 2, 1, 0});
}

TEST_CASE("a merge without a reference cuts by the input that a declaration names") {
  const std::vector<Lengths> packed{{8, 4, 4}, {4, 12}};
  for (const std::string name : {"input.offsets", "input.absent"}) {
    Run run("run");
    run.builder.mesh({{"cp", 2}});
    for (std::int32_t i = 0; i < 2; ++i) {
      const Lengths& own = packed[static_cast<std::size_t>(i)];
      for (const auto& [rank, where] : run.builder.places()) {
        run.input(rank, i, "input.offsets", offsets_of(own));
        run.input(rank, i, "input.0",
                  documents_over(1, "cp", own)(tokens({static_cast<unsigned>(i)}), where),
                  DType::int64, R"({"dims":"b t[cp:zigzag(@)" + name + R"()]"})");
      }
    }
    const Trace trace = run.builder.write();
    const ShardGroups groups = group_shards(trace, 0, number_microbatches(trace, 0));
    const LogicalTensors merged = place_all(groups, declared_layouts(groups, {}));
    for (std::int32_t i = 0; i < 2; ++i) {
      const LogicalTensor& tensor = merged.at(root_input("input.0", i));
      REQUIRE(tensor.proved() == (name == "input.offsets"));
      if (!tensor.proved()) {
        CHECK_THAT(tensor.problems.front().message, Catch::Contains("@input.absent"));
        continue;
      }
      std::vector<std::int64_t> values(16);
      read_box(tensor, {{0, 0}, {1, 16}}, reinterpret_cast<std::byte*>(values.data()));
      const std::vector<float> truth = tokens({static_cast<unsigned>(i)}).values;
      CHECK(std::equal(values.begin(), values.end(), truth.begin(), truth.end()));
    }
  }
}

}  // namespace ttrace::testing
