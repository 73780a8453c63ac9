// SPDX-License-Identifier: Apache-2.0
// embedding, then blocks x + fc2(relu(fc1(norm(x)))), final norm, output, cross entropy.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "samples/cpp/layers.hpp"
#include "samples/cpp/parallel.hpp"

inline constexpr std::size_t kVocabulary = 64;
inline constexpr std::size_t kWidth = 32;
inline constexpr std::size_t kHidden = 64;

// Silent bugs to train with; expected.json says where a comparison must first see each.
enum class Bug {
  none,
  // layers.1.norm is not marked as sequence parallel: its gradients are not summed over tp.
  norm_grad_sync,
  // The last row of each rank's part of the vocabulary is taken for another rank's.
  embedding_mask,
  // The block layers.1 is left out.
  layers_lost,
  // Gradients are summed over dp and divided by the local number of micro-batches only.
  grad_factor,
};

struct Block {
  std::string name;
  LayerNorm norm;
  ColumnLinear fc1;
  RowLinear fc2;
  Tensor before_relu;
};

class Model {
 public:
  Model(int layers, const Group& tp, Bug bug);
  // The mean loss of the micro-batch's tokens.
  float forward(int microbatch, std::span<const std::int64_t> tokens,
                std::span<const std::int64_t> targets);
  // Of the latest forward; adds to the parameters' gradients.
  void backward(int microbatch);

  [[nodiscard]] std::vector<Parameter*> parameters();
  [[nodiscard]] std::vector<ModuleName> modules() const;  // in the order of forward

 private:
  float cross_entropy(const Tensor& logits, std::span<const std::int64_t> targets);

  Group tp_;
  Embedding embedding_;
  std::deque<Block> blocks_;
  LayerNorm final_norm_;
  ColumnLinear output_;
  Tensor logits_gradient_;
};
