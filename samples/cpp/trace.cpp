// SPDX-License-Identifier: Apache-2.0
// See trace.hpp. A tensor is recorded with what this program knows of its layout: "t[tp] h" is cut
// along its first dimension over tp. Names are those of a run on one rank.
#include "samples/cpp/trace.hpp"

#include <vector>

#include "capture/ttrace.h"

namespace {

struct Description {
  std::uint8_t phase;
  std::uint8_t dtype;
  int microbatch;
  std::uint32_t flags;
};

std::string list(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return "[" + text + "]";
}

std::string layout_json(const std::string& dims, const std::vector<std::uint64_t>& global) {
  return "{\"dims\":\"" + dims + "\",\"shape\":" + list(global) + ",\"source\":\"program\"}";
}

// What a call on a tensor says of it; the strings must live until then.
ttrace_tensor describe(const Description& what, const std::string& module, const std::string& slot,
                       const std::vector<std::uint64_t>& shape, const void* data,
                       const std::string& layout) {
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.phase = what.phase;
  tensor.dtype = what.dtype;
  tensor.ndim = static_cast<std::uint8_t>(shape.size());
  tensor.microbatch = what.microbatch;
  tensor.flags = what.flags;
  tensor.module = module.c_str();
  tensor.slot = slot.c_str();
  tensor.layout = layout.empty() ? nullptr : layout.c_str();
  tensor.shape = shape.data();
  tensor.data = data;
  tensor.alias_of = -1;
  return tensor;
}

// An error is in the trace; training goes on.
void record(const ttrace_tensor& tensor, float*) { (void)ttrace_record(&tensor); }
void feed(const ttrace_tensor& tensor, float* data) { (void)ttrace_feed(&tensor, data); }

// What is computed is recorded first.
void record_and_feed(const ttrace_tensor& tensor, float* data) {
  record(tensor, data);
  feed(tensor, data);
}

void trace_activation(std::uint8_t phase, int microbatch, const std::string& module,
                      const std::string& slot, Tensor& activation) {
  if (ttrace_active() == 0) return;
  const std::vector<std::uint64_t> shape = {activation.rows, activation.columns};
  const std::string layout = layout_json(activation.dims, activation.global);
  const ttrace_tensor tensor = describe({phase, TTRACE_FLOAT32, microbatch, 0}, module, slot, shape,
                                        activation.values.data(), layout);
  record_and_feed(tensor, activation.values.data());
}

void each_parameter(std::uint8_t phase, const std::string& slot,
                    std::span<Parameter* const> parameters, std::vector<float> Parameter::*values,
                    void (*call)(const ttrace_tensor&, float*)) {
  if (ttrace_active() == 0) return;
  for (Parameter* parameter : parameters) {
    std::vector<float>& data = parameter->*values;
    const std::string layout = layout_json(parameter->dims, parameter->global);
    const ttrace_tensor tensor =
        describe({phase, TTRACE_FLOAT32, -1, TTRACE_TRAINABLE}, parameter->name, slot,
                 parameter->shape, data.data(), layout);
    call(tensor, data.data());
  }
}

std::string axis(const char* name, const Group& group) {
  return std::string("{\"name\":\"") + name + "\",\"size\":" + std::to_string(group.size()) +
         ",\"coord\":" + std::to_string(group.member()) + "}";
}

}  // namespace

void trace_open(const Mesh& mesh, const std::vector<ModuleName>& modules,
                std::span<Parameter* const> parameters, int microbatches) {
  ttrace_options options{};
  options.struct_size = sizeof options;
  options.rank = mesh.rank;
  options.world_size = mesh.ranks;
  if (ttrace_open(&options) != 0) return;

  std::string table;
  for (const ModuleName& module : modules) {
    table += (table.empty() ? "\"" : ",\"") + module.name + "\":{\"class\":\"" + module.kind +
             "\",\"forward\":\"samples/cpp/model.cpp\",\"expected\":true,\"calls\":" +
             std::to_string(microbatches) + ",\"returned_tensor\":true}";
  }
  std::string weights;
  for (const Parameter* parameter : parameters) {
    weights += (weights.empty() ? "\"" : ",\"") + parameter->name +
               "\":{\"shape\":" + list(parameter->shape) +
               ",\"dtype\":\"float32\",\"trainable\":true,\"layout\":" +
               layout_json(parameter->dims, parameter->global) + "}";
  }
  ttrace_set(("{\"axes\":[" + axis("dp", mesh.dp) + "," + axis("tp", mesh.tp) + "],\"modules\":{" +
              table + "},\"parameters\":{" + weights + "}}")
                 .c_str());
}

void trace_begin(int iteration) { ttrace_begin_iteration(iteration); }

void trace_close() { ttrace_close(); }

void trace_tokens(int microbatch, const std::string& slot, std::span<const std::int64_t> tokens) {
  if (ttrace_active() == 0) return;
  const std::vector<std::uint64_t> shape = {tokens.size()};
  const std::string layout = layout_json("t", shape);
  record(describe({TTRACE_FORWARD, TTRACE_INT64, microbatch, TTRACE_ROOT_INPUT}, "@root", slot,
                  shape, tokens.data(), layout),
         nullptr);
}

void trace_output(int microbatch, const std::string& module, Tensor& output) {
  trace_activation(TTRACE_FORWARD, microbatch, module, "output.0", output);
}

void trace_gradient(int microbatch, const std::string& module, Tensor& gradient) {
  trace_activation(TTRACE_BACKWARD, microbatch, module, "grad_output.0", gradient);
}

void trace_loss(int microbatch, float loss) {
  record(
      describe({TTRACE_FORWARD, TTRACE_FLOAT32, microbatch, 0}, "@root", "output.0", {}, &loss, ""),
      nullptr);
}

void trace_values(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_PARAM, "value", parameters, &Parameter::values, record_and_feed);
}

void trace_reduced(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_GRAD, "reduced", parameters, &Parameter::gradient, record_and_feed);
}

void trace_before_step(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_STEP, "momentum_buffer", parameters, &Parameter::momentum, feed);
}

void trace_step(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_STEP, "param", parameters, &Parameter::values, record);
  each_parameter(TTRACE_STEP, "momentum_buffer", parameters, &Parameter::momentum, record);
}
