// SPDX-License-Identifier: Apache-2.0
// See layers.hpp. Loops are written for reading; every sum has one fixed order.
#include "samples/cpp/layers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "samples/cpp/trace.hpp"

namespace {

constexpr float kNormEpsilon = 1e-5f;

std::uint64_t hash_of(const std::string& name) {
  std::uint64_t value = 0;
  for (const char c : name) value = hash(value ^ static_cast<unsigned char>(c));
  return value;
}

// A tensor of all tokens and this rank's features.
Tensor local_features(std::size_t rows, std::size_t columns, const Group& tp) {
  return {rows,
          columns,
          std::vector<float>(rows * columns),
          "t h[tp]",
          {rows, columns * static_cast<std::size_t>(tp.size())}};
}

Tensor gather_tokens(const Tensor& local, const Group& tp, bool waits = true) {
  return {local.rows * static_cast<std::size_t>(tp.size()), local.columns,
          tp.gather(local.values, waits), "t h", local.global};
}

Tensor sum_and_scatter_tokens(const Tensor& partial, const Group& tp) {
  Tensor local =
      local_tokens(partial.rows / static_cast<std::size_t>(tp.size()), partial.columns, tp);
  local.values = tp.sum_and_scatter(partial.values);
  return local;
}

template <typename Saved>
Saved take_oldest(std::deque<Saved>& queue) {
  Saved oldest = std::move(queue.front());
  queue.pop_front();
  return oldest;
}

// output[t][o] = sum over i of input[t][i] * weight[o][i]
void multiply(const Tensor& input, const Parameter& weight, Tensor& output) {
  for (std::size_t t = 0; t < input.rows; ++t) {
    for (std::size_t o = 0; o < output.columns; ++o) {
      const float* row = weight.values.data() + o * input.columns;
      float sum = 0;
      for (std::size_t i = 0; i < input.columns; ++i) sum += input.row(t)[i] * row[i];
      output.row(t)[o] = sum;
    }
  }
}

// result[t][i] = sum over o of gradient[t][o] * weight[o][i]
void multiply_back(const Tensor& gradient, const Parameter& weight, Tensor& result) {
  for (std::size_t t = 0; t < gradient.rows; ++t) {
    for (std::size_t o = 0; o < gradient.columns; ++o) {
      const float* row = weight.values.data() + o * result.columns;
      for (std::size_t i = 0; i < result.columns; ++i) {
        result.row(t)[i] += gradient.row(t)[o] * row[i];
      }
    }
  }
}

// weight.gradient[o][i] += sum over t of gradient[t][o] * input[t][i]
void accumulate(const Tensor& gradient, const Tensor& input, Parameter& weight) {
  for (std::size_t t = 0; t < gradient.rows; ++t) {
    for (std::size_t o = 0; o < gradient.columns; ++o) {
      float* row = weight.gradient.data() + o * input.columns;
      for (std::size_t i = 0; i < input.columns; ++i)
        row[i] += gradient.row(t)[o] * input.row(t)[i];
    }
  }
}

void accumulate_bias(const Tensor& gradient, Parameter& bias) {
  for (std::size_t t = 0; t < gradient.rows; ++t) {
    for (std::size_t o = 0; o < gradient.columns; ++o) bias.gradient[o] += gradient.row(t)[o];
  }
}

void add_bias(const Parameter& bias, Tensor& output) {
  for (std::size_t t = 0; t < output.rows; ++t) {
    for (std::size_t o = 0; o < output.columns; ++o) output.row(t)[o] += bias.values[o];
  }
}

}  // namespace

// ---- parameters ----

