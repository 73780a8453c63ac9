// SPDX-License-Identifier: Apache-2.0
// A trace is a directory: trace.json, one folder a rank with rank.json and one segment an
// iteration. Opening it reads the JSON and lists the segments; segments are opened on demand and
// kept open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libttrace/layout.hpp"
#include "libttrace/segment.hpp"

namespace ttrace {

struct ModuleInfo {
  std::string class_name;   // "TransformerLayer"
  std::string location;     // "megatron/core/transformer/transformer_layer.py:123" of its forward
  bool expected = true;     // has a forward of its own (containers do not)
  std::uint64_t calls = 0;  // how often it was called while capturing
  bool returned_tensor = false;  // in any of those calls
};

struct ParameterInfo {
  Shape shape;  // of the local shard
  DType dtype = DType::float32;
  bool trainable = true;
  std::string layout_json;  // "" = nothing declared
};

// What an optimizer was told to do with some parameters in one step.
struct UpdateGroup {
  std::string optimizer;                 // "torch.optim.adamw.AdamW"
  std::map<std::string, double> values;  // "lr", "betas.0"; false and true are 0 and 1
  std::vector<std::string> parameters;   // canonical names
  // How often each had been stepped before; -1: more than never.
  std::vector<std::int64_t> steps;
};

// Why something is missing from the trace: dropped, compiled, hook failed, disk full, ...
struct Event {
  std::string what;
  std::string where;
  std::string why;
  std::uint64_t count = 1;
};

struct RankInfo {
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::vector<std::string> axis_order;            // as recorded, outermost first
  Coordinates axes;                               // only axes of size > 1 matter
  std::map<std::string, std::string> axis_kinds;  // "data", "tensor"; those that are told
  bool axes_guessed = false;  // nobody declared them: made of the process groups, or of the ranks
  std::map<std::string, std::uint64_t> merged;  // sizes of axes that a merge has put together
  std::map<std::string, std::vector<std::int32_t>> groups;  // process groups: their ranks
  std::map<std::string, ModuleInfo> modules;        // by canonical name, from named_modules()
  std::map<std::string, ParameterInfo> parameters;  // by canonical name
  std::map<std::int64_t, std::vector<UpdateGroup>> updates;  // by iteration
  std::vector<Event> events;
  std::vector<RunningCall> running;
  bool degraded = false;
  std::vector<std::int64_t> iterations;  // that have a segment, ascending
};

class Trace {
 public:
  // Throws Trouble: no such directory, no trace.json, a newer major version, a ".part" left behind
  // by a writer that no longer runs, no segment at all.
  static Trace open(const std::filesystem::path& directory, ReadMode mode = ReadMode::automatic);
  ~Trace();
  Trace(Trace&&) noexcept;

  [[nodiscard]] const std::filesystem::path& path() const;
  [[nodiscard]] const std::string& run_id() const;
  [[nodiscard]] const std::string& json() const;             // trace.json as text
  [[nodiscard]] const std::vector<RankInfo>& ranks() const;  // present ranks, ascending
  [[nodiscard]] std::int32_t world_size() const;  // as the ranks say; may exceed ranks().size()
  [[nodiscard]] std::vector<std::int64_t> iterations() const;  // of any rank, ascending
  // Whether ttrace-capture was to record that iteration; true where nothing says.
  [[nodiscard]] bool wanted(std::int64_t iteration) const;
  [[nodiscard]] bool logical() const;  // written by ttrace-merge: one "rank" of whole tensors

  // nullptr when this rank has no segment of that iteration. The reference stays valid.
  [[nodiscard]] const SegmentReader* segment(std::int32_t rank, std::int64_t iteration) const;
  // Of the segments that are open, and of those that will be opened.
  void expect(Access access) const;

 private:
  Trace();
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// <trace>/rank00003/it000007.h5
[[nodiscard]] std::filesystem::path segment_path(const std::filesystem::path& trace,
                                                 std::int32_t rank, std::int64_t iteration);

}  // namespace ttrace
