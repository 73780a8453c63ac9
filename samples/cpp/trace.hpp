// SPDX-License-Identifier: Apache-2.0
// All that this trainer says to ttrace. Each call does nothing unless the program runs under
// ttrace-capture, so it stays in for production. In a replay (ttrace-capture --replay) what is not
// const is overwritten by what the other run computed there.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "samples/cpp/layers.hpp"
#include "samples/cpp/parallel.hpp"

// Once a rank, before the first iteration: the mesh, and what a complete capture must hold.
void trace_open(const Mesh& mesh, const std::vector<ModuleName>& modules,
                std::span<Parameter* const> parameters, int microbatches);
void trace_begin(int iteration);
void trace_microbatch(int microbatch);  // what follows is part of it; -1: of none
void trace_close();

// While it lives, what is recorded and communicated is this module's.
class TraceScope {
 public:
  explicit TraceScope(const std::string& module);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
};

void trace_tokens(const std::string& slot, std::span<const std::int64_t> tokens);
void trace_input(const Tensor& input);  // one that no module has returned
void trace_output(Tensor& output);
void trace_gradient(Tensor& gradient);
void trace_loss(float loss);

// Of all parameters: their values before the forward passes, their gradients, what the step starts
// from, what it made of them.
void trace_values(std::span<Parameter* const> parameters);
void trace_reduced(std::span<Parameter* const> parameters);
void trace_before_step(std::span<Parameter* const> parameters);
void trace_step(std::span<Parameter* const> parameters);
