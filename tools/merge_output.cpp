// SPDX-License-Identifier: Apache-2.0
// See merge_output.hpp. Tensors of any size pass through one block of memory.
#include "tools/merge_output.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"
#include "tools/cli.hpp"
#include "tools/merge_order.hpp"

namespace ttrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;

// Calls visit(box) for blocks of at most kBlockBytes that follow each other in row-major order.
template <class Visit>
void for_each_block(const Shape& shape, std::size_t element, Visit visit) {
  std::size_t cut = shape.size();  // the dimension that is cut into blocks of rows
  std::uint64_t row = element;     // bytes of one index of `cut`
  while (cut > 0 && row * shape[cut - 1] <= kBlockBytes) row *= shape[--cut];
  Box box{Shape(shape.size(), 0), shape};
  if (cut == 0) return visit(box);
  --cut;
  const std::uint64_t rows = std::max<std::uint64_t>(1, kBlockBytes / row);
  std::fill(box.count.begin(), box.count.begin() + static_cast<std::ptrdiff_t>(cut), 1);
  while (true) {
    for (box.start[cut] = 0; box.start[cut] < shape[cut]; box.start[cut] += rows) {
      box.count[cut] = std::min(rows, shape[cut] - box.start[cut]);
      visit(box);
    }
    std::size_t dim = cut;
    while (dim > 0 && ++box.start[dim - 1] == shape[dim - 1]) box.start[--dim] = 0;
    if (dim == 0) return;
  }
}

bool has_bytes(const LogicalTensor& tensor) {
  return std::all_of(tensor.shards.begin(), tensor.shards.end(), [](const PlacedShard& placed) {
    return placed.copy || placed.shard.record->kind == RecordKind::full;
  });
}

Record merged_record(const LogicalTensor& tensor) {
  Record record;
  record.key = tensor.key;
  record.dtype = tensor.dtype;
  record.shape = tensor.shape;
  record.bytes = element_count(tensor.shape) * size_of(tensor.dtype);
  record.raw_name = raw_name_of(*tensor.shards.front().shard.record);
  std::uint32_t any = 0;
  std::uint32_t all = ~std::uint32_t{0};
  for (const PlacedShard& placed : tensor.shards) {
    any |= placed.shard.record->flags;
    all &= placed.shard.record->flags;
  }
  record.flags = (any & ~kFlagNoGradient) | (all & kFlagNoGradient);
  return record;
}

Finding without_bytes(const LogicalTensor& tensor) {
  Finding finding;
  finding.kind = FindingKind::not_compared;
  finding.key = tensor.key;
  finding.message = "it was captured without its bytes, so there is nothing to merge";
  return finding;
}

// The mesh still explains factors that gradients carry.
Json merged_axes(const Trace& trace) {
  Json axes = Json::object();
  for (const RankInfo& rank : trace.ranks()) {
    for (const auto& [name, position] : rank.axes) {
      if (position.size > 1) axes[name] = position.size;
    }
    for (const auto& [name, size] : rank.merged) axes[name] = size;
  }
  return axes;
}

Json merged_modules(const Trace& trace) {
  std::map<std::string, ModuleInfo> merged;
  for (const RankInfo& rank : trace.ranks()) {
    for (const auto& [name, module] : rank.modules) {
      const auto [found, added] = merged.emplace(name, module);
      if (added) continue;
      ModuleInfo& known = found->second;
      known.expected = known.expected || module.expected;
      known.returned_tensor = known.returned_tensor || module.returned_tensor;
      known.calls = std::max(known.calls, module.calls);
      if (known.location.empty()) known.location = module.location;
    }
  }
  Json modules = Json::object();
  for (const auto& [name, module] : merged) {
    modules[name] = {{"class", module.class_name},
                     {"forward", module.location},
                     {"expected", module.expected},
                     {"calls", module.calls},
                     {"returned_tensor", module.returned_tensor}};
  }
  return modules;
}

Json merged_events(const Trace& trace) {
  Json events = Json::array();
  for (const RankInfo& rank : trace.ranks()) {
    for (const Event& event : rank.events) {
      events.push_back({{"what", event.what},
                        {"where", "rank " + std::to_string(rank.rank) + ": " + event.where},
                        {"why", event.why},
                        {"count", event.count}});
    }
  }
  return events;
}

}  // namespace

