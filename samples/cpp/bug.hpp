// SPDX-License-Identifier: Apache-2.0
// Silent bugs to train with; expected.json, here and in samples/nccl, says where a comparison must
// first see each.
#pragma once

#include <cstdint>
#include <string>

enum class Bug : std::uint8_t {
  none,
  // layers.1.norm is not marked as sequence parallel: its gradients are not summed over tp.
  norm_grad_sync,
  // The last row of each rank's part of the vocabulary is taken for another rank's.
  embedding_mask,
  // The block layers.1 is left out.
  layers_lost,
  // Gradients are summed over dp and divided by the local number of micro-batches only.
  grad_factor,
  // The gradient of a stage's first parameter, the last that backward makes, is not summed over dp.
  missing_all_reduce,
  // The gradient of layers.1.norm.weight is summed over dp twice.
  doubled_reduction,
  // What layers.1.fc2 makes is summed over dp in place of tp.
  wrong_activation_group,
  // ---- of samples/nccl alone ----
  // The colour of the dp communicators is that of the tp communicators.
  wrong_group,
  // The communicators of reduce-scatters number their members from the end.
  swapped_slices,
  // Two buffers take turns in sending to the next stage; the first is sent every time.
  stale_buffer,
  // layers.1.fc1 reads the tokens that it gathers without waiting for the other stream's event.
  missing_wait,
};

// Throws std::invalid_argument on a name that is none of this trainer's.
Bug bug_of(const std::string& name, bool nccl);
// All of this trainer's.
std::string bug_names(bool nccl);
