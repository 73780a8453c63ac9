// SPDX-License-Identifier: Apache-2.0
// See evidence.hpp.
#include "invariant/builtin/evidence.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/copies.hpp"
#include "invariant/builtin/pipeline_stages.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/microbatch_inputs.hpp"

namespace ttrace::builtin {
namespace {

// Where a record of phase param, grad or step belongs; nullptr: it is none of these.
const Record** place_of(ParameterStep& step, const Key& key) {
  if (key.phase == Phase::param) {
    if (key.slot == "value") return &step.value;
    if (key.slot == "master") return &step.master;
  } else if (key.phase == Phase::grad) {
    if (key.slot == "reduced") return &step.reduced;
    if (key.slot == "clipped") return &step.clipped;
  } else if (key.phase == Phase::step) {
    if (key.slot == "param") return &step.after;
    if (key.slot == "master") return &step.master_after;
    return &step.states[key.slot];
  }
  return nullptr;
}

bool of_parameters(const Key& key) {
  return key.phase == Phase::param || key.phase == Phase::grad || key.phase == Phase::step;
}

ParameterSteps collect(const SegmentReader& segment) {
  ParameterSteps steps;
  for (const Record& record : segment.records()) {
    const Key& key = record.key;
    if (!of_parameters(key) || key.module == kRootModule || key.microbatch >= 0) continue;
    ParameterStep& step = steps[key.module];
    step.segment = &segment;
    if (key.call > 0) {
      step.steps = std::max(step.steps, key.call + 1);
      continue;
    }
    if (const Record** place = place_of(step, key)) *place = &record;
  }
  return steps;
}

// What ranks do not agree on is not told.
std::map<std::string, std::string> kinds_told(const Trace& trace) {
  std::map<std::string, std::string> kinds;
  for (const RankInfo& info : trace.ranks()) {
    for (const auto& [axis, kind] : info.axis_kinds) {
      const auto [told, fresh] = kinds.emplace(axis, kind);
      if (!fresh && told->second != kind) told->second.clear();
    }
  }
  return kinds;
}

// What is wrong with one that cannot be read is told where the tensor is placed.
std::optional<Layout> readable_layout(const std::string& json) {
  if (json.empty()) return std::nullopt;
  try {
    return layout_from_json(json);
  } catch (const Trouble&) {
    return std::nullopt;
  }
}

std::string exception_at(const RankInfo& info, const std::string& where) {
  for (const Event& event : info.events) {
    if (event.what == "exception" && event.where == where) return event.why;
  }
  return "";
}

bool begins(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [text](std::string_view prefix) { return begins(text, prefix); });
}

}  // namespace

Evidence::Evidence(const Trace& trace)
    : trace_(trace),
      iterations_(trace.iterations()),
      places_(places_of_ranks(trace)),
      axis_kinds_(kinds_told(trace)) {}

Evidence::~Evidence() = default;

bool Evidence::complete(std::int64_t iteration) const {
  const auto present = static_cast<std::size_t>(trace_.world_size());
  if (trace_.ranks().size() != present) return false;
  return std::all_of(trace_.ranks().begin(), trace_.ranks().end(), [&](const RankInfo& info) {
    return !info.degraded && trace_.segment(info.rank, iteration) != nullptr &&
           cut_short(info.rank, iteration).empty();
  });
}

std::string Evidence::exception_in(std::int32_t rank, std::int64_t iteration) const {
  const RankInfo* info = this->rank(rank);
  if (info == nullptr) return "";
  const std::string where = "iteration " + std::to_string(iteration);
  const std::string within = exception_at(*info, where);
  return within.empty() ? exception_at(*info, "after " + where) : within;
}

std::string Evidence::cut_short(std::int32_t rank, std::int64_t iteration) const {
  const SegmentReader* segment = trace_.segment(rank, iteration);
  if (segment == nullptr) return "";
  const std::string exception =
      exception_at(*this->rank(rank), "iteration " + std::to_string(iteration));
  if (!exception.empty() || segment->info().complete) return exception;
  return "its process was gone, or killed";
}

const RankInfo* Evidence::rank(std::int32_t rank) const {
  for (const RankInfo& info : trace_.ranks()) {
    if (info.rank == rank) return &info;
  }
  return nullptr;
}

const ParameterSteps& Evidence::parameters(std::int32_t rank, std::int64_t iteration) const {
  const auto found = steps_.find({rank, iteration});
  if (found != steps_.end()) return found->second;
  const SegmentReader* segment = trace_.segment(rank, iteration);
  ParameterSteps steps = segment == nullptr ? ParameterSteps{} : collect(*segment);
  return steps_.emplace(std::pair(rank, iteration), std::move(steps)).first->second;
}

