// SPDX-License-Identifier: Apache-2.0
// Layers that pipeline stages count from 0 get the numbers of the reference's, by the content of
// their parameters, and what stages hand to each other is no tensor of the model.
#include "libttrace/numbering.hpp"
#include "libttrace/stages.hpp"
#include "test/catch.hpp"
#include "test/libttrace/trace_builder.hpp"

namespace ttrace::testing {
namespace {

Field field(const std::string& key, DType type = DType::float32) {
  return {key_of(key), type, RecordKind::full, "", 0};
}

std::string weight(int layer) {
  return "it0/param/blocks." + std::to_string(layer) + ".fc.weight/value";
}
std::string norm(int layer) {
  return "it0/param/blocks." + std::to_string(layer) + ".norm.weight/value";
}

Tensor weights_of(int layer) { return random_tensor({16, 32}, 500 + static_cast<unsigned>(layer)); }

// A layer's parameters under some number; norms are all alike and tell nothing.
void add_layer(TraceBuilder& trace, std::int32_t rank, int number, const Tensor& weight_value) {
  trace.add(rank, field(weight(number)), weight_value);
  trace.add(rank, field(norm(number)), constant_tensor({16}, 1));
}

struct Runs {
  TraceBuilder reference{"reference"}, candidate{"candidate"};
  std::optional<Trace> known, held;
  RankNames find() {
    known.emplace(reference.write());
    held.emplace(candidate.write());
    return find_numbers(*known, *held);
  }
};

Runs four_layers(const std::vector<std::pair<std::string, std::uint64_t>>& mesh) {
  Runs runs;
  runs.reference.mesh({});
  for (int layer = 0; layer < 4; ++layer) add_layer(runs.reference, 0, layer, weights_of(layer));
  runs.candidate.mesh(mesh);
  return runs;
}

}  // namespace

TEST_CASE("stages that count from 0 are put in their place, cut or not") {
  const std::size_t dim = GENERATE(0u, 1u);
  Runs runs = four_layers({{"pp", 2}, {"tp", 2}});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    for (int own = 0; own < 2; ++own) {
      add_layer(runs.candidate, rank, own,
                part(weights_of(own + 2 * (rank / 2)), dim, static_cast<unsigned>(rank % 2), 2));
    }
  }
  const RankNames names = runs.find();

  REQUIRE(names.size() == 2);  // the first stage's numbers are right
  CHECK(names.at(2).logical("blocks.0.fc") == "blocks.2.fc");
  CHECK(names.at(3).logical("blocks.1") == "blocks.3");
  CHECK(names.at(3).logical("blocks.10") == "blocks.12");  // not that of blocks.1
  CHECK(names.at(3).logical("head") == "head");
  const ShardGroups groups = renamed(group_shards(*runs.held, 0, {}), names);
  CHECK(groups.at(key_of(weight(2))).size() == 2);
  CHECK(groups.at(key_of(weight(0))).size() == 2);
}

