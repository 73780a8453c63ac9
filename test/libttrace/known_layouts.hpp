// SPDX-License-Identifier: Apache-2.0
// The layouts that frameworks use, one row each: how the layout is declared, and a second time, in
// plain index lists, which elements each rank holds.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "test/libttrace/inference_bench.hpp"

namespace ttrace::testing {

struct KnownTensor {
  std::string key;
  Shape shape;       // logical
  std::string dims;  // as declared
  Cutter cutter;
  // Elements [first, second) of the shard, flattened; none: the shard itself.
  std::function<std::pair<std::uint64_t, std::uint64_t>(std::uint64_t, const Coordinates&)> flat;
  std::uint64_t padding = 0;    // of the rows, the last ones, which are zeros
  std::vector<float> values{};  // where these must not be random
};

struct KnownLayout {
  std::string name;
  std::vector<std::pair<std::string, std::uint64_t>> mesh;
  std::vector<KnownTensor> tensors;
  std::string deals;  // axis whose ranks have micro-batches of their own
};

inline Cutter zigzag_over(std::size_t dim, const std::string& axis) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    return zigzag(tensor, dim, where.at(axis).coord, where.at(axis).size);
  };
}

inline Cutter then(Cutter outer, Cutter inner) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    return inner(outer(tensor, where), where);
  };
}

// Each section of `dim` is cut in equal parts, which stand one after the other.
inline Cutter sections_over(std::size_t dim, const std::string& axis,
                            const std::vector<std::uint64_t>& sections) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    Indices mine;
    std::uint64_t begin = 0;
    for (const std::uint64_t section : sections) {
      const std::uint64_t each = section / where.at(axis).size;
      const std::uint64_t first = begin + each * where.at(axis).coord;
      mine = joined(mine, range(first, first + each));
      begin += section;
    }
    return take(tensor, dim, mine);
  };
}

// Each document in 2n equal chunks, of which a rank has one from each end.
inline Indices both_ends(const std::vector<std::uint64_t>& documents, std::uint64_t rank,
                         std::uint64_t ranks) {
  Indices mine;
  std::uint64_t begin = 0;
  for (const std::uint64_t length : documents) {
    const std::uint64_t each = length / (2 * ranks);
    const std::uint64_t mirror = begin + length - (rank + 1) * each;
    mine = joined(mine, range(begin + rank * each, begin + (rank + 1) * each));
    mine = joined(mine, range(mirror, mirror + each));
    begin += length;
  }
  return mine;
}

inline Cutter documents_over(std::size_t dim, const std::string& axis,
                             const std::vector<std::uint64_t>& documents) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    const auto& [coord, size] = where.at(axis);
    return take(tensor, dim, both_ends(documents, coord, size));
  };
}

// Of dimension 1, over cp: the first half of each document, or the second, which may be shorter.
inline Cutter halves(const std::vector<std::uint64_t>& lengths) {
  return [lengths](const Tensor& tensor, const Coordinates& where) {
    Indices mine;
    std::uint64_t begin = 0;
    for (const std::uint64_t length : lengths) {
      const std::uint64_t middle = begin + (length + 1) / 2;
      const bool first = where.at("cp").coord == 0;
      mine = joined(mine, first ? range(begin, middle) : range(middle, begin + length));
      begin += length;
    }
    return take(tensor, 1, mine);
  };
}

// Parts of the sizes that torch.chunk gives, written out.
inline Cutter parts_of(std::size_t dim, const std::string& axis,
                       const std::vector<std::uint64_t>& edges) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    const std::uint64_t coord = where.at(axis).coord;
    return take(tensor, dim, range(edges.at(coord), edges.at(coord + 1)));
  };
}

// Groups of `together` neighbours hold the same part.
inline Cutter shared_by(std::size_t dim, const std::string& axis, std::uint64_t together) {
  return [=](const Tensor& tensor, const Coordinates& where) {
    return part(tensor, dim, where.at(axis).coord / together, where.at(axis).size / together);
  };
}

