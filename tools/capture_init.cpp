// SPDX-License-Identifier: Apache-2.0
// See capture_init.hpp.
#include "tools/capture_init.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "libttrace/logical.hpp"
#include "libttrace/pack.hpp"
#include "libttrace/trace.hpp"
#include "tools/cli.hpp"
#include "tools/pack_tensor.hpp"

namespace ttrace {
namespace {

ShardGroups parameters_of(const Trace& trace, std::int64_t iteration) {
  ShardGroups groups = group_shards(trace, iteration, number_microbatches(trace, iteration));
  for (auto it = groups.begin(); it != groups.end();) {
    const bool wanted = it->first.phase == Phase::param && it->first.slot == "value";
    it = wanted ? std::next(it) : groups.erase(it);
  }
  return groups;
}

std::vector<PackEntry> entries_of(const LogicalTensors& tensors, const std::string& trace) {
  std::vector<PackEntry> entries;
  for (const auto& [key, tensor] : tensors) {
    if (!tensor.proved()) {
      throw Trouble("--init-from", trace + ": " + key.module,
                    tensor.problems.front().message + "; declare its layout with --layout FILE");
    }
    PackEntry entry;
    entry.name = key.module;
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

void write_init_pack(const std::filesystem::path& path, const std::filesystem::path& layout_file,
                     const std::filesystem::path& pack_path, bool quiet) {
  const Trace trace = Trace::open(path);
  const std::vector<LayoutRule> rules =
      layout_file.empty() ? std::vector<LayoutRule>{} : read_layout_rules(layout_file.string());
  const std::int64_t iteration = trace.iterations().front();
  if (iteration != 0) {
    throw Trouble("--init-from", path.string(),
                  "has no iteration 0, where the start weights are (its first is " +
                      std::to_string(iteration) + "): capture it with --iterations 0," +
                      std::to_string(iteration));
  }
  const ShardGroups groups = parameters_of(trace, iteration);
  if (groups.empty()) {
    throw Trouble("--init-from", path.string(), "has no parameters, capture it without --filter");
  }
  const LogicalTensors tensors = place_all(groups, declared_layouts(groups, rules));
  const std::vector<PackEntry> entries = entries_of(tensors, path.string());

  std::uint64_t total = 0;
  for (const PackEntry& entry : entries) total += entry.bytes();
  Progress progress("copying the start weights", total, quiet);
  PackWriter pack(pack_path, entries);
  std::size_t index = 0;
  for (const auto& [key, tensor] : tensors)
    write_tensor(tensor, index++, pack,
                 [&progress](std::uint64_t bytes) { progress.advance(bytes); });
  pack.close();
}

}  // namespace ttrace