TEST_CASE("members of a list without parameters go with their neighbours") {
  Runs runs = four_layers({{"pp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    for (int own = 0; own < 2; ++own) {
      add_layer(runs.candidate, rank, own, weights_of(own + 2 * rank));
    }
  }
  const RankNames names = runs.find();
  CHECK(names.at(1).logical("blocks.2") == "blocks.4");  // of no parameters
  CHECK(names.at(1).logical("blocks.7.act") == "blocks.9.act");
  CHECK(names.at(1).logical("blocks.first") == "blocks.first");
  CHECK(names.at(1).logical("other.2") == "other.2");
}

TEST_CASE("interleaved stages hold layers that are no neighbours") {
  Runs runs = four_layers({{"pp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    for (int own = 0; own < 2; ++own) {
      add_layer(runs.candidate, rank, own, weights_of(2 * own + rank));
    }
  }
  const RankNames names = runs.find();
  CHECK(names.at(0).logical("blocks.1.fc") == "blocks.2.fc");
  CHECK(names.at(1).logical("blocks.0.fc") == "blocks.1.fc");
  CHECK(names.at(1).logical("blocks.1.fc") == "blocks.3.fc");
}

TEST_CASE("experts have the numbers of their parameters, in layers that are renumbered, too") {
  Runs runs;
  runs.reference.mesh({});
  runs.candidate.mesh({{"pp", 2}, {"ep", 2}});
  const auto expert = [](int layer, int number) {
    return "it0/param/blocks." + std::to_string(layer) + ".experts." + std::to_string(number) +
           ".weight/value";
  };
  const auto value = [](int layer, int number) {
    return random_tensor({8, 16}, static_cast<unsigned>(10 * layer + number + 1));
  };
  for (int layer = 0; layer < 2; ++layer) {
    for (int i = 0; i < 4; ++i) runs.reference.add(0, field(expert(layer, i)), value(layer, i));
    runs.reference.add(0, field(weight(layer)), weights_of(layer));
  }
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    for (int i = 0; i < 2; ++i) {
      runs.candidate.add(rank, field(expert(0, i)), value(rank / 2, i + 2 * (rank % 2)));
    }
    runs.candidate.add(rank, field(weight(0)), weights_of(rank / 2));
  }
  const RankNames names = runs.find();
  CHECK(names.at(3).logical("blocks.0.experts.1") == "blocks.1.experts.3");
  CHECK(names.at(2).logical("blocks.0.experts.1") == "blocks.1.experts.1");
  CHECK(names.at(1).logical("blocks.0.experts.0") == "blocks.0.experts.2");
}

TEST_CASE("what parameters do not tell, or tell twice, keeps its name") {
  const auto kind = GENERATE(0, 1, 2);
  Runs runs = four_layers({{"pp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    for (int own = 0; own < 2; ++own) {
      Tensor value = weights_of(own + 2 * rank);
      if (kind == 0) value = random_tensor({16, 32}, 900);     // of no layer
      if (kind == 1) value = weights_of(3);                    // twice the same
      if (kind == 2) value = constant_tensor({16, 32}, 0.5f);  // tells nothing
      add_layer(runs.candidate, rank, own, value);
    }
  }
  CHECK(runs.find().empty());
}

TEST_CASE("a rank with all layers keeps their names, even when two were exchanged") {
  Runs runs = four_layers({{"tp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    for (int own = 0; own < 4; ++own) add_layer(runs.candidate, rank, own, weights_of(own ^ 1));
  }
  CHECK(runs.find().empty());  // a bug, and found as one
}

TEST_CASE("what stages hand to each other is left out, another kind from equal ranks is not") {
  const bool stages = GENERATE(true, false);
  const std::string input = "it0/mb0/forward/@root/input.0";
  Runs runs = four_layers({{"pp", 2}});
  runs.reference.add(0, field(input, DType::int64), constant_tensor({4, 8}, 3));
  runs.candidate.add(0, field(input, DType::int64), constant_tensor({4, 8}, 3));
  runs.candidate.add(1, field(input), random_tensor({4, 8, 16}, 1));
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const int layer = stages ? 2 * rank : 0;
    add_layer(runs.candidate, rank, layer, weights_of(layer));
  }
  (void)runs.find();
  const MicrobatchNumbers numbers{{{0, 0}, 0}, {{1, 0}, 0}};
  ShardGroups held = group_shards(*runs.held, 0, numbers);
  leave_out_handovers(group_shards(*runs.known, 0, numbers), held);
  CHECK(held.at(key_of(input)).size() == (stages ? 1 : 2));
}

TEST_CASE("buffers of collectives are no shards of a tensor") {
  const std::string output = "it0/mb0/forward/fc/output.0";
  const std::string sent = "it0/mb0/comm/fc/reduce_scatter.input";
  const std::string summed = "it0/comm/fc.weight/all_reduce.output";
  TraceBuilder builder{"buffers"};
  builder.mesh({{"tp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const auto seed = static_cast<unsigned>(rank);
    builder.add(rank, field(sent), random_tensor({16}, seed));
    builder.add(rank, field(output), random_tensor({4, 8}, seed));
    builder.add(rank, field(summed), random_tensor({8}, seed));
  }
  const Trace trace(builder.write());
  ShardGroups held = group_shards(trace, 0, {{{0, 0}, 0}, {{1, 0}, 0}});
  CHECK(take_collectives(held) == std::set<Key>{key_of(sent), key_of(summed)});
  REQUIRE(held.size() == 1);
  CHECK(held.at(key_of(output)).size() == 2);
  CHECK(take_collectives(held).empty());
}

TEST_CASE("the model's output is that of the stage with the reference's last module") {
  const bool stages = GENERATE(true, false);
  const std::string output = "it0/mb0/forward/@root/output.0";
  Runs runs = four_layers({{"pp", 2}});
  const auto made_by = [](int layer) {
    return "it0/mb0/forward/blocks." + std::to_string(layer) + ".fc/output.0";
  };
  for (int layer = 0; layer < 4; ++layer) {
    runs.reference.add(0, field(made_by(layer)), random_tensor({4, 8}, 1));
  }
  runs.reference.add(0, field(output), random_tensor({4, 8}, 2));
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const int layer = stages ? 2 * rank : 2;
    add_layer(runs.candidate, rank, layer, weights_of(layer));
    if (rank == 1 || !stages) runs.candidate.add(rank, field(made_by(3)), random_tensor({4, 8}, 1));
    // Of the same type and as many dimensions, whatever the stage hands on.
    runs.candidate.add(rank, field(output), random_tensor({4, 8}, static_cast<unsigned>(rank + 1)));
  }
  (void)runs.find();
  const MicrobatchNumbers numbers{{{0, 0}, 0}, {{1, 0}, 0}};
  ShardGroups held = group_shards(*runs.held, 0, numbers);
  leave_out_handovers(group_shards(*runs.known, 0, numbers), held);
  const std::vector<Shard>& kept = held.at(key_of(output));
  REQUIRE(kept.size() == (stages ? 1 : 2));  // two copies of one stage may disagree: a finding
  CHECK(kept.back().rank == 1);
}

TEST_CASE("calls of a module that two stages hold are counted over both, in their order") {
  const bool stages = GENERATE(true, false);
  const std::uint32_t calls = GENERATE(2u, 3u);  // of the reference
  const std::string output = "it0/mb0/forward/embedding";
  Runs runs = four_layers({{"pp", 2}});
  for (std::uint32_t call = 0; call < calls; ++call) {
    const std::string key = output + (call == 0 ? "" : "#" + std::to_string(call)) + "/output.0";
    runs.reference.add(0, field(key), random_tensor({4, 8}, call));
  }
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    runs.candidate.add(rank, field(output + "/output.0"),
                       random_tensor({4, 8}, static_cast<unsigned>(rank)));
    const int layer = stages ? 2 * rank : 0;
    add_layer(runs.candidate, rank, layer, weights_of(layer));
  }
  (void)runs.find();
  const MicrobatchNumbers numbers{{{0, 0}, 0}, {{1, 0}, 0}};
  ShardGroups held = group_shards(*runs.held, 0, numbers);
  count_calls_over_stages(group_shards(*runs.known, 0, numbers), held);
  const std::vector<Shard>& first = held.at(key_of(output + "/output.0"));
  // Ranks of the same layers are no stages, and a call that no stage made stays missing.
  if (!stages || calls == 3) {
    CHECK(first.size() == 2);
    return;
  }
  REQUIRE(first.size() == 1);
  CHECK(first[0].rank == 0);
  REQUIRE(held.at(key_of(output + "#1/output.0")).size() == 1);
  CHECK(held.at(key_of(output + "#1/output.0"))[0].rank == 1);
}

}  // namespace ttrace::testing
