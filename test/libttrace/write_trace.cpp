// SPDX-License-Identifier: Apache-2.0
// Writes a small real trace whose logical tensors are known by formula, for tests that run
// programs:
//   write_trace OUT TP DP [ROWS] [undeclared] [shifted=RANK] [rowless]
// tp cuts, dp deals out two micro-batches. Element k of tensor number t, in row-major order, is
//   (k + 1000003 t) * 2654435761 mod 2^32 / 2^32 - 1/2
// exactly, as float32. ROWS: of layer.weight (8). undeclared: no layouts. shifted: this rank's copy
// of norm.weight is off in one element. rowless: layer.weight is kept without bytes.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "libttrace/segment.hpp"
#include "libttrace/trace.hpp"
#include "libttrace/trace_files.hpp"

using namespace ttrace;

namespace {

struct Options {
  std::filesystem::path out;
  std::uint64_t tp = 1;
  std::uint64_t dp = 1;
  std::uint64_t rows = 8;
  bool declared = true;
  std::int32_t shifted = -1;
  bool rowless = false;
};

struct Rank {
  std::uint64_t tp = 0;
  std::uint64_t dp = 0;
  std::int32_t number = 0;
};

float known(std::uint64_t tensor, std::uint64_t k) {
  const std::uint64_t mixed = (k + 1000003 * tensor) * 2654435761u % (std::uint64_t{1} << 32);
  return static_cast<float>(static_cast<double>(mixed) / 4294967296.0 - 0.5);
}

std::vector<float> known_block(std::uint64_t tensor, std::uint64_t width, std::uint64_t row,
                               std::uint64_t rows, std::uint64_t column, std::uint64_t columns) {
  std::vector<float> values;
  for (std::uint64_t i = row; i < row + rows; ++i) {
    for (std::uint64_t j = column; j < column + columns; ++j) {
      values.push_back(known(tensor, i * width + j));
    }
  }
  return values;
}

class RankWriter {
 public:
  RankWriter(const Options& options, Rank rank)
      : options_(options),
        rank_(rank),
        segment_(segment_path(options.out, rank.number, 0), {"known", rank.number, 0, true}) {}

  void write() {
    weights();
    for (std::uint64_t microbatch = rank_.dp; microbatch < 2; microbatch += options_.dp) {
      activations(microbatch);
    }
    state();
    segment_.close(true);
  }

 private:
  void weights() {
    const std::uint64_t rows = options_.rows / options_.tp;
    std::vector<float> weight = known_block(1, 6, rank_.tp * rows, rows, 0, 6);
    record({0, -1, Phase::param, "layer.weight", 0, "value"}, {rows, 6}, weight, "h[tp] d",
           options_.rowless ? RecordKind::hash : RecordKind::full);
    // Two sections of four rows, each cut over tp.
    const std::uint64_t part = 4 / options_.tp;
    std::vector<float> gated = known_block(2, 4, rank_.tp * part, part, 0, 4);
    const std::vector<float> second = known_block(2, 4, 4 + rank_.tp * part, part, 0, 4);
    gated.insert(gated.end(), second.begin(), second.end());
    record({0, -1, Phase::param, "gate.weight", 0, "value"}, {2 * part, 4}, gated, "h[tp:/2] d");
    std::vector<float> norm = known_block(3, 6, 0, 1, 0, 6);
    if (rank_.number == options_.shifted) norm[0] += 0.25f;
    record({0, -1, Phase::param, "norm.weight", 0, "value"}, {6}, norm, "-");
  }

  void activations(std::uint64_t microbatch) {
    const auto own = static_cast<std::int32_t>(microbatch / options_.dp);
    const std::uint64_t columns = 8 / options_.tp;
    const std::vector<std::int64_t> tokens{static_cast<std::int64_t>(microbatch), 7, 8};
    record({0, own, Phase::forward, "@root", 0, "input.tokens"}, {3}, tokens, "-", RecordKind::full,
           kFlagRootInput);
    const std::uint64_t output =
        record({0, own, Phase::forward, "layer", 0, "output.0"}, {4, columns},
               known_block(10 + microbatch, 8, 0, 4, rank_.tp * columns, columns), "s h[tp]");
    alias({0, own, Phase::forward, "norm", 0, "input.0"}, {4, columns}, output, "s h[tp]");
    record({0, own, Phase::forward, "@root", 0, "output.0"}, {},
           known_block(20 + microbatch, 1, 0, 1, 0, 1), "");
  }

