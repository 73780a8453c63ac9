// SPDX-License-Identifier: Apache-2.0
// embedding, then blocks x + fc2(relu(fc1(norm(x)))), final norm, output, cross entropy; of them
// what this rank's pipeline stage has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "samples/cpp/bug.hpp"
#include "samples/cpp/layers.hpp"
#include "samples/cpp/parallel.hpp"

inline constexpr std::size_t kVocabulary = 64;
inline constexpr std::size_t kWidth = 32;
inline constexpr std::size_t kHidden = 64;

struct Sample {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;
};

struct Block {
  std::string name;
  LayerNorm norm;
  ColumnLinear fc1;
  RowLinear fc2;
  std::deque<Tensor> before_relu;
};

class Model {
 public:
  // `layers` of all stages, which each have an equal number of them.
  Model(int layers, const Mesh& mesh, Bug bug);
  // `x` is what the stage before has made, and becomes what the one after needs. Returns the mean
  // loss of the micro-batch's tokens, 0 on all stages but the last.
  float forward(const Sample& sample, Tensor& x);
  // Of the oldest forward that has had none; adds to the parameters' gradients. `gradient` is that
  // of what the stage after was given, and becomes that of what the stage before has made.
  void backward(Tensor& gradient);

  [[nodiscard]] std::vector<Parameter*> parameters();     // in the order of forward
  [[nodiscard]] std::vector<ModuleName> modules() const;  // likewise
  [[nodiscard]] std::string first_block() const { return blocks_.front().name; }
  [[nodiscard]] std::string last_block() const { return blocks_.back().name; }

 private:
  void add_block(int layer, const Mesh& mesh, Bug bug);
  void forward(Block& block, Tensor& x);
  void backward(Block& block, Tensor& gradient);
  float cross_entropy(const Tensor& logits, std::span<const std::int64_t> targets);

  // What only the last stage has.
  struct Head {
    LayerNorm norm;
    ColumnLinear output;
    std::deque<Tensor> logits_gradients;
  };

  Group tp_;
  std::optional<Embedding> embedding_;  // the first stage's
  std::deque<Block> blocks_;
  std::optional<Head> head_;
};
