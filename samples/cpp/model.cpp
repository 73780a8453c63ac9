// SPDX-License-Identifier: Apache-2.0
// See model.hpp.
#include "samples/cpp/model.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "samples/cpp/trace.hpp"

namespace {

void add(const Tensor& other, Tensor& sum) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += other.values[i];
}

}  // namespace

Model::Model(int layers, const Group& tp, Bug bug)
    : tp_(tp),
      embedding_("embedding", kVocabulary, kWidth, tp, bug == Bug::embedding_mask),
      final_norm_("final_norm", kWidth, tp),
      output_("output", kWidth, kVocabulary, tp, false) {
  for (int layer = 0; layer < layers; ++layer) {
    if (bug == Bug::layers_lost && layer == 1) continue;
    const std::string name = "layers." + std::to_string(layer);
    blocks_.push_back({name, LayerNorm(name + ".norm", kWidth, tp),
                       ColumnLinear(name + ".fc1", kWidth, kHidden, tp, true),
                       RowLinear(name + ".fc2", kHidden, kWidth, tp), Tensor{}});
    if (bug == Bug::norm_grad_sync && layer == 1) {
      blocks_.back().norm.weight.sequence_parallel = false;
      blocks_.back().norm.bias.sequence_parallel = false;
    }
  }
}

float Model::forward(int microbatch, std::span<const std::int64_t> tokens,
                     std::span<const std::int64_t> targets) {
  trace_tokens(microbatch, "input.tokens", tokens);
  trace_tokens(microbatch, "input.targets", targets);
  Tensor x = embedding_.forward(tokens);
  trace_output(microbatch, "embedding", x);
  for (Block& block : blocks_) {
    Tensor normed = block.norm.forward(x);
    trace_output(microbatch, block.name + ".norm", normed);
    block.before_relu = block.fc1.forward(normed);
    trace_output(microbatch, block.name + ".fc1", block.before_relu);
    Tensor added = block.fc2.forward(relu(block.before_relu));
    trace_output(microbatch, block.name + ".fc2", added);
    add(added, x);
    trace_output(microbatch, block.name, x);
  }
  x = final_norm_.forward(x);
  trace_output(microbatch, "final_norm", x);
  Tensor logits = output_.forward(x);
  trace_output(microbatch, "output", logits);
  const float loss = cross_entropy(logits, targets);
  trace_loss(microbatch, loss);
  return loss;
}

// Every rank of tp computes the whole loss, and keeps the gradient of its own logits.
float Model::cross_entropy(const Tensor& logits, std::span<const std::int64_t> targets) {
  const std::vector<float> all = tp_.gather(logits.values);
  const auto at = [&](std::size_t token, std::size_t word) {
    return all[word / logits.columns * logits.values.size() + token * logits.columns +
               word % logits.columns];
  };
  const std::size_t first = static_cast<std::size_t>(tp_.member()) * logits.columns;
  const auto tokens = static_cast<float>(logits.rows);
  logits_gradient_ = logits;
  float loss = 0;
  for (std::size_t t = 0; t < logits.rows; ++t) {
    const auto target = static_cast<std::size_t>(targets[t]);
    float highest = at(t, 0);
    for (std::size_t w = 1; w < kVocabulary; ++w) highest = std::max(highest, at(t, w));
    float sum = 0;
    for (std::size_t w = 0; w < kVocabulary; ++w) sum += std::exp(at(t, w) - highest);
    loss += (std::log(sum) + highest - at(t, target)) / tokens;
    for (std::size_t i = 0; i < logits.columns; ++i) {
      const float probability = std::exp(at(t, first + i) - highest) / sum;
      logits_gradient_.row(t)[i] = (probability - (first + i == target ? 1.0f : 0.0f)) / tokens;
    }
  }
  return loss;
}

void Model::backward(int microbatch) {
  trace_gradient(microbatch, "output", logits_gradient_);
  Tensor gradient = output_.backward(logits_gradient_);
  trace_gradient(microbatch, "final_norm", gradient);
  gradient = final_norm_.backward(gradient);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    trace_gradient(microbatch, block->name, gradient);
    trace_gradient(microbatch, block->name + ".fc2", gradient);
    Tensor hidden = relu_backward(block->before_relu, block->fc2.backward(gradient));
    trace_gradient(microbatch, block->name + ".fc1", hidden);
    Tensor normed = block->fc1.backward(hidden);
    trace_gradient(microbatch, block->name + ".norm", normed);
    add(block->norm.backward(normed), gradient);
  }
  trace_gradient(microbatch, "embedding", gradient);
  embedding_.backward(gradient);
}

std::vector<Parameter*> Model::parameters() {
  std::vector<Parameter*> all = {&embedding_.weight};
  for (Block& block : blocks_) {
    for (Parameter* parameter : {&block.norm.weight, &block.norm.bias, &block.fc1.weight,
                                 &block.fc1.bias, &block.fc2.weight, &block.fc2.bias}) {
      all.push_back(parameter);
    }
  }
  for (Parameter* parameter : {&final_norm_.weight, &final_norm_.bias, &output_.weight}) {
    all.push_back(parameter);
  }
  return all;
}

std::vector<ModuleName> Model::modules() const {
  std::vector<ModuleName> all = {{"@root", "Model"}, {"embedding", "Embedding"}};
  for (const Block& block : blocks_) {
    all.push_back({block.name, "Block"});
    all.push_back({block.name + ".norm", "LayerNorm"});
    all.push_back({block.name + ".fc1", "ColumnLinear"});
    all.push_back({block.name + ".fc2", "RowLinear"});
  }
  all.push_back({"final_norm", "LayerNorm"});
  all.push_back({"output", "ColumnLinear"});
  return all;
}
