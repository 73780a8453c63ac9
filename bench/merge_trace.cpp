// SPDX-License-Identifier: Apache-2.0
// Writes the traces that bench/merge.sh measures; the tensors follow a formula.
//   merge_trace OUT ranks TP PP DP LAYERS MICROBATCHES   many small tensors, named as Megatron does
//   merge_trace OUT large TP MIB                         few tensors, in shards of 4 MiB
// A reference is the first with TP PP DP = 1 1 1 and MICROBATCHES times the DP of the other.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "libttrace/segment.hpp"
#include "libttrace/trace.hpp"
#include "libttrace/trace_files.hpp"

using namespace ttrace;

namespace {

struct Mesh {
  std::uint64_t tp = 1, pp = 1, dp = 1;
};

struct Place {
  std::uint64_t tp = 0, pp = 0, dp = 0;
};

constexpr std::uint64_t kHidden = 16;
constexpr std::uint64_t kSequence = 16;

// One dimension of at most one tensor is cut, over tp.
struct Named {
  std::string module;
  Shape shape;
  int cut = -1;
};

std::vector<Named> parameters_of(const std::string& layer) {
  return {{layer + ".input_layernorm.weight", {kHidden}},
          {layer + ".input_layernorm.bias", {kHidden}},
          {layer + ".self_attention.linear_qkv.weight", {3 * kHidden, kHidden}, 0},
          {layer + ".self_attention.linear_qkv.bias", {3 * kHidden}, 0},
          {layer + ".self_attention.linear_proj.weight", {kHidden, kHidden}, 1},
          {layer + ".self_attention.linear_proj.bias", {kHidden}},
          {layer + ".pre_mlp_layernorm.weight", {kHidden}},
          {layer + ".pre_mlp_layernorm.bias", {kHidden}},
          {layer + ".mlp.linear_fc1.weight", {4 * kHidden, kHidden}, 0},
          {layer + ".mlp.linear_fc1.bias", {4 * kHidden}, 0},
          {layer + ".mlp.linear_fc2.weight", {kHidden, 4 * kHidden}, 1},
          {layer + ".mlp.linear_fc2.bias", {kHidden}}};
}

std::vector<Named> outputs_of(const std::string& layer) {
  const Shape hidden{kSequence, 1, kHidden};
  return {{layer + ".input_layernorm", hidden, 0},
          {layer + ".self_attention.linear_qkv", {kSequence, 1, 3 * kHidden}, 2},
          {layer + ".self_attention.core_attention", hidden, 2},
          {layer + ".self_attention.linear_proj", hidden, 0},
          {layer + ".self_attention", hidden, 0},
          {layer + ".pre_mlp_layernorm", hidden, 0},
          {layer + ".mlp.linear_fc1", {kSequence, 1, 4 * kHidden}, 2},
          {layer + ".mlp.linear_fc2", hidden, 0},
          {layer + ".mlp", hidden, 0},
          {layer, hidden, 0}};
}

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::uint64_t seed_of(const std::string& text, std::uint64_t number) {
  std::uint64_t hash = 0xcbf29ce484222325u + number;
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return hash;
}

class RankWriter {
 public:
  RankWriter(const std::filesystem::path& out, std::int32_t rank, Mesh mesh, Place place)
      : mesh_(mesh),
        place_(place),
        segment_(segment_path(out, rank, 0), {"bench", rank, 0, true}) {}

  void write(std::uint64_t layers, std::uint64_t microbatches) {
    std::vector<Named> weights, outputs;
    const std::uint64_t own = layers / mesh_.pp;
    for (std::uint64_t i = place_.pp * own; i < (place_.pp + 1) * own; ++i) {
      const std::string layer = "decoder.layers." + std::to_string(i);
      for (Named& named : parameters_of(layer)) weights.push_back(std::move(named));
      for (Named& named : outputs_of(layer)) outputs.push_back(std::move(named));
    }
    for (const Named& named : weights) tensor(named, Phase::param, -1, 0, "value");
    for (std::uint64_t i = 0; i < microbatches; ++i) microbatch(outputs, i);
    for (const Named& named : weights) {
      tensor(named, Phase::grad, -1, 0, "reduced");
      for (const char* slot : {"value", "master", "exp_avg", "exp_avg_sq"}) {
        tensor(named, Phase::step, -1, 0, slot);
      }
    }
    segment_.close(true);
  }

 private:
  void microbatch(const std::vector<Named>& outputs, std::uint64_t own) {
    const std::uint64_t logical = own * mesh_.dp + place_.dp;
    const auto number = static_cast<std::int32_t>(own);
    if (place_.pp == 0) tokens(number, logical);
    for (const Named& named : outputs) tensor(named, Phase::forward, number, logical, "output.0");
    for (std::size_t i = outputs.size(); i-- > 0;) {
      tensor(outputs[i], Phase::backward, number, logical, "grad_output.0");
    }
  }

  void tokens(std::int32_t number, std::uint64_t logical) {
    std::vector<std::int64_t> values;
    for (std::uint64_t i = 0; i < kSequence; ++i) {
      values.push_back(static_cast<std::int64_t>(mix(logical * kSequence + i) % 50000));
    }
    Record record;
    record.key = {0, number, Phase::forward, "@root", 0, "input.tokens"};
    record.dtype = DType::int64;
    record.shape = {1, kSequence};
    record.flags = kFlagRootInput;
    put(record, R"({"dims":"- -"})", std::as_bytes(std::span(values)));
  }