LogicalTraceWriter::LogicalTraceWriter(const Trace& source, const fs::path& output)
    : source_(source), output_(fs::absolute(output).lexically_normal()) {
  if (!output_.has_filename()) output_ = output_.parent_path();  // "merged.trace/"
  std::error_code error;
  if (fs::exists(output_, error) && !(fs::is_directory(output_) && fs::is_empty(output_, error))) {
    throw Trouble("output", output.string(), "it is there and not an empty folder, remove it");
  }
  staging_ = output_;
  staging_ += ".part" + std::to_string(getpid());
  if (!fs::create_directory(staging_, error)) {
    throw Trouble("output", staging_.string(),
                  error ? "cannot be created: " + error.message() : "is there, remove it");
  }
  fs::create_directory(staging_ / rank_directory_name(0));
}

LogicalTraceWriter::~LogicalTraceWriter() {
  if (finished_) return;
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
}

std::vector<Finding> LogicalTraceWriter::write(std::int64_t iteration,
                                               const LogicalTensors& tensors,
                                               const std::function<void(std::uint64_t)>& advance) {
  std::vector<Finding> skipped;
  SegmentWriter segment(segment_path(staging_, 0, iteration),
                        {source_.run_id(), 0, iteration, true});
  std::map<StorageId, std::uint64_t> written;
  for (const LogicalTensor* tensor : in_execution_order(tensors)) {
    if (!tensor->proved()) continue;
    if (!has_bytes(*tensor)) {
      skipped.push_back(without_bytes(*tensor));
      continue;
    }
    Record record = merged_record(*tensor);
    StorageId storage = storage_id(*tensor);
    const auto owner = written.find(storage);
    if (owner != written.end()) record.alias_of = static_cast<std::int64_t>(owner->second);
    const std::uint64_t sequence = segment.begin(record, "");
    if (owner == written.end()) {
      write_bytes(segment, *tensor, advance);
      written.emplace(std::move(storage), sequence);
      bytes_ += record.bytes;
    }
    segment.commit();
    ++tensors_;
    if (tensor->key.phase == Phase::param) {
      parameters_[tensor->key.module] = {tensor->shape, tensor->dtype};
    }
  }
  segment.close(true);
  return skipped;
}

void LogicalTraceWriter::write_bytes(SegmentWriter& segment, const LogicalTensor& tensor,
                                     const std::function<void(std::uint64_t)>& advance) {
  if (element_count(tensor.shape) == 0) return;
  const std::size_t element = size_of(tensor.dtype);
  for_each_block(tensor.shape, element, [&](const Box& box) {
    const std::uint64_t size = volume(box) * element;
    if (block_.size() < size) block_.resize(size);
    read_box(tensor, box, block_.data());
    segment.append(std::span(block_).first(size));
    advance(size);
  });
}

std::string LogicalTraceWriter::rank_json() const {
  Json parameters = Json::object();
  bool degraded = false;
  for (const RankInfo& rank : source_.ranks()) {
    degraded = degraded || rank.degraded;
    for (const auto& [name, local] : rank.parameters) {
      const auto merged = parameters_.find(name);
      const bool known = merged != parameters_.end();
      parameters[name] = {
          {"shape", known ? merged->second.first : local.shape},
          {"dtype", std::string(name_of(known ? merged->second.second : local.dtype))},
          {"trainable", local.trainable}};
    }
  }
  const Json document{{"format", "ttrace-rank"},
                      {"version", kSegmentVersion},
                      {"run_id", source_.run_id()},
                      {"rank", 0},
                      {"world_size", 1},
                      {"host", host_name()},
                      {"pid", getpid()},
                      {"axes", Json::array()},
                      {"merged", merged_axes(source_)},
                      {"groups", Json::object()},
                      {"modules", merged_modules(source_)},
                      {"parameters", std::move(parameters)},
                      {"events", merged_events(source_)},
                      {"degraded", degraded},
                      {"records", tensors_},
                      {"bytes", bytes_},
                      {"lost", 0}};
  return document.dump(1) + "\n";
}

std::string LogicalTraceWriter::trace_json() const {
  Json document = Json::parse(source_.json());
  document["logical"] = true;
  document["versions"]["ttrace"] = std::string(version());
  return document.dump(1) + "\n";
}

void LogicalTraceWriter::finish() {
  if (tensors_ == 0) {
    throw Trouble("merge", source_.path().string(),
                  "not one tensor could be merged, the reasons are listed above");
  }
  replace_file(staging_ / rank_directory_name(0) / "rank.json", rank_json());
  replace_file(staging_ / "trace.json", trace_json());
  std::error_code error;
  fs::rename(staging_, output_, error);
  if (error) throw Trouble("output", output_.string(), "cannot be renamed: " + error.message());
  finished_ = true;
}

}  // namespace ttrace
