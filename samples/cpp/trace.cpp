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

// What a call on a tensor says of it; the strings must live until then. Without a module it is the
// scope's, and the micro-batch is the current one.
ttrace_tensor describe(const Description& what, const std::string& module, const std::string& slot,
                       const std::vector<std::uint64_t>& shape, const void* data,
                       const std::string& layout) {
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.phase = what.phase;
  tensor.dtype = what.dtype;
  tensor.ndim = static_cast<std::uint8_t>(shape.size());
  tensor.microbatch = TTRACE_CURRENT;
  tensor.flags = what.flags;
  tensor.module = module.empty() ? nullptr : module.c_str();
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

void trace_activation(std::uint8_t phase, const std::string& slot, Tensor& activation) {
  if (ttrace_active() == 0) return;
  const std::vector<std::uint64_t> shape = {activation.rows, activation.columns};
  const std::string layout = layout_json(activation.dims, activation.global);
  const ttrace_tensor tensor =
      describe({phase, TTRACE_FLOAT32, 0}, "", slot, shape, activation.values.data(), layout);
  record_and_feed(tensor, activation.values.data());
}

// An optimizer that has a part of a parameter keeps a range of its flattened elements.
std::string part_layout(const Parameter& parameter, std::size_t count) {
  std::string layout = layout_json(parameter.dims, parameter.global);
  if (count == parameter.values.size()) return layout;
  layout.back() = ',';
  return layout + "\"flat\":{\"shape\":" + list(parameter.shape) +
         ",\"start\":" + std::to_string(parameter.first) + ",\"count\":" + std::to_string(count) +
         "}}";
}

void each_parameter(std::uint8_t phase, const std::string& slot,
                    std::span<Parameter* const> parameters, std::vector<float> Parameter::*values,
                    void (*call)(const ttrace_tensor&, float*)) {
  if (ttrace_active() == 0) return;
  for (Parameter* parameter : parameters) {
    std::vector<float>& data = parameter->*values;
    const std::string layout = part_layout(*parameter, data.size());
    const bool whole = data.size() == parameter->values.size();
    const std::vector<std::uint64_t> shape =
        whole ? parameter->shape : std::vector<std::uint64_t>{data.size()};
    const ttrace_tensor tensor = describe({phase, TTRACE_FLOAT32, TTRACE_TRAINABLE},
                                          parameter->name, slot, shape, data.data(), layout);
    call(tensor, data.data());
  }
}

void declare(const char* name, const Group& group, int first, int stride) {
  ttrace_axis(name, group.size(), group.member());
  std::vector<std::int32_t> ranks;
  for (int member = 0; member < group.size(); ++member) ranks.push_back(first + member * stride);
  ttrace_group(name, ranks.data(), ranks.size());
}

void declare(const Mesh& mesh) {
  const int stage = mesh.sizes.dp * mesh.sizes.tp;  // ranks of one
  const int before = mesh.rank - mesh.dp.member() * mesh.sizes.tp;
  declare("pp", mesh.pp, mesh.rank % stage, stage);
  declare("dp", mesh.dp, before, mesh.sizes.tp);
  declare("tp", mesh.tp, mesh.rank - mesh.tp.member(), 1);
}

}  // namespace

void trace_open(const Mesh& mesh, const std::vector<ModuleName>& modules,
                std::span<Parameter* const> parameters, int microbatches) {
  ttrace_options options{};
  options.struct_size = sizeof options;
  options.rank = mesh.rank;
  options.world_size = mesh.sizes.ranks();
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
  ttrace_set(("{\"modules\":{" + table + "},\"parameters\":{" + weights + "}}").c_str());
  declare(mesh);
}

void trace_begin(int iteration) { ttrace_begin_iteration(iteration); }

void trace_microbatch(int microbatch) { ttrace_begin_microbatch(microbatch); }

void trace_close() { ttrace_close(); }

TraceScope::TraceScope(const std::string& module) { ttrace_push_scope(module.c_str()); }

TraceScope::~TraceScope() { ttrace_pop_scope(); }

void trace_tokens(const std::string& slot, std::span<const std::int64_t> tokens) {
  if (ttrace_active() == 0) return;
  const std::vector<std::uint64_t> shape = {tokens.size()};
  const std::string layout = layout_json("t", shape);
  record(describe({TTRACE_FORWARD, TTRACE_INT64, TTRACE_ROOT_INPUT}, "@root", slot, shape,
                  tokens.data(), layout),
         nullptr);
}

void trace_input(const Tensor& input) {
  if (ttrace_active() == 0) return;
  const std::vector<std::uint64_t> shape = {input.rows, input.columns};
  const std::string layout = layout_json(input.dims, input.global);
  record(describe({TTRACE_FORWARD, TTRACE_FLOAT32, TTRACE_GLUE}, "", "input.0", shape,
                  input.values.data(), layout),
         nullptr);
}

void trace_output(Tensor& output) { trace_activation(TTRACE_FORWARD, "output.0", output); }

void trace_gradient(Tensor& gradient) {
  trace_activation(TTRACE_BACKWARD, "grad_output.0", gradient);
}

void trace_loss(float loss) {
  record(describe({TTRACE_FORWARD, TTRACE_FLOAT32, 0}, "@root", "output.0", {}, &loss, ""),
         nullptr);
}

void trace_values(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_PARAM, "value", parameters, &Parameter::values, record_and_feed);
}

void trace_reduced(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_GRAD, "reduced", parameters, &Parameter::reduced, record_and_feed);
}

void trace_before_step(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_STEP, "momentum_buffer", parameters, &Parameter::momentum, feed);
}

void trace_step(std::span<Parameter* const> parameters) {
  each_parameter(TTRACE_STEP, "param", parameters, &Parameter::values, record);
  each_parameter(TTRACE_STEP, "momentum_buffer", parameters, &Parameter::momentum, record);
}