  // Adam's state of layer.weight as the flat ranges that dp shares.
  void state() {
    const std::uint64_t rows = options_.rows / options_.tp;
    const std::uint64_t elements = rows * 6;
    const std::uint64_t split = options_.dp == 1 ? 0 : elements / 2 - 1;
    const std::uint64_t start = rank_.dp == 0 ? 0 : split;
    const std::uint64_t count = options_.dp == 1 ? elements
                                : rank_.dp == 0  ? split
                                                 : elements - split;
    const std::vector<float> shard = known_block(4, 6, rank_.tp * rows, rows, 0, 6);
    const auto first = shard.begin() + static_cast<std::ptrdiff_t>(start);
    Layout layout = parse_dims("[tp] -");
    layout.flat = FlatRange{{rows, 6}, start, count};
    add({0, -1, Phase::step, "layer.weight", 0, "exp_avg"}, {count},
        std::vector<float>(first, first + static_cast<std::ptrdiff_t>(count)),
        layout_to_json(layout));
  }

  template <class Element>
  std::uint64_t record(const Key& key, const Shape& shape, const std::vector<Element>& values,
                       const std::string& dims, RecordKind kind = RecordKind::full,
                       std::uint32_t flags = 0) {
    Layout layout = parse_dims(dims);
    layout.source = "known";
    return add(key, shape, values, options_.declared ? layout_to_json(layout) : "", kind, flags);
  }

  template <class Element>
  std::uint64_t add(const Key& key, const Shape& shape, const std::vector<Element>& values,
                    const std::string& layout, RecordKind kind = RecordKind::full,
                    std::uint32_t flags = 0) {
    Record record;
    record.key = key;
    record.dtype = sizeof(Element) == 8 ? DType::int64 : DType::float32;
    record.kind = kind;
    record.shape = shape;
    record.flags = flags;
    record.bytes = values.size() * sizeof(Element);
    const std::uint64_t sequence = segment_.begin(record, layout);
    segment_.append(std::as_bytes(std::span(values)));
    segment_.commit();
    return sequence;
  }

  void alias(const Key& key, const Shape& shape, std::uint64_t target, const std::string& dims) {
    Record record;
    record.key = key;
    record.shape = shape;
    record.bytes = element_count(shape) * sizeof(float);
    record.alias_of = static_cast<std::int64_t>(target);
    segment_.begin(record, options_.declared ? layout_to_json(parse_dims(dims)) : "");
    segment_.commit();
  }

  const Options& options_;
  Rank rank_;
  SegmentWriter segment_;
};

void write_rank_json(const Options& options, const Rank& rank) {
  std::ofstream(options.out / rank_directory_name(rank.number) / "rank.json")
      << R"({"format":"ttrace-rank","version":1,"run_id":"known","rank":)" << rank.number
      << R"(,"world_size":)" << options.tp * options.dp << R"(,"axes":[{"name":"dp","size":)"
      << options.dp << R"(,"coord":)" << rank.dp << R"(},{"name":"tp","size":)" << options.tp
      << R"(,"coord":)" << rank.tp
      << R"(}],"modules":{"layer":{"class":"Linear","forward":"model.py:1","calls":1,)"
      << R"("returned_tensor":true},"layer.only)" << rank.number
      << R"(":{"class":"Box","calls":0}},"parameters":{"layer.weight":{"shape":[)"
      << options.rows / options.tp << R"(,6],"dtype":"float32","trainable":true}}})";
}

Options parse(int argc, char** argv) {
  Options options;
  options.out = argv[1];
  options.tp = std::stoull(argv[2]);
  options.dp = std::stoull(argv[3]);
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "undeclared") {
      options.declared = false;
    } else if (word == "rowless") {
      options.rowless = true;
    } else if (word.rfind("shifted=", 0) == 0) {
      options.shifted = std::stoi(word.substr(8));
    } else {
      options.rows = std::stoull(word);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: write_trace OUT TP DP [ROWS] [undeclared] [shifted=RANK] [rowless]\n",
               stderr);
    return 2;
  }
  const Options options = parse(argc, argv);
  for (std::uint64_t number = 0; number < options.tp * options.dp; ++number) {
    const Rank rank{number % options.tp, number / options.tp, static_cast<std::int32_t>(number)};
    std::filesystem::create_directories(options.out / rank_directory_name(rank.number));
    write_rank_json(options, rank);
    RankWriter(options, rank).write();
  }
  std::ofstream(options.out / "trace.json")
      << R"({"format":"ttrace-trace","version":1,"run_id":"known","command":["known"]})";
  return 0;
}