std::uint64_t hash(std::uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

Parameter make_parameter(const std::string& name, const std::vector<std::uint64_t>& global, int cut,
                         float center, float scale, const Group& tp) {
  Parameter parameter;
  parameter.name = name;
  parameter.global = global;
  parameter.shape = global;
  const auto size = static_cast<std::uint64_t>(tp.size());
  const auto member = static_cast<std::uint64_t>(tp.member());
  if (cut >= 0) parameter.shape[static_cast<std::size_t>(cut)] /= size;
  for (std::size_t i = 0; i < global.size(); ++i) {
    parameter.dims += std::string(i == 0 ? "" : " ") + (i == 0 ? "o" : "i") +
                      (static_cast<int>(i) == cut ? "[tp]" : "");
  }
  const std::uint64_t columns = global.size() == 2 ? parameter.shape[1] : 1;
  const std::uint64_t count = parameter.shape[0] * columns;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t row = i / columns + (cut == 0 ? member * parameter.shape[0] : 0);
    const std::uint64_t column = i % columns + (cut == 1 ? member * columns : 0);
    const std::uint64_t index = row * (global.size() == 2 ? global[1] : 1) + column;
    const auto bits = static_cast<float>(hash(hash_of(name) + index) >> 40);  // 24 of them: exact
    parameter.values.push_back(center + scale * (bits * 0x1p-23f - 1));
  }
  parameter.gradient.assign(count, 0);
  parameter.momentum.assign(count, 0);
  return parameter;
}

Tensor local_tokens(std::size_t rows, std::size_t columns, const Group& tp) {
  return {rows,
          columns,
          std::vector<float>(rows * columns),
          "t[tp] h",
          {rows * static_cast<std::size_t>(tp.size()), columns}};
}

// ---- embedding ----

Embedding::Embedding(const std::string& name, std::size_t vocabulary, std::size_t width,
                     const Group& tp, bool masks_last_row)
    : weight(make_parameter(name + ".weight", {vocabulary, width}, 0, 0, 1, tp)),
      tp_(tp),
      first_(static_cast<std::int64_t>(weight.shape[0]) * tp.member()),
      masks_last_row_(masks_last_row) {}

bool Embedding::owns(std::int64_t token) const {
  const std::int64_t end = first_ + static_cast<std::int64_t>(weight.shape[0]);
  return token >= first_ && token < (masks_last_row_ ? end - 1 : end);
}

Tensor Embedding::forward(std::span<const std::int64_t> tokens) {
  tokens_.emplace_back(tokens.begin(), tokens.end());
  const std::size_t width = weight.shape[1];
  Tensor partial{tokens.size(), width, std::vector<float>(tokens.size() * width), "", {}};
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (!owns(tokens[t])) continue;
    std::copy_n(weight.values.data() + static_cast<std::size_t>(tokens[t] - first_) * width, width,
                partial.row(t));
  }
  return sum_and_scatter_tokens(partial, tp_);
}

void Embedding::backward(const Tensor& gradient) {
  const Tensor all = gather_tokens(gradient, tp_);
  const std::vector<std::int64_t> tokens = take_oldest(tokens_);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (!owns(tokens[t])) continue;
    float* row =
        weight.gradient.data() + static_cast<std::size_t>(tokens[t] - first_) * all.columns;
    for (std::size_t i = 0; i < all.columns; ++i) row[i] += all.row(t)[i];
  }
}

// ---- layer norm ----

LayerNorm::LayerNorm(const std::string& name, std::size_t width, const Group& tp)
    : weight(make_parameter(name + ".weight", {width}, -1, 1, 0.1f, tp)),
      bias(make_parameter(name + ".bias", {width}, -1, 0, 0.1f, tp)) {
  weight.sequence_parallel = true;
  bias.sequence_parallel = true;
}

Tensor LayerNorm::forward(const Tensor& input) {
  Tensor output = input;
  Saved& saved = saved_.emplace_back(Saved{input, std::vector<float>(input.rows)});
  const auto width = static_cast<float>(input.columns);
  for (std::size_t t = 0; t < input.rows; ++t) {
    float mean = 0;
    float variance = 0;
    for (std::size_t i = 0; i < input.columns; ++i) mean += input.row(t)[i] / width;
    for (std::size_t i = 0; i < input.columns; ++i) {
      variance += (input.row(t)[i] - mean) * (input.row(t)[i] - mean) / width;
    }
    saved.inverse_deviation[t] = 1 / std::sqrt(variance + kNormEpsilon);
    for (std::size_t i = 0; i < input.columns; ++i) {
      saved.normalized.row(t)[i] = (input.row(t)[i] - mean) * saved.inverse_deviation[t];
      output.row(t)[i] = saved.normalized.row(t)[i] * weight.values[i] + bias.values[i];
    }
  }
  return output;
}

