// SPDX-License-Identifier: Apache-2.0
// What checks read of a trace: its ranks and where they stand, and the records of each parameter in
// each iteration, in one place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace::builtin {

// What one rank recorded of one parameter in one iteration. Of several optimizer steps in one
// iteration the first is here, and `steps` says so.
struct ParameterStep {
  const SegmentReader* segment = nullptr;
  const Record* value = nullptr;                // before the step
  const Record* master = nullptr;               // before the step
  const Record* reduced = nullptr;              // final gradient, before clipping
  const Record* clipped = nullptr;              // after clipping
  const Record* after = nullptr;                // the parameter after the step
  const Record* master_after = nullptr;         // after the step
  std::map<std::string, const Record*> states;  // of the optimizer, after the step
  unsigned steps = 1;

  // What the optimizer was given.
  [[nodiscard]] const Record* gradient() const { return clipped != nullptr ? clipped : reduced; }
};
using ParameterSteps = std::map<std::string, ParameterStep>;  // by name

// What the program says of a parameter's cut on one rank.
struct DeclaredShard {
  Layout layout;
  std::uint64_t elements = 0;  // of the local shard
};

class CollectiveLog;
class CopyFinder;
class PipelineStages;

class Evidence {
 public:
  explicit Evidence(const Trace& trace);
  ~Evidence();
  Evidence(const Evidence&) = delete;
  Evidence& operator=(const Evidence&) = delete;

  [[nodiscard]] const Trace& trace() const { return trace_; }
  [[nodiscard]] const std::vector<std::int64_t>& iterations() const { return iterations_; }
  [[nodiscard]] const std::map<std::int32_t, Coordinates>& places() const { return places_; }
  // Every rank of the run is here and lost nothing in this iteration.
  [[nodiscard]] bool complete(std::int64_t iteration) const;
  // The exception by which the rank's program ended in that iteration or after it, or "".
  [[nodiscard]] std::string exception_in(std::int32_t rank, std::int64_t iteration) const;
  // How the rank ended in the middle of that iteration; "": it did not.
  [[nodiscard]] std::string cut_short(std::int32_t rank, std::int64_t iteration) const;
  [[nodiscard]] const RankInfo* rank(std::int32_t rank) const;
  // Empty when the rank has no segment of that iteration.
  [[nodiscard]] const ParameterSteps& parameters(std::int32_t rank, std::int64_t iteration) const;
  // From rank.json, else from the records of this iteration: the parameter's own layout before that
  // of its gradient. nullopt: nothing is declared, or it cannot be read.
  [[nodiscard]] std::optional<DeclaredShard> declared(std::int32_t rank, std::int64_t iteration,
                                                      const std::string& parameter) const;
  // All shards of the parameters' tensors of an iteration, by key.
  [[nodiscard]] const ShardGroups& parameter_shards(std::int64_t iteration) const;
  [[nodiscard]] const CopyFinder& copies() const;
  [[nodiscard]] const PipelineStages& stages() const;
  [[nodiscard]] const CollectiveLog& collectives() const;
  // Checks look at this iteration now, and at its neighbours: what is known of others goes.
  void move_to(std::int64_t iteration);
  // An axis along which ranks work on different samples, as the program's framework or the name of
  // the axis tells.
  [[nodiscard]] bool is_data_axis(const std::string& axis) const;
  // One along which they work on the same samples.
  [[nodiscard]] bool is_tensor_axis(const std::string& axis) const;
  // "fc1 (Linear, model.py:12)"; the name alone where no rank knows more.
  [[nodiscard]] std::string described(const std::string& module) const;

 private:
  const Trace& trace_;
  std::vector<std::int64_t> iterations_;
  std::map<std::int32_t, Coordinates> places_;
  std::map<std::string, std::string> axis_kinds_;  // told alike by all ranks
  mutable std::map<std::pair<std::int32_t, std::int64_t>, ParameterSteps> steps_;
  mutable std::map<std::int64_t, ShardGroups> shards_;
  mutable std::unique_ptr<CopyFinder> copies_;
  mutable std::unique_ptr<PipelineStages> stages_;
  mutable std::unique_ptr<CollectiveLog> collectives_;
};

// nullopt: the record declares none, or it cannot be read.
[[nodiscard]] std::optional<Layout> declared_layout(const SegmentReader& segment,
                                                    const Record& record);
// "layers.0.fc1" of "layers.0.fc1.weight"; "@root" of a name without a dot.
[[nodiscard]] std::string owner_of(const std::string& parameter);
// Whether axes of this name are what Evidence asks for, where nothing else tells.
[[nodiscard]] bool is_data_axis(std::string_view axis);
[[nodiscard]] bool is_tensor_axis(std::string_view axis);
// Along axes of these names ranks see the same samples, or parts of them, whatever they were given.
[[nodiscard]] bool is_stage_or_sequence(std::string_view axis);

[[nodiscard]] std::string printed(double value);                                  // "%.3g"
[[nodiscard]] std::string counted(std::uint64_t count, const std::string& noun);  // "3 gradients"

}  // namespace ttrace::builtin
