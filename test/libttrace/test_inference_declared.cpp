// SPDX-License-Identifier: Apache-2.0
// A declared layout is one more hypothesis: used unless content beats it, and then a finding.
#include "test/catch.hpp"
#include "test/libttrace/inference_bench.hpp"

namespace ttrace::testing {
namespace {

constexpr const char* kWeight = "it0/param/layers.0.fc1.weight/value";

std::string dims(const std::string& text) {
  return R"({"dims":")" + text + R"(","source":"test"})";
}

Tensor strided(const Tensor& tensor, const Coordinates& where) {
  const std::uint64_t r = at(where, "tp");
  const std::uint64_t part = tensor.shape[0] / 4;
  return take(tensor, 0,
              joined(range(r * part, (r + 1) * part), range((2 + r) * part, (3 + r) * part)));
}

TEST_CASE("a declaration decides what content cannot") {
  Bench bench({{"tp", 2}});
  bench.add(kWeight, constant_tensor({64, 32}, 0), strided, dims("h[tp:/2] d"));

  CHECK(bench.layout(kWeight) == "[tp:/2] -");
  CHECK(bench.decision(kWeight).reason == "declared (test)");
  CHECK_FALSE(bench.decision(kWeight).assumed);
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("a declaration that content contradicts is a finding, and content wins") {
  Bench bench({{"tp", 2}});
  bench.add(kWeight, random_tensor({64, 32}, 1), cut(0, "tp"), dims("h[tp:/2] d"));

  CHECK(bench.layout(kWeight) == "[tp] -");
  REQUIRE(bench.count(FindingKind::layout_contradicted) == 1);
  const Finding& finding = bench.inference.findings.front();
  CHECK(finding.key == key_of(kWeight));
  CHECK(finding.message.find("declared \"[tp:/2] -\", content is \"[tp] -\"") == 0);
}

TEST_CASE("a declaration that does not give the shards' shapes is a finding") {
  Bench bench({{"tp", 2}});
  bench.add(kWeight, random_tensor({64, 32}, 2), cut(0, "tp"), dims("h d[tp]"));

  CHECK(bench.layout(kWeight) == "[tp] -");
  CHECK(bench.count(FindingKind::layout_contradicted) == 1);
}

TEST_CASE("one layer out of four that differs from its declaration does not overturn it") {
  Bench bench({{"tp", 2}});
  for (int i = 0; i < 4; ++i) {
    bench.add("it0/param/layers." + std::to_string(i) + ".fc1.weight/value",
              random_tensor({64, 32}, 10 + static_cast<unsigned>(i)),
              i == 1 ? cut(0, "tp") : Cutter(strided), dims("h[tp:/2] d"));
  }

  CHECK(bench.layout("it0/param/layers.1.fc1.weight/value") == "[tp:/2] -");
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("a rule comes before what the program declares") {
  Bench bench({{"tp", 2}});
  bench.add(kWeight, constant_tensor({64, 32}, 0), strided, dims("h[tp] d"));
  LayoutRule rule{"*fc1.weight*", parse_dims("h[tp:/2] d")};
  rule.layout.source = "file";
  bench.infer({rule});

  CHECK(bench.layout(kWeight) == "[tp:/2] -");
  CHECK(bench.decision(kWeight).reason == "declared (file)");
}

TEST_CASE("ranks that declare different layouts are a finding, and content decides") {
  Bench bench({{"tp", 2}});
  const Tensor weight = random_tensor({64, 32}, 3);
  bench.add_reference(kWeight, weight);
  bench.add_shard(0, kWeight, part(weight, 0, 0, 2), dims("h[tp] d"));
  bench.add_shard(1, kWeight, part(weight, 0, 1, 2), dims("h[tp:/2] d"));

  CHECK(bench.layout(kWeight) == "[tp] -");
  CHECK(bench.count(FindingKind::layout_contradicted) == 1);
}

TEST_CASE("a declared logical shape that is not the reference's is a finding") {
  Bench bench({{"dp", 2}, {"tp", 2}});
  bench.add_reference(kWeight, random_tensor({64, 32}, 4));
  bench.add_shards(kWeight, random_tensor({32, 32}, 5), whole,
                   R"({"dims":"h d","shape":[32,32],"source":"test"})");

  CHECK(bench.layout(kWeight) == "unknown");
  REQUIRE(bench.count(FindingKind::shape_differs) == 1);
  CHECK(bench.inference.findings.front().message ==
        "the reference's shape is [64, 32], the candidate declares [32, 32]");
}

TEST_CASE("flat pieces of an optimizer have their parameter's cuts and their own ranges") {
  Bench bench({{"dp", 2}, {"tp", 2}});
  const std::string master = "it0/step/layers.0.fc1.weight/master";
  const Tensor weight = random_tensor({64, 32}, 6);
  bench.add(kWeight, weight, strided);
  bench.add_reference(master, weight);
  for (const auto& [rank, where] : bench.candidate().places()) {
    const Tensor shard = strided(weight, where);  // 32 x 32, of which dp rank 0 keeps 600 elements
    const std::size_t begin = at(where, "dp") == 0 ? 0 : 600;
    const std::size_t end = at(where, "dp") == 0 ? 600 : 1024;
    Tensor flat{{end - begin},
                {shard.values.begin() + static_cast<std::ptrdiff_t>(begin),
                 shard.values.begin() + static_cast<std::ptrdiff_t>(end)}};
    bench.add_shard(rank, master, flat,
                    R"({"dims":"h[tp:/2] d","flat":{"shape":[32,32],"start":)" +
                        std::to_string(begin) + R"(,"count":)" + std::to_string(end - begin) +
                        R"(},"source":"test"})");
  }

  CHECK(bench.layout(master).find("[tp:/2] -") == 0);
  const LogicalTensor placed = bench.placed(master);
  REQUIRE(placed.proved());
  std::vector<float> read(weight.values.size());
  read_box(placed, {{0, 0}, {64, 32}}, reinterpret_cast<std::byte*>(read.data()));
  CHECK(read == weight.values);
}

TEST_CASE("a gradient of another local shape than its parameter is inferred, and says so") {
  Bench bench({{"tp", 2}});
  const std::string layout = dims("h[tp] d");  // said of the parameter, repeated for the gradient
  bench.add("it0/param/embedding.weight/value", random_tensor({64, 32}, 7), cut(0, "tp"), layout);
  bench.add("it0/grad/embedding.weight/reduced", random_tensor({64, 32}, 8), whole, layout);

  CHECK(bench.layout("it0/grad/embedding.weight/reduced") == "- -");
  CHECK(bench.decision("it0/grad/embedding.weight/reduced").reason.find("another local shape") !=
        std::string::npos);
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("a declared sum is kept and not checked by content") {
  Bench bench({{"tp", 2}});
  const Tensor output = random_tensor({16, 2, 32}, 9);
  bench.add("it0/mb0/forward/fc2/output.0", scaled(output, 0.5F), whole, dims("s b h partial(tp)"));

  CHECK(bench.layout("it0/mb0/forward/fc2/output.0") == "- - - partial(tp)");
}

TEST_CASE("a local gradient declares its pending sum on top of its parameter's cuts") {
  Bench bench({{"dp", 2}, {"tp", 2}});
  bench.add(kWeight, random_tensor({64, 32}, 20), strided);
  bench.add("it0/mb0/grad/layers.0.fc1.weight/local", random_tensor({64, 32}, 21), strided,
            dims("h[tp:/2] d partial(dp)"));

  CHECK(bench.layout("it0/mb0/grad/layers.0.fc1.weight/local") == "[tp:/2] - partial(dp)");
}

TEST_CASE("what tensor parallel ranks share may be a part of the batch") {
  const std::string said = R"(,"shape":[8,2,32],"axes":["tp"],"source":"test"})";
  const auto batch = [](const Tensor& tensor, const Coordinates& where) {
    return part(tensor, 0, at(where, "dp"), 2);
  };
  Bench bench({{"dp", 2}, {"tp", 2}});
  bench.add("it0/mb0/forward/fc2/output.0", random_tensor({16, 2, 32}, 30), batch,
            R"_({"dims":"- - - partial(tp)")_" + said);
  bench.add("it0/mb0/forward/norm/output.0", random_tensor({16, 2, 32}, 31), batch,
            R"({"dims":"- - -")" + said);
  bench.add(
      "it0/mb0/forward/fc1/output.0", constant_tensor({16, 2, 64}, 0),
      [&](const Tensor& tensor, const Coordinates& where) {
        return part(batch(tensor, where), 2, at(where, "tp"), 2);
      },
      R"({"dims":"- - [tp]","shape":[8,2,64],"axes":["tp"],"source":"test"})");

  CHECK(bench.layout("it0/mb0/forward/fc2/output.0") == "[dp] - - partial(tp)");
  CHECK(bench.layout("it0/mb0/forward/norm/output.0") == "[dp] - -");
  CHECK(bench.layout("it0/mb0/forward/fc1/output.0") == "[dp] - [tp]");
  CHECK(bench.decision("it0/mb0/forward/fc1/output.0").reason == "declared (test)");
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("what the reference lacks keeps its declared layout") {
  Bench bench({{"tp", 2}});
  bench.add_shards(kWeight, random_tensor({64, 32}, 22), cut(0, "tp"),
                   R"({"dims":"h[tp] d","shape":[64,32],"source":"test"})");
  bench.add("it0/param/norm.weight/value", random_tensor({32}, 23), whole);

  CHECK(bench.layout(kWeight) == "[tp] -");
}

}  // namespace
}  // namespace ttrace::testing
