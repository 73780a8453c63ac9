// SPDX-License-Identifier: Apache-2.0
// Packed documents that are cut one by one: found by content, with the sections that an input of
// each micro-batch tells.
#include "test/catch.hpp"
#include "test/libttrace/documents_bench.hpp"
#include "test/libttrace/inference_bench.hpp"

namespace ttrace::testing {
namespace {

const std::vector<Lengths> kPacked{{8, 16, 8}, {16, 4, 12}};

std::string in_batch(std::size_t number, const std::string& rest) {
  return "it0/mb" + std::to_string(number) + "/forward/" + rest;
}

std::string layer(std::size_t number, int index = 0) {
  return in_batch(number, "layers." + std::to_string(index) + "/output.0");
}

using CutterOf = std::function<Cutter(const Lengths&)>;

// Two layers of two micro-batches, and the inputs that tell of their documents.
void add_batches(Bench& bench, const CutterOf& cutter, bool offsets,
                 const std::vector<Lengths>& packed = kPacked) {
  for (std::size_t i = 0; i < packed.size(); ++i) {
    const Lengths& own = packed[i];
    if (offsets) bench.add_input(in_batch(i, "@root/input.told"), offsets_of(own), whole);
    if (!offsets) bench.add_input(in_batch(i, "@root/input.told"), positions_of(own), cutter(own));
    const std::uint64_t extent = positions_of(own).shape[1];
    for (int index = 0; index < 2; ++index) {
      const auto seed = static_cast<unsigned>(10 * i) + static_cast<unsigned>(index);
      bench.add(layer(i, index), random_tensor({1, extent, 24}, seed), cutter(own));
    }
  }
}

Cutter zigzags(const Lengths& lengths) { return documents_over(1, "cp", lengths); }

TEST_CASE("documents are cut one by one, in each micro-batch by its own lengths") {
  for (const bool offsets : {true, false}) {
    Bench bench({{"cp", 2}, {"tp", 2}});
    add_batches(bench, zigzags, offsets);
    for (std::size_t i = 0; i < 2; ++i) {
      for (int index = 0; index < 2; ++index) {
        CHECK(bench.layout(layer(i, index)) == "- [cp:zigzag(@input.told)] -");
        CHECK(bench.decision(layer(i, index)).layout.dims[1][0].sections == kPacked[i]);
        CHECK(bench.decision(layer(i, index)).reason == "content");
        CHECK(bench.decision(layer(i, index)).fit > 0.99);
        CHECK(bench.placed(layer(i, index)).proved());
      }
    }
    CHECK(bench.inference.findings.empty());
    if (offsets) continue;
    CHECK(bench.layout(in_batch(1, "@root/input.told")) == "- [cp:zigzag(@input.told)]");
  }
}

TEST_CASE("sequence parallelism cuts what is left of the documents") {
  Bench bench({{"cp", 2}, {"tp", 2}});
  add_batches(
      bench, [](const Lengths& own) { return then(zigzags(own), cut(1, "tp")); }, true);
  CHECK(bench.layout(layer(1)) == "- [cp:zigzag(@input.told),tp] -");
  CHECK(bench.placed(layer(1)).proved());
}

TEST_CASE("contiguous parts of documents may be uneven") {
  for (const std::vector<Lengths>& packed :
       {kPacked, std::vector<Lengths>{{7, 9, 16}, {5, 24, 3}}}) {
    Bench bench({{"cp", 2}});
    add_batches(bench, halves, true, packed);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(bench.layout(layer(i)) == "- [cp:(@input.told)] -");
      CHECK(bench.placed(layer(i)).proved());
    }
  }
}

TEST_CASE("a plain cut that agrees because neighbours are alike is not all that is tried") {
  // Plain halves are off by one or two elements, which are 3 % each; a zigzag is off by 16.
  const std::vector<Lengths> packed{{62, 2}, {60, 4}};
  Tensor smooth = random_tensor({1, 64, 24}, 7);
  for (std::size_t i = 0; i < smooth.values.size(); ++i) {
    smooth.values[i] = static_cast<float>(std::pow(1.03, static_cast<double>(i / 24)));
  }
  Bench bench({{"cp", 2}});
  add_batches(
      bench, [](const Lengths& own) { return sections_over(1, "cp", own); }, true, packed);
  for (std::size_t i = 0; i < 2; ++i) {
    bench.add(in_batch(i, "smooth/output.0"), smooth, sections_over(1, "cp", packed[i]));
  }
  CHECK(bench.layout(layer(0)) == "- [cp:(@input.told)] -");
  CHECK(bench.layout(in_batch(0, "smooth/output.0")) == "- [cp:(@input.told)] -");
  CHECK(bench.placed(in_batch(0, "smooth/output.0")).proved());
}

TEST_CASE("where no input tells of several documents no sequence is cut by them") {
  Bench bench({{"cp", 2}});
  add_batches(bench, [](const Lengths&) { return zigzag_over(1, "cp"); }, false, {{32}, {32}});
  CHECK(bench.layout(layer(0)) == "- [cp:zigzag] -");
}

TEST_CASE("packed documents in a sequence that is cut as a whole") {
  Bench bench({{"cp", 2}});
  add_batches(
      bench, [](const Lengths&) { return zigzag_over(1, "cp"); }, true);
  CHECK(bench.layout(layer(0)) == "- [cp:zigzag] -");
  CHECK(bench.layout(layer(1)) == "- [cp:zigzag] -");
}

TEST_CASE("one micro-batch that is cut by another's documents keeps the layout of its class") {
  Bench bench({{"cp", 2}});
  const std::vector<Lengths> packed{{8, 16, 8}, {16, 4, 12}, {4, 8, 20}};
  for (std::size_t i = 0; i < packed.size(); ++i) {
    bench.add_input(in_batch(i, "@root/input.told"), offsets_of(packed[i]), whole);
    bench.add(layer(i), random_tensor({1, 32, 24}, static_cast<unsigned>(i)),
              zigzags(packed[i == 2 ? 0 : i]));
  }
  CHECK(bench.layout(layer(2)) == "- [cp:zigzag(@input.told)] -");
  CHECK(bench.decision(layer(2)).layout.dims[1][0].sections == packed[2]);
}

TEST_CASE("the reference tells where documents end, whatever the candidate's input says") {
  Bench bench({{"cp", 2}});
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string told = in_batch(i, "@root/input.told");
    bench.add_input(told, offsets_of(kPacked[i]),
                    [i](const Tensor&, const Coordinates&) { return offsets_of(kPacked[1 - i]); });
    bench.add(layer(i), random_tensor({1, 32, 24}, static_cast<unsigned>(i)), zigzags(kPacked[i]));
  }
  CHECK(bench.decision(layer(0)).layout.dims[1][0].sections == kPacked[0]);
}

