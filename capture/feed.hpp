// SPDX-License-Identifier: Apache-2.0
// The pack of a replay, as a traced process sees it: what the other run computed at a place, cut to
// this rank's part, in the type that the program holds it in. The pack's index is read once; the
// tensors are mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "libttrace/core/key.hpp"
#include "libttrace/core/record.hpp"
#include "libttrace/layout.hpp"
#include "libttrace/pack.hpp"

namespace ttrace {

class Feed {
 public:
  // Throws Trouble when the file is no pack for a replay.
  Feed(const std::string& pack, std::int32_t rank);

  // Members that go to rank.json, the mesh axes among them.
  void learn(std::string_view json);

  // What is in the pack for a tensor that the running program has at `key`; nullptr: nothing.
  [[nodiscard]] const PackEntry* find(const Key& key) const;
  [[nodiscard]] bool has_iteration(std::int64_t iteration) const;
  // Whether this iteration's optimizer states can be those of the other run.
  [[nodiscard]] bool knows_state(std::int64_t iteration) const;
  // What a layout draws for itself is nothing to compare, nor what became of it unseen: parameters
  // are then recorded as they are fed.
  [[nodiscard]] bool replaces_parameters(std::int64_t iteration) const;

  // Writes this rank's part of the tensor as packed elements of `dtype`. `declared` is the layout
  // as the program tells it, "" for none: only it knows the piece of a flattened shard. Returns why
  // that cannot be, or "".
  [[nodiscard]] std::string write(const PackEntry& entry, DType dtype, const Shape& shape,
                                  std::string_view declared, std::byte* out) const;

 private:
  [[nodiscard]] std::optional<Key> key_in_pack(const Key& key) const;
  // How this rank's tensor is cut out of the whole one; nullopt: not at all.
  [[nodiscard]] std::optional<Layout> layout_of(const PackEntry& entry,
                                                std::string_view declared) const;

  PackReader pack_;
  std::set<std::int64_t> iterations_;
  // This rank's own numbers, by iteration, to those of the pack.
  std::map<std::pair<std::int64_t, std::int32_t>, std::int32_t> microbatches_;
  std::map<std::string, Layout> layouts_;  // by name in the pack; empty in a run of one rank
  Coordinates where_;
};

}  // namespace ttrace
