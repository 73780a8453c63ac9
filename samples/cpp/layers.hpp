// SPDX-License-Identifier: Apache-2.0
// The layers, each with its backward pass by hand. Between layers the tokens of a micro-batch are
// cut over tp (sequence parallelism): a norm sees only this rank's tokens, a linear layer gathers
// all of them, works on its share of the features, and gives back sums that are scattered again.
// A pipeline stage begins micro-batches before it is done with others: what a backward pass needs
// waits in a queue, and backward() is for the oldest forward() that has not had one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "samples/cpp/parallel.hpp"

struct Tensor {
  std::size_t rows = 0;  // tokens
  std::size_t columns = 0;
  std::vector<float> values;
  std::string dims;  // how it is cut, and the shape of the whole
  std::vector<std::uint64_t> global;

  float* row(std::size_t i) { return values.data() + i * columns; }
  [[nodiscard]] const float* row(std::size_t i) const { return values.data() + i * columns; }
};

struct ModuleName {
  std::string name;
  std::string kind;  // its class
};

struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;   // of this rank's part
  std::vector<std::uint64_t> global;  // of the whole
  std::string dims;
  // Its gradient is made from this rank's tokens only and must be summed over tp.
  bool sequence_parallel = false;
  // One more sum of its gradient over dp, which must not be.
  bool reduced_twice = false;
  std::vector<float> values;
  std::vector<float> gradient;
  // What the optimizer of this rank works on: the part that begins at `first`.
  std::size_t first = 0;
  std::vector<float> reduced;
  std::vector<float> momentum;
};

// Starts as the same whole tensor in every layout: element i is a hash of (name, global index of
// i). `cut` is the dimension that is cut over tp, -1 for none.
Parameter make_parameter(const std::string& name, const std::vector<std::uint64_t>& global, int cut,
                         float center, float scale, const Group& tp);
std::uint64_t hash(std::uint64_t value);

// Zeros: a tensor of this rank's tokens.
Tensor local_tokens(std::size_t rows, std::size_t columns, const Group& tp);

class Embedding {
 public:
  Embedding(const std::string& name, std::size_t vocabulary, std::size_t width, const Group& tp,
            bool masks_last_row);
  Tensor forward(std::span<const std::int64_t> tokens);
  void backward(const Tensor& gradient);
  Parameter weight;

 private:
  [[nodiscard]] bool owns(std::int64_t token) const;
  Group tp_;
  std::int64_t first_;  // token of this rank's first row
  bool masks_last_row_;
  std::deque<std::vector<std::int64_t>> tokens_;
};

class LayerNorm {
 public:
  LayerNorm(const std::string& name, std::size_t width, const Group& tp);
  Tensor forward(const Tensor& input);
  Tensor backward(const Tensor& gradient);
  Parameter weight;
  Parameter bias;

 private:
  struct Saved {
    Tensor normalized;
    std::vector<float> inverse_deviation;  // of each token
  };
  std::deque<Saved> saved_;
};

// Gathers all tokens, makes this rank's share of the output features.
class ColumnLinear {
 public:
  ColumnLinear(const std::string& name, std::size_t inputs, std::size_t outputs, const Group& tp,
               bool has_bias);
  Tensor forward(const Tensor& input);
  Tensor backward(const Tensor& gradient);
  Parameter weight;
  Parameter bias;     // empty when there is none
  bool waits = true;  // for the tokens that it gathers

 private:
  Group tp_;
  std::deque<Tensor> inputs_;
};

// Works on this rank's share of the input features, sums over tp, keeps this rank's tokens.
class RowLinear {
 public:
  RowLinear(const std::string& name, std::size_t inputs, std::size_t outputs, const Group& tp);
  Tensor forward(const Tensor& input);
  Tensor backward(const Tensor& gradient);
  Parameter weight;
  Parameter bias;
  Group sums_over;  // tp

 private:
  Group tp_;
  std::deque<Tensor> inputs_;
};

Tensor relu(const Tensor& input);
Tensor relu_backward(const Tensor& input, Tensor gradient);
