// SPDX-License-Identifier: Apache-2.0
// Healthy layouts are recognised from shapes, mesh and content alone. Shards are cut by index
// lists, and the recognised layout must place them as the whole tensor again.
#include "test/catch.hpp"
#include "test/libttrace/inference_bench.hpp"

namespace ttrace::testing {
namespace {

constexpr const char* kWeight = "it0/param/layers.0.fc1.weight/value";
constexpr const char* kOutput = "it0/mb0/forward/layers.0/output.0";

void check_placed(Bench& bench, const std::string& key, const Tensor& tensor) {
  const LogicalTensor placed = bench.placed(key);
  REQUIRE(placed.proved());
  std::vector<float> read(tensor.values.size());
  const Box everything{Shape(tensor.shape.size(), 0), tensor.shape};
  read_box(placed, everything, reinterpret_cast<std::byte*>(read.data()));
  for (std::size_t i = 0; i < read.size(); ++i) {
    REQUIRE(read[i] == Approx(tensor.values[i]).epsilon(1e-4));
  }
}

TEST_CASE("column and row parallel weights are told apart by their shapes") {
  Bench bench({{"tp", 2}});
  const Tensor weight = random_tensor({64, 48}, 1);
  bench.add(kWeight, weight, cut(0, "tp"));
  bench.add("it0/param/layers.0.fc2.weight/value", weight, cut(1, "tp"));

  CHECK(bench.layout(kWeight) == "[tp] -");
  CHECK(bench.layout("it0/param/layers.0.fc2.weight/value") == "- [tp]");
  CHECK(bench.decision(kWeight).fit == 1);
  CHECK_FALSE(bench.decision(kWeight).assumed);
  CHECK(bench.inference.findings.empty());
  check_placed(bench, kWeight, weight);
}

TEST_CASE("a gated weight is strided although a plain cut has the same shape") {
  Bench bench({{"tp", 4}});
  const Tensor weight = random_tensor({96, 32}, 2);
  bench.add(kWeight, weight, [](const Tensor& tensor, const Coordinates& where) {
    const std::uint64_t r = at(where, "tp");
    return take(tensor, 0, joined(range(12 * r, 12 * r + 12), range(48 + 12 * r, 60 + 12 * r)));
  });

  CHECK(bench.layout(kWeight) == "[tp:/2] -");
  check_placed(bench, kWeight, weight);
}

TEST_CASE("a context parallel sequence is a zigzag") {
  Bench bench({{"cp", 2}});
  const Tensor output = random_tensor({32, 2, 24}, 3);
  bench.add(kOutput, output, [](const Tensor& tensor, const Coordinates& where) {
    return zigzag(tensor, 0, at(where, "cp"), 2);
  });

  CHECK(bench.layout(kOutput) == "[cp:zigzag] - -");
  check_placed(bench, kOutput, output);
}

TEST_CASE("sequences that stand one after another are a zigzag each") {
  Bench bench({{"cp", 2}});
  const std::uint64_t sequences = GENERATE(2u, 3u);
  bench.add(kOutput, random_tensor({16 * sequences, 2, 24}, 3),
            [sequences](const Tensor& tensor, const Coordinates& where) {
              Indices kept;
              for (std::uint64_t sequence = 0; sequence < sequences; ++sequence) {
                for (const std::uint64_t chunk : {at(where, "cp"), 3 - at(where, "cp")}) {
                  for (std::uint64_t i = 0; i < 4; ++i)
                    kept.push_back(16 * sequence + 4 * chunk + i);
                }
              }
              return take(tensor, 0, kept);
            });
  CHECK(bench.layout(kOutput) ==
        (sequences == 2 ? "[cp:zigzag(16,16)] - -" : "[cp:zigzag(16,16,16)] - -"));
}

TEST_CASE("sequence parallelism inside of context parallelism is a nested cut") {
  Bench bench({{"cp", 2}, {"tp", 2}});
  const Tensor output = random_tensor({32, 2, 24}, 4);
  bench.add(kOutput, output, [](const Tensor& tensor, const Coordinates& where) {
    return part(zigzag(tensor, 0, at(where, "cp"), 2), 0, at(where, "tp"), 2);
  });
  bench.add("it0/mb0/forward/layers.0.fc1/output.0", output,
            [](const Tensor& tensor, const Coordinates& where) {
              return part(zigzag(tensor, 0, at(where, "cp"), 2), 2, at(where, "tp"), 2);
            });

  CHECK(bench.layout(kOutput) == "[cp:zigzag,tp] - -");
  CHECK(bench.layout("it0/mb0/forward/layers.0.fc1/output.0") == "[cp:zigzag] - [tp]");
  check_placed(bench, kOutput, output);
}

TEST_CASE("fully sharded over tensor parallel is a strided shard") {
  Bench bench({{"dp", 2}, {"tp", 2}});
  const Tensor weight = random_tensor({64, 24}, 5);
  // Tensor parallel halves first, then dp halves each of them; the order of cuts names dp inside.
  bench.add(kWeight, weight, [](const Tensor& tensor, const Coordinates& where) {
    return part(part(tensor, 0, at(where, "tp"), 2), 0, at(where, "dp"), 2);
  });

  const std::string layout = bench.layout(kWeight);
  CHECK((layout == "[tp,dp] -" || layout == "[dp:/2,tp] -"));
  check_placed(bench, kWeight, weight);
}

TEST_CASE("a vocabulary is cut plainly, and data parallel ranks replicate it") {
  Bench bench({{"dp", 2}, {"tp", 2}});
  const Tensor weight = random_tensor({128, 16}, 6);
  bench.add("it0/param/embedding.weight/value", weight, cut(0, "tp"));

  CHECK(bench.layout("it0/param/embedding.weight/value") == "[tp] -");
  check_placed(bench, "it0/param/embedding.weight/value", weight);
}

TEST_CASE("unequal sections of a fused weight are found, and its output has them too") {
  Bench bench({{"tp", 2}});
  const auto sections = [](std::size_t dim) {
    return [dim](const Tensor& tensor, const Coordinates& where) {
      const std::uint64_t r = at(where, "tp");
      const Indices q = range(32 * r, 32 * r + 32);
      const Indices k = range(64 + 16 * r, 80 + 16 * r);
      const Indices v = range(96 + 16 * r, 112 + 16 * r);
      return take(tensor, dim, joined(joined(q, k), v));
    };
  };
  const Tensor weight = random_tensor({128, 16}, 7);
  const Tensor output = random_tensor({16, 2, 128}, 8);
  bench.add("it0/param/layers.0.qkv.weight/value", weight, sections(0));
  bench.add("it0/param/layers.0.qkv.bias/value", constant_tensor({128}, 0), sections(0));
  bench.add("it0/grad/layers.0.qkv.bias/reduced", random_tensor({128}, 9), sections(0));
  bench.add("it0/mb0/forward/layers.0.qkv/output.0", output, sections(2));

  CHECK(bench.layout("it0/param/layers.0.qkv.weight/value") == "[tp:(64,32,32)] -");
  CHECK(bench.layout("it0/param/layers.0.qkv.bias/value") == "[tp:(64,32,32)]");
  CHECK(bench.layout("it0/mb0/forward/layers.0.qkv/output.0") == "- - [tp:(64,32,32)]");
  check_placed(bench, "it0/param/layers.0.qkv.weight/value", weight);
}

TEST_CASE("a constant bias takes its cut from the gradient of the same parameter") {
  Bench bench({{"tp", 2}});
  const Cutter gated = [](const Tensor& tensor, const Coordinates& where) {
    const std::uint64_t r = at(where, "tp");
    return take(tensor, 0, joined(range(64 * r, 64 * r + 64), range(128 + 64 * r, 192 + 64 * r)));
  };
  bench.add("it0/param/layers.0.fc1.bias/value", constant_tensor({256}, 0), gated);
  bench.add("it0/grad/layers.0.fc1.bias/reduced", random_tensor({256}, 10), gated);

  CHECK(bench.layout("it0/param/layers.0.fc1.bias/value") == "[tp:/2]");
  CHECK(bench.layout("it0/grad/layers.0.fc1.bias/reduced") == "[tp:/2]");
}

TEST_CASE("a tie that content cannot decide is cut like its peers") {
  Bench bench({{"cp", 2}, {"tp", 2}});
  const Tensor output = random_tensor({32, 2, 24}, 11);
  const Cutter zigzagged = [](const Tensor& tensor, const Coordinates& where) {
    return zigzag(tensor, 0, at(where, "cp"), 2);
  };
  bench.add(kOutput, output, zigzagged);
  bench.add("it0/mb0/forward/mask/output.0", constant_tensor({32, 2, 24}, 0), zigzagged);

  CHECK(bench.layout("it0/mb0/forward/mask/output.0") == "[cp:zigzag] - -");
  CHECK_FALSE(bench.decision("it0/mb0/forward/mask/output.0").assumed);
}

TEST_CASE("a tie without peers is the simplest layout, and says that it is assumed") {
  Bench bench({{"tp", 2}});
  bench.add(kOutput, constant_tensor({32, 2, 24}, 1), cut(0, "tp"));

  CHECK(bench.layout(kOutput) == "[tp] - -");
  CHECK(bench.decision(kOutput).assumed);
}

TEST_CASE("statistics without bytes leave shape, peers and links") {
  Bench bench({{"tp", 2}});
  const Tensor weight = random_tensor({64, 24}, 12);
  bench.add(kWeight, weight, cut(0, "tp"), "", RecordKind::stats);
  bench.add("it0/step/layers.0.fc1.weight/param", weight, cut(0, "tp"), "", RecordKind::hash);
  bench.add("it0/param/norm.weight/value", constant_tensor({24}, 1), whole, "", RecordKind::stats);

  CHECK(bench.layout(kWeight) == "[tp] -");
  CHECK(bench.decision(kWeight).assumed);
  CHECK(bench.layout("it0/step/layers.0.fc1.weight/param") == "[tp] -");
  CHECK(bench.layout("it0/param/norm.weight/value") == "-");
}

TEST_CASE("uneven chunks are those of torch.chunk, nested ones too") {
  Bench bench({{"dp", 2}, {"tp", 2}});
  const Tensor weight = random_tensor({90, 24}, 13);
  // 90 = 45 + 45, and each 45 = 23 + 22.
  bench.add(kWeight, weight, [](const Tensor& tensor, const Coordinates& where) {
    const std::uint64_t begin = 45 * at(where, "tp") + 23 * at(where, "dp");
    return take(tensor, 0, range(begin, begin + 23 - at(where, "dp")));
  });

  CHECK(bench.layout(kWeight) == "[tp,dp] -");
  check_placed(bench, kWeight, weight);
}

TEST_CASE("a padded vocabulary belongs to parameters, and logits inherit it") {
  Bench bench({{"tp", 4}});
  const auto padded = [](std::size_t dim) {
    return [dim](const Tensor& tensor, const Coordinates& where) {
      Tensor wide = tensor;  // 100 words padded to 128 by words of zeros
      wide.shape[dim] = 128;
      wide.values.assign(element_count(wide.shape), 0);
      std::uint64_t inner = 1;
      for (std::size_t i = dim + 1; i < tensor.shape.size(); ++i) inner *= tensor.shape[i];
      for (std::uint64_t i = 0; i < tensor.values.size(); ++i) {
        const std::uint64_t block = i / (100 * inner);
        wide.values[block * 128 * inner + i % (100 * inner)] = tensor.values[i];
      }
      return part(wide, dim, at(where, "tp"), 4);
    };
  };
  bench.add("it0/param/embedding.weight/value", random_tensor({100, 24}, 14), padded(0));
  bench.add("it0/mb0/forward/head/output.0", random_tensor({16, 2, 100}, 15), padded(2));

  CHECK(bench.layout("it0/param/embedding.weight/value") == "[tp] -");
  CHECK(bench.decision("it0/param/embedding.weight/value").global_shape == Shape{128, 24});
  CHECK(bench.layout("it0/mb0/forward/head/output.0") == "- - [tp]");
  CHECK(bench.decision("it0/mb0/forward/head/output.0").global_shape == Shape{16, 2, 128});
}

TEST_CASE("heads shared by neighbouring ranks are a partly replicated axis") {
  Bench bench({{"tp", 4}});
  const Tensor weight = random_tensor({32, 24}, 16);
  bench.add("it0/param/layers.0.k.weight/value", weight,
            [](const Tensor& tensor, const Coordinates& where) {
              return part(tensor, 0, at(where, "tp") / 2, 2);
            });

  CHECK(bench.layout("it0/param/layers.0.k.weight/value") == "[tp/outer2] -");
  check_placed(bench, "it0/param/layers.0.k.weight/value", weight);
}

TEST_CASE("a shard with two dimensions in the other order is the last resort of activations") {
  const auto batch = GENERATE(1U, 3U);
  Bench bench({{"tp", 2}});
  const Tensor output = random_tensor({batch, 32, 24}, 23);
  bench.add("it0/mb0/forward/embedding/output.0", output,
            [](const Tensor& tensor, const Coordinates& where) {
              const Tensor shard = part(tensor, 1, at(where, "tp"), 2);
              Tensor turned{{shard.shape[1], shard.shape[0], shard.shape[2]}, {}};
              for (std::uint64_t s = 0; s < shard.shape[1]; ++s) {
                const Tensor step = take(shard, 1, {s});
                turned.values.insert(turned.values.end(), step.values.begin(), step.values.end());
              }
              return turned;
            });

  CHECK(bench.layout("it0/mb0/forward/embedding/output.0") == "- [tp] - swap(0,1)");
  check_placed(bench, "it0/mb0/forward/embedding/output.0", output);
}

TEST_CASE("experts live on one rank each and tied copies on two stages") {
  Bench bench({{"pp", 2}, {"tp", 2}});
  const Tensor expert = random_tensor({48, 24}, 17);
  const Tensor tied = random_tensor({64, 24}, 18);
  bench.add_reference("it0/param/experts.1.weight/value", expert);
  bench.add_shard(1, "it0/param/experts.1.weight/value", expert);
  bench.add("it0/param/embedding.weight/value", tied, cut(0, "tp"));

  CHECK(bench.layout("it0/param/experts.1.weight/value") == "- -");
  CHECK(bench.layout("it0/param/embedding.weight/value") == "[tp] -");
  check_placed(bench, "it0/param/embedding.weight/value", tied);
}

TEST_CASE("without a recorded mesh the ranks are one axis, or two factors of it") {
  Bench bench({});
  for (std::int32_t rank = 0; rank < 4; ++rank) bench.candidate().place(rank, {});
  const Tensor weight = random_tensor({64, 24}, 19);
  const Tensor other = random_tensor({32, 24}, 20);
  bench.add_reference(kWeight, weight);
  bench.add_reference("it0/param/layers.0.fc2.weight/value", other);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const auto r = static_cast<std::uint64_t>(rank);
    bench.add_shard(rank, kWeight, part(weight, 0, r, 4));
    bench.add_shard(rank, "it0/param/layers.0.fc2.weight/value", part(other, 0, r % 2, 2));
  }

  CHECK(bench.layout(kWeight) == "[rank] -");
  CHECK(bench.layout("it0/param/layers.0.fc2.weight/value") == "[rank/inner2] -");
}

TEST_CASE("tensors that the reference lacks get no decision and no finding") {
  Bench bench({{"tp", 2}});
  bench.add_shards(kOutput, random_tensor({32, 24}, 21), cut(0, "tp"));
  bench.add(kWeight, random_tensor({32, 24}, 22), whole);

  CHECK(bench.layout(kOutput) == "unknown");
  CHECK(bench.inference.findings.empty());
}

TEST_CASE("another call of a module is decided with the first") {
  Bench bench({{"tp", 2}});
  const Tensor output = random_tensor({32, 2, 24}, 22);
  bench.add("it0/mb0/forward/drop/output.0", output, cut(2, "tp"));
  bench.add("it0/mb0/forward/drop#1/output.0", scaled(output, 2), cut(2, "tp"));

  CHECK(bench.layout("it0/mb0/forward/drop/output.0") == "- - [tp]");
  CHECK(bench.layout("it0/mb0/forward/drop#1/output.0") == "- - [tp]");
}

}  // namespace
}  // namespace ttrace::testing
