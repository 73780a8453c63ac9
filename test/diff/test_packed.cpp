// SPDX-License-Identifier: Apache-2.0
// A comparison of packed documents that context parallel ranks cut one by one. Which layout
// explains a rank's part is found by content; what is wrong with a part must stay a finding.
#include "diff/compare.hpp"
#include "test/catch.hpp"
#include "test/libttrace/documents_bench.hpp"
#include "tolerance/bound.hpp"

namespace ttrace::testing {
namespace {

const std::vector<Lengths> kPacked{{8, 16, 8}, {16, 4, 12}, {12, 20}};
constexpr std::size_t kBatches = 3;
constexpr int kLayers = 2;

std::string in_batch(std::size_t number, const std::string& rest) {
  return "it0/mb" + std::to_string(number) + "/forward/" + rest;
}

std::string layer(std::size_t number, int index) {
  return in_batch(number, "layers." + std::to_string(index) + "/output.0");
}

std::string input(std::size_t number, const std::string& slot) {
  return in_batch(number, "@root/input." + slot);
}

// What a rank holds instead of its part: of one tensor, or of all of a micro-batch ("").
struct Wrong {
  std::string key;
  std::size_t batch = 0;
  std::int32_t rank = -1;  // -1: all
  std::function<Tensor(const Tensor& logical, const Coordinates& where)> cutter;
};

Cutter by(const Lengths& lengths) { return documents_over(1, "cp", lengths); }

struct Model {
  bool offsets = true;
  bool positions = true;
  std::vector<Lengths> packed = kPacked;
  Cutter (*cutter)(const Lengths&) = by;
  std::map<std::string, Tensor> logical{};

  void fill() {
    for (std::size_t i = 0; i < kBatches; ++i) {
      Tensor tokens = random_tensor({1, 32}, 50 + static_cast<unsigned>(i));
      for (float& value : tokens.values) value = std::trunc(1000 * value);
      logical[input(i, "tokens")] = tokens;
      if (positions) logical[input(i, "positions")] = positions_of(packed[i]);
      if (offsets) logical[input(i, "offsets")] = offsets_of(packed[i]);
      for (int index = 0; index < kLayers; ++index) {
        const auto seed = static_cast<unsigned>(10 * i) + static_cast<unsigned>(index);
        logical[layer(i, index)] = random_tensor({1, 32, 24}, seed);
      }
    }
  }
};

Field field_of(const std::string& key) {
  const bool integer = key.find("@root") != std::string::npos;
  return {key_of(key), integer ? DType::int64 : DType::float32, RecordKind::full, "",
          integer ? kFlagRootInput : 0};
}

bool is_of(const std::string& key, const Wrong& wrong) {
  if (!wrong.key.empty()) return key == wrong.key;
  const bool cut = key.find("offsets") == std::string::npos;
  return cut && key.rfind(in_batch(wrong.batch, ""), 0) == 0;
}

Report compared(const std::vector<Wrong>& wrongs, Model model = {}) {
  model.fill();
  TraceBuilder reference("reference"), candidate("candidate");
  reference.place(0, {});
  candidate.mesh({{"cp", 2}});
  for (const auto& [key, tensor] : model.logical) {
    const auto batch = static_cast<std::size_t>(key_of(key).microbatch);
    reference.add(0, field_of(key), tensor);
    for (const auto& [rank, where] : candidate.places()) {
      const bool cut = key.find("offsets") == std::string::npos;
      Tensor part = cut ? model.cutter(model.packed[batch])(tensor, where) : tensor;
      for (const Wrong& wrong : wrongs) {
        const bool here = is_of(key, wrong) && (wrong.rank == -1 || wrong.rank == rank);
        if (here) part = wrong.cutter(tensor, where);
      }
      candidate.add(rank, field_of(key), part);
    }
  }
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt, Growth::root);
  };
  const Trace theirs = reference.write();
  const Trace ours = candidate.write();
  return compare(theirs, ours, *make_cpu_backend(), options);
}

std::vector<std::string> keys_of(const Report& report) {
  std::vector<std::string> keys;
  for (const OrderedFinding& entry : report.findings) keys.push_back(to_string(entry.finding.key));
  return keys;
}

using Keys = std::vector<std::string>;

// The halves of the second document change places.
Tensor swapped(const Tensor& tensor, const Coordinates& where, const Lengths& lengths) {
  const Indices right = both_ends(lengths, where.at("cp").coord, 2);
  Indices mine = right;
  const std::uint64_t first = lengths[0] / 2, half = lengths[1] / 4;
  for (std::uint64_t i = 0; i < half; ++i) std::swap(mine[first + i], mine[first + half + i]);
  return take(tensor, 1, mine);
}

}  // namespace

