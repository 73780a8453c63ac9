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

// `layer` works on the input, within its scope; what it returns is recorded.
template <typename Layer, typename Input>
Tensor run_forward(const std::string& name, Layer& layer, const Input& input) {
  const TraceScope scope(name);
  Tensor output = layer.forward(input);
  trace_output(output);
  return output;
}

template <typename Layer>
Tensor run_backward(const std::string& name, Layer& layer, Tensor& gradient) {
  const TraceScope scope(name);
  trace_gradient(gradient);
  return layer.backward(gradient);
}

}  // namespace

Model::Model(int layers, const Mesh& mesh, Bug bug) : tp_(mesh.tp) {
  const int stage = mesh.pp.member();
  const int share = layers / mesh.pp.size();
  if (stage == 0) {
    embedding_.emplace("embedding", kVocabulary, kWidth, mesh.tp, bug == Bug::embedding_mask);
  }
  for (int layer = stage * share; layer < (stage + 1) * share; ++layer) {
    if (bug != Bug::layers_lost || layer != 1) add_block(layer, mesh, bug);
  }
  if (stage == mesh.pp.size() - 1) {
    head_.emplace(Head{LayerNorm("final_norm", kWidth, mesh.tp),
                       ColumnLinear("output", kWidth, kVocabulary, mesh.tp, false),
                       {}});
  }
}

void Model::add_block(int layer, const Mesh& mesh, Bug bug) {
  const std::string name = "layers." + std::to_string(layer);
  Block& block =
      blocks_.emplace_back(Block{name,
                                 LayerNorm(name + ".norm", kWidth, mesh.tp),
                                 ColumnLinear(name + ".fc1", kWidth, kHidden, mesh.tp, true),
                                 RowLinear(name + ".fc2", kHidden, kWidth, mesh.tp),
                                 {}});
  if (layer != 1) return;
  const bool marked = bug != Bug::norm_grad_sync;
  block.norm.weight.sequence_parallel = marked;
  block.norm.bias.sequence_parallel = marked;
  block.norm.weight.reduced_twice = bug == Bug::doubled_reduction;
  block.fc1.waits = bug != Bug::missing_wait;
  if (bug == Bug::wrong_activation_group) block.fc2.sums_over = mesh.dp;
}

void Model::forward(Block& block, Tensor& x) {
  const TraceScope scope(block.name);
  const Tensor normed = run_forward(block.name + ".norm", block.norm, x);
  const Tensor& hidden =
      block.before_relu.emplace_back(run_forward(block.name + ".fc1", block.fc1, normed));
  add(run_forward(block.name + ".fc2", block.fc2, relu(hidden)), x);
  trace_output(x);
}

float Model::forward(const Sample& sample, Tensor& x) {
  trace_tokens("input.tokens", sample.tokens);
  trace_tokens("input.targets", sample.targets);
  if (embedding_) {
    x = run_forward("embedding", *embedding_, std::span<const std::int64_t>(sample.tokens));
  }
  for (Block& block : blocks_) forward(block, x);
  if (!head_) return 0;
  const Tensor normed = run_forward("final_norm", head_->norm, x);
  const float loss = cross_entropy(run_forward("output", head_->output, normed), sample.targets);
  trace_loss(loss);
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
  Tensor& gradient = head_->logits_gradients.emplace_back(logits);
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
      gradient.row(t)[i] = (probability - (first + i == target ? 1.0f : 0.0f)) / tokens;
    }
  }
  return loss;
}

void Model::backward(Block& block, Tensor& gradient) {
  const TraceScope scope(block.name);
  trace_gradient(gradient);
  Tensor hidden = relu_backward(block.before_relu.front(),
                                run_backward(block.name + ".fc2", block.fc2, gradient));
  block.before_relu.pop_front();
  Tensor normed = run_backward(block.name + ".fc1", block.fc1, hidden);
  add(run_backward(block.name + ".norm", block.norm, normed), gradient);
}

void Model::backward(Tensor& gradient) {
  if (head_) {
    gradient = run_backward("output", head_->output, head_->logits_gradients.front());
    head_->logits_gradients.pop_front();
    gradient = run_backward("final_norm", head_->norm, gradient);
  }
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) backward(*block, gradient);
  if (embedding_) {
    const TraceScope scope("embedding");
    trace_gradient(gradient);
    embedding_->backward(gradient);
  }
}

std::vector<Parameter*> Model::parameters() {
  std::vector<Parameter*> all;
  if (embedding_) all.push_back(&embedding_->weight);
  for (Block& block : blocks_) {
    for (Parameter* parameter : {&block.norm.weight, &block.norm.bias, &block.fc1.weight,
                                 &block.fc1.bias, &block.fc2.weight, &block.fc2.bias}) {
      all.push_back(parameter);
    }
  }
  if (head_) {
    for (Parameter* parameter : {&head_->norm.weight, &head_->norm.bias, &head_->output.weight}) {
      all.push_back(parameter);
    }
  }
  return all;
}

std::vector<ModuleName> Model::modules() const {
  std::vector<ModuleName> all = {{"@root", "Model"}};
  if (embedding_) all.push_back({"embedding", "Embedding"});
  for (const Block& block : blocks_) {
    all.push_back({block.name, "Block"});
    all.push_back({block.name + ".norm", "LayerNorm"});
    all.push_back({block.name + ".fc1", "ColumnLinear"});
    all.push_back({block.name + ".fc2", "RowLinear"});
  }
  if (head_) {
    all.push_back({"final_norm", "LayerNorm"});
    all.push_back({"output", "ColumnLinear"});
  }
  return all;
}
