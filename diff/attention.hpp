// SPDX-License-Identifier: Apache-2.0
// What leaves the backward pass of a softmax: gradients of queries, keys, values and of a router's
// logits. It subtracts delta = sum(dO * O) from each token's gradients of probabilities. One
// correct kernel cancels delta's rounding exactly, another does not, and no replay of the former
// shows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/flow.hpp"
#include "diff/statistics.hpp"

namespace ttrace {

class Attention {
 public:
  Attention(const Side& reference, const Flow& flow) : reference_(reference), flow_(flow) {}

  // Whether this gradient leaves a softmax backwards: its tensor is given, with two others at
  // least, to a module that multiplies them with each other, or is an output that no module takes,
  // so an operation between modules does.
  [[nodiscard]] bool leaves_softmax(const Key& gradient) const;

  // The squares of delta's rounding in each element of the gradient of queries or keys, evenly over
  // a row of the last dimension (a token and head):
  //   [ c eps |O| |dO| RMS(|K|) / (d sqrt(d)) ]^2        d: elements of a row; for keys Q for K
  // O, dO: that row of the module's output and of its gradient, means where rows do not correspond.
  // nullopt where the module or one of these tensors is not there, and for values.
  [[nodiscard]] std::optional<ExtraNoise> rounding_of_delta(const Key& gradient,
                                                            double epsilon) const;

 private:
  enum class Role : std::uint8_t { query, key, value };
  struct Input {
    Key source;  // the tensor whose storage it is
    std::string slot;
  };

  struct Operands {
    const LogicalTensor* own = nullptr;  // queries or keys
    const LogicalTensor* other = nullptr;
    const LogicalTensor* output = nullptr;
    const LogicalTensor* arriving = nullptr;  // the gradient of the output
  };

  static Role role_of(const std::string& slot, std::size_t position);
  [[nodiscard]] std::optional<Operands> operands_of(const Key& gradient) const;
  [[nodiscard]] Key source_of(const Key& forward) const;
  [[nodiscard]] std::vector<Input> floating_inputs(const Key& call) const;
  [[nodiscard]] std::optional<Key> call_with(const Key& source) const;
  [[nodiscard]] const LogicalTensor* tensor(const Key& key) const;

  const Side& reference_;
  const Flow& flow_;
};

}  // namespace ttrace
