// SPDX-License-Identifier: Apache-2.0
// Runs whose micro-batches are lists of samples, for tests of how they are matched.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "libttrace/logical.hpp"
#include "test/libttrace/trace_builder.hpp"

namespace ttrace::testing {

using Samples = std::vector<unsigned>;

// One row of 16 tokens a sample; shifted by one for labels.
inline Tensor tokens(const Samples& samples, std::uint64_t shift = 0) {
  Tensor tensor{{samples.size(), 16}, {}};
  for (const unsigned sample : samples) {
    std::mt19937 generator(sample);
    for (std::uint64_t i = 0; i < 16 + shift; ++i) {
      const auto token = static_cast<float>(generator() % 1000);
      if (i >= shift) tensor.values.push_back(token);
    }
  }
  return tensor;
}

class Run {
 public:
  explicit Run(const std::string& name) : builder(name) {}

  void input(std::int32_t rank, std::int32_t microbatch, const std::string& slot,
             const Tensor& tensor, DType dtype = DType::int64, const std::string& layout = "") {
    Field field;
    field.layout = layout;
    field.key = {0, microbatch, Phase::forward, std::string(kRootModule), 0, slot};
    field.dtype = dtype;
    field.flags = kFlagRootInput;
    builder.add(rank, field, tensor);
  }
  void data(std::int32_t rank, std::int32_t microbatch, const Samples& samples) {
    input(rank, microbatch, "input.0", tokens(samples));
    input(rank, microbatch, "input.labels", tokens(samples, 1));
  }
  // A micro-batch of which only an activation was recorded, as on an inner pipeline stage.
  void activation(std::int32_t rank, std::int32_t microbatch) {
    Field field;
    field.key = {0, microbatch, Phase::forward, "layers.3", 0, "output.0"};
    builder.add(rank, field, random_tensor({4}, 1));
  }

  TraceBuilder builder;
};

// The usual reference: one rank, `count` micro-batches of two samples: 0 1, 2 3, ...
inline Run reference_of(std::int32_t count) {
  Run reference("reference");
  reference.builder.place(0, {});
  for (std::int32_t i = 0; i < count; ++i) {
    const auto first = static_cast<unsigned>(2 * i);
    reference.data(0, i, {first, first + 1});
  }
  return reference;
}

inline MicrobatchMatch match(const Run& reference, const Run& candidate) {
  return match_microbatches(reference.builder.write(), candidate.builder.write(), 0, 0);
}

inline std::vector<std::int32_t> numbers_of(const MicrobatchNumbers& numbers, std::int32_t rank) {
  std::vector<std::int32_t> found;
  for (const auto& [turn, number] : numbers) {
    if (turn.first == rank) found.push_back(number);
  }
  return found;
}

using Numbers = std::vector<std::int32_t>;

}  // namespace ttrace::testing
