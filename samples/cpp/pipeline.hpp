// SPDX-License-Identifier: Apache-2.0
// The forward and backward passes of an iteration's micro-batches over the stages of a pipeline,
// one of each in turn (1F1B): a stage begins as many more than it has ended as stages come after
// it.
#pragma once

#include <functional>

#include "samples/cpp/model.hpp"
#include "samples/cpp/parallel.hpp"

// Returns the sum of the losses, 0 on all stages but the last.
float run_pipeline(Model& model, const Mesh& mesh, int microbatches, std::size_t tokens,
                   const std::function<Sample(int)>& sample);