  void tensor(const Named& named, Phase phase, std::int32_t number, std::uint64_t logical,
              const std::string& slot) {
    const std::uint64_t seed =
        seed_of(named.module + slot, logical * 16 + static_cast<std::uint64_t>(phase));
    Record record;
    record.key = {0, number, phase, named.module, 0, slot};
    record.shape = named.shape;
    std::string dims;
    std::uint64_t inner = 1, begin = 0, extent = 1;
    for (std::size_t dim = 0; dim < named.shape.size(); ++dim) {
      const bool cut = static_cast<int>(dim) == named.cut;
      dims += std::string(dim == 0 ? "" : " ") + (cut ? "[tp]" : "-");
      if (!cut) continue;
      record.shape[dim] /= mesh_.tp;
      extent = record.shape[dim];
      begin = place_.tp * extent;
      for (std::size_t i = dim + 1; i < named.shape.size(); ++i) inner *= named.shape[i];
    }
    const std::uint64_t count = element_count(record.shape);
    values_.resize(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t outer = i / (extent * inner), rest = i % (extent * inner);
      const std::uint64_t whole = extent * mesh_.tp;
      const std::uint64_t at = named.cut < 0 ? i : (outer * whole + begin) * inner + rest;
      values_[i] = static_cast<float>(mix(seed + at) >> 40) * 0x1p-24f - 0.5f;
    }
    put(record, R"({"dims":")" + dims + R"("})", std::as_bytes(std::span(values_)));
  }

  void put(Record& record, const std::string& layout, std::span<const std::byte> bytes) {
    record.bytes = bytes.size();
    segment_.begin(record, layout);
    segment_.append(bytes);
    segment_.commit();
  }

  Mesh mesh_;
  Place place_;
  SegmentWriter segment_;
  std::vector<float> values_;
};

void write_documents(const std::filesystem::path& out, std::int32_t rank, std::uint64_t world,
                     Mesh mesh, Place place) {
  const auto axis = [](const char* name, std::uint64_t size, std::uint64_t coord) {
    return std::string(R"({"name":")") + name + R"(","size":)" + std::to_string(size) +
           R"(,"coord":)" + std::to_string(coord) + "}";
  };
  std::filesystem::create_directories(out / rank_directory_name(rank));
  std::ofstream(out / rank_directory_name(rank) / "rank.json")
      << R"({"format":"ttrace-rank","version":1,"run_id":"bench","rank":)" << rank
      << R"(,"world_size":)" << world << R"(,"axes":[)" << axis("pp", mesh.pp, place.pp) << ","
      << axis("dp", mesh.dp, place.dp) << "," << axis("tp", mesh.tp, place.tp) << "]}";
  std::ofstream(out / "trace.json") << R"({"format":"ttrace-trace","version":1,"run_id":"bench"})";
}

// Every other weight is cut in its columns, so that a shard lies in pieces of 1 KiB.
void write_large(const std::filesystem::path& out, std::uint64_t tp, std::uint64_t mib) {
  constexpr std::uint64_t kShard = std::uint64_t{4} << 20;
  std::vector<std::uint32_t> values(kShard / sizeof(std::uint32_t));
  for (std::uint64_t rank = 0; rank < tp; ++rank) {
    const auto number = static_cast<std::int32_t>(rank);
    write_documents(out, number, tp, {tp, 1, 1}, {rank, 0, 0});
    SegmentWriter segment(segment_path(out, number, 0), {"bench", number, 0, true});
    for (std::uint64_t i = 0; i < (mib << 20) / (tp * kShard); ++i) {
      const bool columns = i % 2 == 1;
      Record record;
      record.key = {0, -1, Phase::param, "layers." + std::to_string(i) + ".weight", 0, "value"};
      record.shape = columns ? Shape{4096, 256} : Shape{512, 2048};
      record.bytes = kShard;
      for (std::uint64_t k = 0; k < values.size(); ++k) {
        values[k] = 0x3f000000u | static_cast<std::uint32_t>(mix(k + i * 977 + rank) & 0x7fffff);
      }
      segment.begin(record, columns ? R"({"dims":"- [tp]"})" : R"({"dims":"[tp] -"})");
      segment.append(std::as_bytes(std::span(values)));
      segment.commit();
    }
    segment.close(true);
  }
}

void write_ranks(const std::filesystem::path& out, Mesh mesh, std::uint64_t layers,
                 std::uint64_t microbatches) {
  const std::uint64_t world = mesh.tp * mesh.pp * mesh.dp;
  for (std::uint64_t rank = 0; rank < world; ++rank) {
    const Place place{rank % mesh.tp, rank / (mesh.tp * mesh.dp), rank / mesh.tp % mesh.dp};
    const auto number = static_cast<std::int32_t>(rank);
    write_documents(out, number, world, mesh, place);
    RankWriter(out, number, mesh, place).write(layers, microbatches);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [argv](int at) { return std::strtoull(argv[at], nullptr, 10); };
  const std::string kind = argc > 2 ? argv[2] : "";
  if (kind == "ranks" && argc == 8) {
    write_ranks(argv[1], {number(3), number(4), number(5)}, number(6), number(7));
  } else if (kind == "large" && argc == 5) {
    write_large(argv[1], number(3), number(4));
  } else {
    std::fputs(
        "usage: merge_trace OUT ranks TP PP DP LAYERS MICROBATCHES\n"
        "       merge_trace OUT large TP MIB\n",
        stderr);
    return 2;
  }
  return 0;
}