Tensor LayerNorm::backward(const Tensor& gradient) {
  const Saved saved = take_oldest(saved_);
  Tensor result = gradient;
  const auto width = static_cast<float>(gradient.columns);
  for (std::size_t t = 0; t < gradient.rows; ++t) {
    const float* x = saved.normalized.row(t);
    float mean = 0;        // of the gradient of x
    float projection = 0;  // of it on x
    for (std::size_t i = 0; i < gradient.columns; ++i) {
      const float g = gradient.row(t)[i];
      weight.gradient[i] += g * x[i];
      bias.gradient[i] += g;
      mean += g * weight.values[i] / width;
      projection += g * weight.values[i] * x[i] / width;
    }
    for (std::size_t i = 0; i < gradient.columns; ++i) {
      const float g = gradient.row(t)[i] * weight.values[i];
      result.row(t)[i] = (g - mean - x[i] * projection) * saved.inverse_deviation[t];
    }
  }
  return result;
}

// ---- linear layers ----

ColumnLinear::ColumnLinear(const std::string& name, std::size_t inputs, std::size_t outputs,
                           const Group& tp, bool has_bias)
    : weight(make_parameter(name + ".weight", {outputs, inputs}, 0, 0,
                            1 / std::sqrt(static_cast<float>(inputs)), tp)),
      tp_(tp) {
  if (has_bias) bias = make_parameter(name + ".bias", {outputs}, 0, 0, 0.1f, tp);
}

Tensor ColumnLinear::forward(const Tensor& input) {
  const Tensor& all = inputs_.emplace_back(gather_tokens(input, tp_, waits));
  trace_input(all);
  Tensor output = local_features(all.rows, weight.shape[0], tp_);
  multiply(all, weight, output);
  if (!bias.name.empty()) add_bias(bias, output);
  return output;
}

Tensor ColumnLinear::backward(const Tensor& gradient) {
  const Tensor input = take_oldest(inputs_);
  accumulate(gradient, input, weight);
  if (!bias.name.empty()) accumulate_bias(gradient, bias);
  Tensor partial{input.rows, input.columns, std::vector<float>(input.values.size()), "", {}};
  multiply_back(gradient, weight, partial);
  return sum_and_scatter_tokens(partial, tp_);
}

RowLinear::RowLinear(const std::string& name, std::size_t inputs, std::size_t outputs,
                     const Group& tp)
    : weight(make_parameter(name + ".weight", {outputs, inputs}, 1, 0,
                            1 / std::sqrt(static_cast<float>(inputs)), tp)),
      bias(make_parameter(name + ".bias", {outputs}, -1, 0, 0.1f, tp)),
      sums_over(tp),
      tp_(tp) {
  bias.sequence_parallel = true;
}

Tensor RowLinear::forward(const Tensor& input) {
  inputs_.push_back(input);
  Tensor partial{input.rows, weight.shape[0], {}, "", {}};
  partial.values.resize(partial.rows * partial.columns);
  multiply(input, weight, partial);
  Tensor output = sum_and_scatter_tokens(partial, sums_over);
  add_bias(bias, output);
  return output;
}

Tensor RowLinear::backward(const Tensor& gradient) {
  accumulate_bias(gradient, bias);
  const Tensor all = gather_tokens(gradient, tp_);
  Tensor result = take_oldest(inputs_);
  accumulate(all, result, weight);
  std::fill(result.values.begin(), result.values.end(), 0.0f);
  multiply_back(all, weight, result);
  return result;
}

// ---- activation ----

Tensor relu(const Tensor& input) {
  Tensor output = input;
  for (float& value : output.values) value = std::max(value, 0.0f);
  return output;
}

Tensor relu_backward(const Tensor& input, Tensor gradient) {
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    if (input.values[i] <= 0) gradient.values[i] = 0;
  }
  return gradient;
}