namespace known {

constexpr const char* kWeight = "it0/param/layer.weight/value";
constexpr const char* kSecond = "it0/param/other.weight/value";
constexpr const char* kOutput = "it0/mb0/forward/layer/output.0";
constexpr const char* kTokens = "it0/mb0/forward/@root/input.tokens";

// What each run has beside its own: tokens, a weight that all hold, and the loss.
inline KnownLayout row(std::string name, std::vector<std::pair<std::string, std::uint64_t>> mesh,
                       std::vector<KnownTensor> tensors) {
  const auto has_tokens = std::any_of(tensors.begin(), tensors.end(),
                                      [](const KnownTensor& own) { return own.key == kTokens; });
  if (!has_tokens) tensors.push_back({kTokens, {2, 16}, "- -", whole, {}, 0});
  tensors.push_back({"it0/param/norm.weight/value", {24}, "-", whole, {}, 0});
  tensors.push_back({"it0/mb0/forward/@root/output.0", {}, "", whole, {}, 0});
  return {std::move(name), std::move(mesh), std::move(tensors), ""};
}

inline std::vector<KnownLayout> tensor_parallel() {
  return {
      row("TP column and row", {{"tp", 4}},
          {{kWeight, {32, 24}, "h[tp] d", cut(0, "tp"), {}, 0},
           {kSecond, {24, 32}, "d h[tp]", cut(1, "tp"), {}, 0},
           {kOutput, {16, 2, 32}, "s b h[tp]", cut(2, "tp"), {}, 0}}),
      row("padded vocabulary", {{"tp", 4}},
          {{kWeight, {48, 24}, "v[tp] h", cut(0, "tp"), {}, 3},
           {kOutput, {16, 2, 48}, "s b v[tp]", cut(2, "tp"), {}, 0}}),
      row("fused QKV in groups, kv heads = TP", {{"tp", 4}},  // 4 groups of 2 q, k and v heads
          {{kWeight, {64, 24}, "g[tp] h", cut(0, "tp"), {}, 0},
           {kOutput, {16, 2, 64}, "s b g[tp]", cut(2, "tp"), {}, 0}}),
      row("fused QKV in groups, kv heads > TP", {{"tp", 2}},
          {{kWeight, {64, 24}, "g[tp] h", cut(0, "tp"), {}, 0},
           {kOutput, {16, 2, 64}, "s b g[tp]", cut(2, "tp"), {}, 0}}),
      row("separate q and k, kv heads < TP", {{"tp", 4}},
          {{kWeight, {32, 24}, "q[tp] h", cut(0, "tp"), {}, 0},
           {kSecond, {16, 24}, "k[tp/outer2] h", shared_by(0, "tp", 2), {}, 0},
           {kOutput, {16, 2, 16}, "s b k[tp/outer2]", shared_by(2, "tp", 2), {}, 0}}),
      row("fused QKV in sections", {{"tp", 2}},
          {{kWeight, {32, 24}, "qkv[tp:(16,8,8)] h", sections_over(0, "tp", {16, 8, 8}), {}, 0},
           {kOutput,
            {16, 2, 32},
            "s b qkv[tp:(16,8,8)]",
            sections_over(2, "tp", {16, 8, 8}),
            {},
            0}}),
      row("gated MLP", {{"tp", 4}},
          {{kWeight, {32, 24}, "gate_up[tp:/2] h", sections_over(0, "tp", {16, 16}), {}, 0},
           {kOutput, {16, 2, 32}, "s b gate_up[tp:/2]", sections_over(2, "tp", {16, 16}), {}, 0}}),
      row("sequence parallel", {{"tp", 4}},
          {{kWeight, {24, 32}, "d h[tp]", cut(1, "tp"), {}, 0},
           {kOutput, {32, 2, 24}, "s[tp] b h", cut(0, "tp"), {}, 0}}),
  };
}

inline std::vector<KnownLayout> sequences_and_batches() {
  KnownLayout dealt =
      row("micro-batches over DP", {{"dp", 2}, {"tp", 2}},
          {{kWeight, {32, 24}, "h[tp] d", cut(0, "tp"), {}, 0},
           {kOutput, {16, 2, 32}, "s b h[tp]", cut(2, "tp"), {}, 0},
           {"it0/mb1/forward/@root/input.tokens", {2, 16}, "- -", whole, {}, 0},
           {"it0/mb1/forward/layer/output.0", {16, 2, 32}, "s b h[tp]", cut(2, "tp"), {}, 0},
           {kTokens, {2, 16}, "- -", whole, {}, 0}});
  dealt.deals = "dp";
  // Two micro-batches of other documents, and where these begin and end.
  constexpr const char* kOffsets = "it0/mb0/forward/@root/input.offsets";
  constexpr const char* kTokens1 = "it0/mb1/forward/@root/input.tokens";
  constexpr const char* kOffsets1 = "it0/mb1/forward/@root/input.offsets";
  constexpr const char* kOutput1 = "it0/mb1/forward/layer/output.0";
  const Cutter first = documents_over(1, "cp", {8, 16, 8});
  const Cutter second = documents_over(1, "cp", {16, 4, 12});
  const KnownLayout packed =
      row("CP zigzag of packed documents", {{"cp", 2}, {"tp", 2}},
          {{kWeight, {32, 24}, "h[tp] d", cut(0, "tp"), {}, 0},
           {kTokens, {1, 32}, "b t[cp:zigzag(8,16,8)]", first, {}, 0},
           {kOffsets, {4}, "-", whole, {}, 0, {0, 8, 24, 32}},
           {kOutput, {1, 32, 32}, "b t[cp:zigzag(8,16,8)] h[tp]", then(first, cut(2, "tp")), {}, 0},
           {kTokens1, {1, 32}, "b t[cp:zigzag(@input.offsets)]", second, {}, 0},
           {kOffsets1, {4}, "-", whole, {}, 0, {0, 16, 20, 32}},
           {kOutput1,
            {1, 32, 32},
            "b t[cp:zigzag(@input.offsets)] h[tp]",
            then(second, cut(2, "tp")),
            {},
            0}});
  return {
      row("CP contiguous", {{"cp", 2}, {"tp", 2}},
          {{kWeight, {32, 24}, "h[tp] d", cut(0, "tp"), {}, 0},
           {kTokens, {2, 16}, "b s[cp]", cut(1, "cp"), {}, 0},
           {kOutput, {16, 2, 32}, "s[cp] b h[tp]", then(cut(0, "cp"), cut(2, "tp")), {}, 0}}),
      row("CP zigzag with SP inside", {{"cp", 2}, {"tp", 2}},
          {{kWeight, {32, 24}, "h[tp] d", cut(0, "tp"), {}, 0},
           {kTokens, {2, 16}, "b s[cp:zigzag]", zigzag_over(1, "cp"), {}, 0},
           {kOutput,
            {16, 2, 32},
            "s[cp:zigzag,tp] b h",
            then(zigzag_over(0, "cp"), cut(0, "tp")),
            {},
            0}}),
      row("batch over DP", {{"dp", 4}},
          {{kWeight, {32, 24}, "- -", whole, {}, 0},
           {kTokens, {8, 16}, "b[dp] s", cut(0, "dp"), {}, 0},
           {kOutput, {8, 16, 24}, "b[dp] s h", cut(0, "dp"), {}, 0}}),
      dealt,
      packed,
      row("DDP", {{"dp", 4}},
          {{kWeight, {32, 24}, "- -", whole, {}, 0},
           {kOutput, {16, 2, 24}, "- - -", whole, {}, 0}}),
  };
}

// ZeRO-1: each data parallel rank keeps its part of the flattened shard, whatever row it begins in.
inline std::pair<std::uint64_t, std::uint64_t> flat_part(std::uint64_t elements,
                                                         const Coordinates& where) {
  const std::uint64_t middle = elements / 2 - 5;
  return where.at("dp").coord == 0 ? std::pair<std::uint64_t, std::uint64_t>{0, middle}
                                   : std::pair{middle, elements};
}

inline std::vector<KnownLayout> sharded_states() {
  // Outer to inner in the order of the mesh, dp first: the tp cut is the two sections around it.
  const Cutter strided = then(cut(0, "tp"), cut(0, "dp"));
  return {
      row("FSDP2 over TP, strided shards", {{"dp", 2}, {"tp", 2}},
          {{kWeight, {32, 24}, "h[dp:/2,tp] d", strided, {}, 0},
           {kOutput, {16, 2, 32}, "s b h[tp]", cut(2, "tp"), {}, 0}}),
      row("FSDP, uneven and empty shards", {{"dp", 4}},
          {{kWeight, {10, 24}, "h[dp] d", parts_of(0, "dp", {0, 3, 6, 9, 10}), {}, 0},
           {kSecond, {5, 24}, "h[dp] d", parts_of(0, "dp", {0, 2, 4, 5, 5}), {}, 0},
           {kOutput, {16, 2, 24}, "- - -", whole, {}, 0}}),
      row("HSDP", {{"replicate", 2}, {"shard", 2}},
          {{kWeight, {32, 24}, "h[shard] d", cut(0, "shard"), {}, 0},
           {kOutput, {16, 2, 24}, "- - -", whole, {}, 0}}),
      row("DTensor in two dimensions", {{"dp", 2}, {"tp", 3}},
          {{kWeight, {32, 24}, "[dp] [tp]", then(cut(0, "dp"), cut(1, "tp")), {}, 0},
           {kOutput, {16, 2, 24}, "- - [tp]", cut(2, "tp"), {}, 0}}),
      row("ZeRO-1 flat ranges", {{"dp", 2}, {"tp", 2}},
          {{kWeight, {32, 24}, "h[tp] d", cut(0, "tp"), {}, 0},
           {"it0/step/layer.weight/exp_avg", {32, 24}, "h[tp] d", cut(0, "tp"), flat_part, 0},
           {kOutput, {16, 2, 32}, "s b h[tp]", cut(2, "tp"), {}, 0}}),
  };
}

}  // namespace known

inline std::vector<KnownLayout> known_layouts() {
  std::vector<KnownLayout> all = known::tensor_parallel();
  for (auto rows : {known::sequences_and_batches(), known::sharded_states()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace ttrace::testing