TEST_CASE("a rule may name the input that tells where documents end") {
  for (const bool known : {true, false}) {
    Bench bench({{"cp", 2}});
    add_batches(bench, zigzags, true);
    const std::string name = known ? "input.told" : "input.absent";
    bench.infer({{"layers.*", parse_dims("b t[cp:zigzag(@" + name + ")] h"), false}});
    CHECK(bench.layout(layer(1)) == "- [cp:zigzag(@input.told)] -");
    CHECK((bench.decision(layer(1)).reason.rfind("declared", 0) == 0) == known);
    CHECK((bench.count(FindingKind::layout_contradicted) != 0) == !known);
    if (known) continue;
    CHECK_THAT(bench.inference.findings.front().message, Catch::Contains("@input.absent, but"));
  }
}

TEST_CASE("a declaration by documents holds where all micro-batches have one") {
  Bench bench({{"cp", 2}});
  add_batches(bench, zigzags, true, {{32}, {32}});
  bench.infer({{"layers.*", parse_dims("b t[cp:zigzag(@input.told)] h"), false}});
  CHECK(bench.layout(layer(0)) == "- [cp:zigzag(@input.told)] -");
  CHECK(bench.placed(layer(0)).proved());
  CHECK(bench.inference.findings.empty());
}

}  // namespace
}  // namespace ttrace::testing
