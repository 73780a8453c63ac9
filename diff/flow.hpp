// SPDX-License-Identifier: Apache-2.0
// How data flows through a training step, read off the reference's trace: the order in which
// outputs came into being, which tensor went into which module (alias rows), and how deep in the
// model a tensor lies. No names are known in advance; a block is what a name numbers
// ("decoder.layers.3").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

// In the order in which a step passes through them.
enum class Stage : std::uint8_t {
  data,
  parameters,
  forward,
  loss,
  backward,
  reduction,
  clip,
  step
};

// Where a tensor stands in the step; places compare lexicographically.
struct Place {
  Stage stage = Stage::data;
  std::uint64_t index = 0;   // execution order; reversed in backward and after it
  std::uint64_t within = 0;  // tensors that share an index: children before their parents
  std::int32_t microbatch = -1;
  friend auto operator<=>(const Place&, const Place&) = default;
};

// ---- names ----

[[nodiscard]] bool is_input(const Key& key);
// "output.0" of "grad_output.0"; other slots as they are.
[[nodiscard]] std::string output_slot(std::string_view slot);
// "a.b" of "a.b.c"; the root module of "a".
[[nodiscard]] std::string parent_of(std::string_view module);
// Whether `module` is `ancestor` or lies in it; everything lies in the root module.
[[nodiscard]] bool lies_in(std::string_view module, std::string_view ancestor);
// "decoder.layers.3" of "decoder.layers.3.mlp.linear_fc1"; "" when no component is a number.
[[nodiscard]] std::string block_of(std::string_view module);
// The module that a key belongs to: for parameters, the one that holds them.
[[nodiscard]] std::string module_of(const Key& key);

// The same storage as which other tensor, on all of these shards; nullopt when they do not agree.
[[nodiscard]] std::optional<Key> alias_target(const Key& key, const std::vector<Shard>& shards);

class Flow {
 public:
  explicit Flow(const ShardGroups& reference);

  [[nodiscard]] Place place(const Key& key) const;
  // 1 + blocks that had finished before: 1 for an embedding, blocks() + 1 for a head.
  [[nodiscard]] std::uint64_t depth(const Key& key) const;
  [[nodiscard]] std::uint64_t blocks() const { return block_ends_.size(); }

  // The tensors that the module of this forward tensor was called with, aliases resolved.
  [[nodiscard]] const std::vector<Key>& inputs_of(const Key& output) const;
  // The calls (keys without a slot) that took this forward tensor as an input.
  [[nodiscard]] const std::vector<Key>& consumers_of(const Key& output) const;
  // The modules that took what this module returned, under whatever name, the outermost of each;
  // none where no input was recorded as being it.
  [[nodiscard]] std::vector<std::string> takers_of(const Key& output) const;
  // The module that goes on in the forward pass once this output is there, the outermost of those
  // that this one does not lie in; one around this one where that returns next. "" at the end.
  [[nodiscard]] std::string next_after(const Key& output) const;

 private:
  // A forward tensor without iteration and micro-batch.
  struct Name {
    std::string module;
    std::uint32_t call = 0;
    std::string slot;
    friend auto operator<=>(const Name&, const Name&) = default;
  };
  using Sequence = std::vector<Name>;

  static std::map<std::int32_t, Sequence> sequences_of(const ShardGroups& reference);
  void order_names(const std::map<std::int32_t, Sequence>& sequences);
  void find_blocks();
  void link(const ShardGroups& reference);
  [[nodiscard]] std::optional<std::uint64_t> index_of(const Key& forward) const;
  [[nodiscard]] std::uint64_t start_of(const std::string& module) const;
  [[nodiscard]] Place backward_place(const Key& key) const;
  [[nodiscard]] Place step_place(const Key& key) const;

  std::map<Name, std::uint64_t> index_;          // forward tensors by execution order
  std::map<std::string, std::uint64_t> starts_;  // modules: index of the first tensor in them
  std::vector<Name> names_;                      // by index
  std::map<Name, std::uint64_t> storage_ends_;   // outputs: index of the last with this storage
  std::map<Name, Name> firsts_;                  // outputs: the first name of their storage
  std::vector<std::uint64_t> block_ends_;        // ascending: index of each block's last output
  std::map<Key, std::vector<Key>> inputs_;       // of a call (a key without a slot)
  std::map<Key, std::vector<Key>> consumers_;
};

}  // namespace ttrace
