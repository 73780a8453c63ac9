// SPDX-License-Identifier: Apache-2.0
// See inspect_get.hpp.
#include "tools/inspect_get.hpp"

#include <algorithm>

#include "diff/tiles.hpp"
#include "libttrace/core/trouble.hpp"
#include "tools/npy.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTile = std::uint64_t{1} << 18;  // elements
constexpr std::size_t kWindow = std::size_t{4} << 20;    // bytes

void write_shard(const Shard& shard, const std::filesystem::path& output) {
  const Record& record = *shard.record;
  NpyWriter file(output, record.dtype, record.shape);
  const auto bytes = shard.segment->bytes(record);
  for (std::size_t at = 0; at < bytes.size(); at += kWindow) {
    const auto window = bytes.subspan(at, std::min(kWindow, bytes.size() - at));
    file.append(window);
    shard.segment->release(window);
  }
  file.close();
}

void write_whole(const LogicalTensor& tensor, const std::filesystem::path& output) {
  NpyWriter file(output, tensor.dtype, tensor.shape);
  std::vector<std::byte> bytes;
  for (const Box& box : tiles_of(tensor.shape, kTile)) {
    bytes.resize(volume(box) * size_of(tensor.dtype));
    read_box(tensor, box, bytes.data());
    file.append(bytes);
  }
  file.close();
}

std::string ranks_text(const std::vector<Shard>& shards) {
  std::string text;
  for (const Shard& shard : shards) {
    text += (text.empty() ? "" : ", ") + std::to_string(shard.rank);
  }
  return text;
}

void check_kept(const std::vector<Shard>& shards, const Key& key) {
  for (const Shard& shard : shards) {
    if (shard.record->kind == RecordKind::full) continue;
    throw Trouble("--get", to_string(key), "was captured without its bytes (--what stats or hash)");
  }
}

}  // namespace

std::vector<Shard> shards_of(const Trace& trace, const Key& key) {
  const std::vector<std::int64_t> iterations = trace.iterations();
  if (std::find(iterations.begin(), iterations.end(), key.iteration) == iterations.end()) {
    throw Trouble("KEY", to_string(key), "that iteration is not in " + trace.path().string());
  }
  const ShardGroups groups =
      group_shards(trace, key.iteration, number_microbatches(trace, key.iteration));
  const auto found = groups.find(key);
  if (found != groups.end()) return found->second;
  std::string slots;
  for (const auto& [other, shards] : groups) {
    if (other.module == key.module) slots += (slots.empty() ? "" : ", ") + to_string(other);
    if (slots.size() > 300) break;
  }
  throw Trouble("KEY", to_string(key),
                "is not in the trace" + (slots.empty() ? "; --list shows all keys"
                                                       : "; of that module there are " + slots));
}

void get_tensor(const Trace& trace, const Key& key, std::optional<std::int32_t> rank,
                const std::vector<LayoutRule>& rules, const std::filesystem::path& output) {
  const std::vector<Shard> shards = shards_of(trace, key);
  if (rank) {
    const auto own = std::find_if(shards.begin(), shards.end(),
                                  [&](const Shard& shard) { return shard.rank == *rank; });
    if (own == shards.end()) {
      throw Trouble("--rank", std::to_string(*rank),
                    "does not have " + to_string(key) + "; ranks " + ranks_text(shards) + " do");
    }
    check_kept({*own}, key);
    return write_shard(*own, output);
  }
  check_kept(shards, key);
  const LayoutDecisions decisions = declared_layouts({{key, shards}}, rules);
  const LogicalTensor tensor = place_shards(key, shards, decisions.at(key));
  if (!tensor.proved()) {
    throw Trouble("--get", to_string(key),
                  "cannot be put together: " + tensor.problems.front().message +
                      "; --rank N writes one of ranks " + ranks_text(shards));
  }
  write_whole(tensor, output);
}

}  // namespace ttrace