TEST_CASE("a healthy run is the same whichever input tells of the documents") {
  for (const auto& [offsets, positions] : {std::pair{true, true}, {true, false}, {false, true}}) {
    CAPTURE(offsets, positions);
    const Report report = compared({}, {offsets, positions});
    CHECK(keys_of(report).empty());
    CHECK(report.expected() == kBatches * (1 + offsets + positions + kLayers));
    CHECK(report.compared() == report.expected());
  }
}

TEST_CASE("contiguous parts of documents are the same, and uneven ones") {
  for (const std::vector<Lengths>& packed : {kPacked, {{7, 9, 16}, {5, 24, 3}, {1, 31}}}) {
    for (const auto& [offsets, positions] : {std::pair{true, true}, {true, false}, {false, true}}) {
      CAPTURE(packed, offsets, positions);
      const Report report = compared({}, {offsets, positions, packed, halves});
      CHECK(keys_of(report).empty());
      CHECK(report.compared() == report.expected());
    }
  }
}

TEST_CASE("nothing tells of the documents: their parts are no layout") {
  // Not even the tokens are those of a micro-batch.
  CHECK_THROWS_WITH(compared({}, {false, false}), Catch::Contains("no tensor in common"));
}

TEST_CASE("a tensor that is cut by another micro-batch's documents is found") {
  for (const std::int32_t rank : {-1, 0, 1}) {
    CAPTURE(rank);
    CHECK(keys_of(compared({{layer(1, 1), 1, rank, by(kPacked[0])}})) == Keys{layer(1, 1)});
  }
}

TEST_CASE("a micro-batch that is cut by another's documents is found in all of its tensors") {
  for (const bool offsets : {true, false}) {
    for (const std::int32_t rank : {-1, 0, 1}) {
      CAPTURE(offsets, rank);
      const Report report = compared({{"", 1, rank, by(kPacked[2])}}, {offsets, true});
      REQUIRE_FALSE(report.same());
      for (const OrderedFinding& entry : report.findings) {
        const bool own = entry.finding.key.microbatch == 1;
        CHECK((own || entry.finding.kind == FindingKind::different_data));
      }
    }
  }
}

TEST_CASE("offsets of another micro-batch are a finding") {
  for (const std::int32_t rank : {-1, 0, 1}) {
    CAPTURE(rank);
    const auto other = [](const Tensor&, const Coordinates&) { return offsets_of(kPacked[0]); };
    CHECK_FALSE(compared({{input(1, "offsets"), 1, rank, other}}).same());
    // And the rank cuts as they say.
    CHECK_FALSE(
        compared({{input(1, "offsets"), 1, rank, other}, {"", 1, rank, by(kPacked[0])}}).same());
  }
}

TEST_CASE("positions that do not begin again are a finding") {
  const auto through = [](const Tensor& tensor, const Coordinates& where) {
    Tensor positions = tensor;
    std::iota(positions.values.begin(), positions.values.end(), 0.0f);
    return by(kPacked[1])(positions, where);
  };
  for (const bool offsets : {true, false}) {
    for (const std::int32_t rank : {-1, 0, 1}) {
      CAPTURE(offsets, rank);
      const Report report = compared({{input(1, "positions"), 1, rank, through}}, {offsets, true});
      CHECK(keys_of(report) == Keys{input(1, "positions")});
    }
  }
}

TEST_CASE("the halves of one document in the wrong order are a finding") {
  const auto cutter = [](const Tensor& tensor, const Coordinates& where) {
    return swapped(tensor, where, kPacked[1]);
  };
  for (const std::int32_t rank : {-1, 0, 1}) {
    CAPTURE(rank);
    CHECK(keys_of(compared({{layer(1, 0), 1, rank, cutter}})) == Keys{layer(1, 0)});
    CHECK_FALSE(compared({{"", 1, rank, cutter}}).same());
  }
}

TEST_CASE("a layer that is wrong in all micro-batches is found in all") {
  std::vector<Wrong> wrongs;
  for (std::size_t i = 0; i < kBatches; ++i) {
    wrongs.push_back({layer(i, 1), i, -1, [i](const Tensor& tensor, const Coordinates& where) {
                        return swapped(tensor, where, kPacked[i]);
                      }});
  }
  CHECK(keys_of(compared(wrongs)) == Keys{layer(0, 1), layer(1, 1), layer(2, 1)});
}

}  // namespace ttrace::testing
