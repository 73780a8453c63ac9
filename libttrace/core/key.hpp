// SPDX-License-Identifier: Apache-2.0
// A key says what a tensor is, independent of the layout it was computed in:
//   it<I>[/mb<M>]/<phase>/<module>[#<call>]/<slot>
// e.g. it0/mb1/forward/decoder.layers.3.mlp.linear_fc1/output.0. The root module is "@root".
// The micro-batch appears only where a tensor belongs to one: forward, recompute, backward, and
// the local gradient. In param, grad and step the module is the full name of the parameter.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

// In the order in which a training step passes through them; the order of findings starts here.
// The numbers are part of the file format and of the C ABI; append only.
enum class Phase : std::uint8_t {
  param = 0,      // parameters before the step
  forward = 1,    // module outputs, root inputs, glue
  recompute = 2,  // the second forward pass of activation checkpointing
  backward = 3,   // gradients of outputs
  grad = 4,       // gradients of parameters: local, reduced, clipped
  step = 5,       // parameters, masters and optimizer state after the step
  comm = 6,       // collectives
};
inline constexpr std::uint8_t kPhaseCount = 7;

[[nodiscard]] std::string_view name_of(Phase phase);
[[nodiscard]] std::optional<Phase> phase_from_name(std::string_view name);

inline constexpr std::string_view kRootModule = "@root";

struct Key {
  std::int64_t iteration = 0;
  std::int32_t microbatch = -1;  // -1: the tensor belongs to no single micro-batch
  Phase phase = Phase::forward;
  std::string module;
  std::uint32_t call = 0;  // n-th call of the module within the micro-batch, from 0
  std::string slot;        // "output.0", "input.tokens", "value", "reduced", ...

  friend bool operator==(const Key&, const Key&) = default;
};

// Iteration, phase, micro-batch, then names with numbers compared as numbers (layers.2 <
// layers.10).
[[nodiscard]] std::strong_ordering operator<=>(const Key& left, const Key& right);

[[nodiscard]] std::string to_string(const Key& key);
// The dataset of a record below /data: the key without its iteration.
[[nodiscard]] std::string hdf5_path(const Key& key);
// nullopt when `text` does not follow the grammar.
[[nodiscard]] std::optional<Key> parse_key(std::string_view text);

// Names compare piecewise, runs of digits by value.
[[nodiscard]] std::strong_ordering compare_names(std::string_view left, std::string_view right);

}  // namespace ttrace