std::optional<DeclaredShard> Evidence::declared(std::int32_t rank, std::int64_t iteration,
                                                const std::string& parameter) const {
  const RankInfo* info = this->rank(rank);
  const auto told = info->parameters.find(parameter);
  if (told != info->parameters.end()) {
    const auto layout = readable_layout(told->second.layout_json);
    if (layout) return DeclaredShard{*layout, element_count(told->second.shape)};
  }
  const ParameterSteps& steps = parameters(rank, iteration);
  const auto step = steps.find(parameter);
  if (step == steps.end()) return std::nullopt;
  const ParameterStep& found = step->second;
  for (const Record* record : {found.value, found.after, found.reduced, found.clipped}) {
    if (record == nullptr) continue;
    const auto layout = declared_layout(*found.segment, *record);
    if (layout) return DeclaredShard{*layout, element_count(record->shape)};
  }
  return std::nullopt;
}

const ShardGroups& Evidence::parameter_shards(std::int64_t iteration) const {
  const auto known = shards_.find(iteration);
  if (known != shards_.end()) return known->second;
  ShardGroups& groups = shards_[iteration];
  for (const auto& [rank, where] : places_) {
    const SharedCoordinates shared(where);
    const SegmentReader* segment = trace_.segment(rank, iteration);
    if (segment == nullptr) continue;
    for (const Record& record : segment->records()) {
      const Key& key = record.key;
      if (!of_parameters(key) || key.module == kRootModule || key.microbatch >= 0) continue;
      groups[key].push_back({rank, shared, segment, &record});
    }
  }
  return groups;
}

const PipelineStages& Evidence::stages() const {
  if (stages_ == nullptr) stages_ = std::make_unique<PipelineStages>(*this);
  return *stages_;
}

const CopyFinder& Evidence::copies() const {
  if (copies_ == nullptr) copies_ = std::make_unique<CopyFinder>(*this);
  return *copies_;
}

const CollectiveLog& Evidence::collectives() const {
  if (collectives_ == nullptr) collectives_ = std::make_unique<CollectiveLog>(trace_);
  return *collectives_;
}

void Evidence::move_to(std::int64_t iteration) {
  const std::int64_t first = iterations_.front();  // the start is asked for later, too
  std::erase_if(steps_, [&](const auto& entry) {
    return entry.first.second != first && entry.first.second < iteration - 1;
  });
  std::erase_if(shards_, [&](const auto& entry) { return entry.first < iteration; });
}

std::string Evidence::described(const std::string& module) const {
  for (const RankInfo& info : trace_.ranks()) {
    const auto found = info.modules.find(module);
    if (found == info.modules.end()) continue;
    const ModuleInfo& known = found->second;
    if (known.class_name.empty()) break;
    const std::string place = known.location.empty() ? "" : ", " + known.location;
    return module + " (" + known.class_name + place + ")";
  }
  return module;
}

std::optional<Layout> declared_layout(const SegmentReader& segment, const Record& record) {
  if (record.layout == kNoLayout) return std::nullopt;
  return readable_layout(segment.layouts().at(static_cast<std::size_t>(record.layout)));
}

std::string owner_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string(kRootModule) : parameter.substr(0, dot);
}

// A model may be sharded over its sequence parallel ranks, too, which share samples.
bool Evidence::is_data_axis(const std::string& axis) const {
  const auto told = axis_kinds_.find(axis);
  if (told == axis_kinds_.end() || told->second.empty() || is_stage_or_sequence(axis)) {
    return builtin::is_data_axis(axis);
  }
  return told->second == "data";
}

bool Evidence::is_tensor_axis(const std::string& axis) const {
  const auto told = axis_kinds_.find(axis);
  if (told == axis_kinds_.end() || told->second.empty()) return builtin::is_tensor_axis(axis);
  return told->second == "tensor";
}

bool is_data_axis(std::string_view axis) {
  return begins_with_any(axis, {"dp", "data", "ddp", "fsdp", "hsdp", "replica", "shard", "batch"});
}

bool is_tensor_axis(std::string_view axis) {
  return begins_with_any(axis, {"tp", "tensor", "model", "mp"}) && !begins(axis, "mpi");
}

bool is_stage_or_sequence(std::string_view axis) {
  return begins_with_any(axis, {"pp", "pipe", "cp", "context", "sp", "seq"});
}

std::string printed(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string counted(std::uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace ttrace::builtin
