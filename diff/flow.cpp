// SPDX-License-Identifier: Apache-2.0
// See flow.hpp. The order is that of the records of a micro-batch's forward pass. Where the
// reference itself ran on several ranks, the ranks' orders are merged so that numbered blocks come
// in order: a pipeline's stages may be interleaved.
#include "diff/flow.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <list>
#include <set>

namespace ttrace {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();
const std::vector<Key> kNoKeys;

Key call_of(Key key) {
  key.phase = Phase::forward;
  key.slot.clear();
  return key;
}

// A block as (stem, number): ("decoder.layers.", 3).
std::pair<std::string, std::uint64_t> numbered(const std::string& block) {
  const std::size_t digits = block.find_last_not_of("0123456789") + 1;
  const std::string number = block.substr(digits).substr(0, 18);
  return {block.substr(0, digits), number.empty() ? 0 : std::stoull(number)};
}

// Takes names from the ranks' queues, lowest rank first, but no block before a lower-numbered one
// of the same kind that waits on another rank.
template <class Name>
class StageMerger {
 public:
  explicit StageMerger(std::map<std::int32_t, std::deque<Name>> queues)
      : queues_(std::move(queues)) {
    for (const auto& [rank, queue] : queues_) {
      for (const Name& name : queue) {
        const std::string block = block_of(name.module);
        if (!block.empty()) ++waiting_[numbered(block)][rank];
      }
    }
  }

  std::vector<Name> merged() {
    std::vector<Name> all;
    while (!queues_.empty()) {
      const std::size_t before = all.size();
      for (auto& [rank, queue] : queues_) {
        while (!queue.empty() && may_go(rank, queue.front())) take(rank, queue, all);
      }
      // Numbers that contradict the ranks' own orders cannot be kept.
      if (all.size() == before) take(queues_.begin()->first, queues_.begin()->second, all);
      for (auto entry = queues_.begin(); entry != queues_.end();) {
        entry = entry->second.empty() ? queues_.erase(entry) : std::next(entry);
      }
    }
    return all;
  }

 private:
  using Block = std::pair<std::string, std::uint64_t>;

  bool may_go(std::int32_t rank, const Name& name) const {
    const std::string block = block_of(name.module);
    if (block.empty()) return true;
    const auto own = numbered(block);
    const auto end = waiting_.find(own);
    for (auto lower = waiting_.lower_bound({own.first, 0}); lower != end; ++lower) {
      if (lower->second.size() > lower->second.count(rank)) return false;
    }
    return true;
  }

  void take(std::int32_t rank, std::deque<Name>& queue, std::vector<Name>& all) {
    if (queue.empty()) return;
    const std::string block = block_of(queue.front().module);
    if (!block.empty()) forget(numbered(block), rank);
    all.push_back(std::move(queue.front()));
    queue.pop_front();
  }

  // Blocks that nobody waits for any more would be looked at again for every name.
  void forget(const Block& block, std::int32_t rank) {
    const auto found = waiting_.find(block);
    if (--found->second[rank] == 0) found->second.erase(rank);
    if (found->second.empty()) waiting_.erase(found);
  }

  std::map<std::int32_t, std::deque<Name>> queues_;
  std::map<Block, std::map<std::int32_t, std::uint64_t>> waiting_;  // how many names of each rank
};

}  // namespace

Flow::Flow(const ShardGroups& reference) {
  order_names(sequences_of(reference));
  find_blocks();
  link(reference);
}

// The forward tensors of each micro-batch, in execution order.
std::map<std::int32_t, Flow::Sequence> Flow::sequences_of(const ShardGroups& reference) {
  struct Entry {
    std::uint64_t sequence;
    Name name;
  };
  std::map<std::int32_t, std::map<std::int32_t, std::vector<Entry>>> entries;
  for (const auto& [key, shards] : reference) {
    if (key.phase != Phase::forward) continue;
    // Of the ranks that hold it the last: what the root module returns on an inner pipeline stage
    // is not yet its result.
    const auto shard = std::max_element(
        shards.begin(), shards.end(),
        [](const Shard& one, const Shard& other) { return one.rank < other.rank; });
    entries[key.microbatch][shard->rank].push_back(
        {shard->record->sequence, {key.module, key.call, key.slot}});
  }
  std::map<std::int32_t, Sequence> sequences;
  for (auto& [microbatch, by_rank] : entries) {
    std::map<std::int32_t, std::deque<Name>> queues;
    for (auto& [rank, list] : by_rank) {
      std::sort(list.begin(), list.end(),
                [](const Entry& one, const Entry& other) { return one.sequence < other.sequence; });
      for (Entry& entry : list) queues[rank].push_back(std::move(entry.name));
    }
    sequences[microbatch] = StageMerger<Name>(std::move(queues)).merged();
  }
  return sequences;
}

// One order for all micro-batches: what only a later one has comes after its predecessor there.
void Flow::order_names(const std::map<std::int32_t, Sequence>& sequences) {
  std::list<Name> order;
  std::map<Name, std::list<Name>::iterator> known;
  for (const auto& [microbatch, sequence] : sequences) {
    auto at = order.begin();
    for (const Name& name : sequence) {
      const auto found = known.find(name);
      if (found == known.end()) {
        at = std::next(known[name] = order.insert(at, name));
      } else {
        at = std::next(found->second);
      }
    }
  }
  std::uint64_t index = 0;
  for (const Name& name : order) {
    index_[name] = index;
    for (std::string module = name.module;; module = parent_of(module)) {
      starts_.emplace(module, index);  // keeps the first
      if (module == kRootModule) break;
    }
    names_.push_back(name);
    ++index;
  }
}

void Flow::find_blocks() {
  std::map<std::string, std::uint64_t> ends;
  for (const auto& [name, index] : index_) {
    const std::string block = block_of(name.module);
    if (block.empty() || name.slot.rfind("output", 0) != 0) continue;
    std::uint64_t& end = ends.emplace(block, index).first->second;
    end = std::max(end, index);
  }
  for (const auto& [block, end] : ends) block_ends_.push_back(end);
  std::sort(block_ends_.begin(), block_ends_.end());
}

void Flow::link(const ShardGroups& reference) {
  std::map<Name, std::uint64_t> ends;  // by the name that has the storage first
  for (const auto& [key, shards] : reference) {
    if (key.phase != Phase::forward) continue;
    const Key source = alias_target(key, shards).value_or(key);
    const Name name{key.module, key.call, key.slot};
    if (is_input(key)) {
      inputs_[call_of(key)].push_back(source);
      consumers_[source].push_back(call_of(key));
    } else if (source.phase == Phase::forward && !is_input(source)) {
      const Name first{source.module, source.call, source.slot};
      firsts_[name] = first;
      const auto index = index_.find(name);
      if (index != index_.end()) ends[first] = std::max(ends[first], index->second);
    }
  }
  for (const auto& [name, first] : firsts_) storage_ends_[name] = ends[first];
}

std::optional<std::uint64_t> Flow::index_of(const Key& forward) const {
  const auto found = index_.find({forward.module, forward.call, forward.slot});
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

// Index of the first tensor in a module, or in the nearest module around it that has any.
std::uint64_t Flow::start_of(const std::string& module) const {
  for (std::string at = module;; at = parent_of(at)) {
    const auto found = starts_.find(at);
    if (found != starts_.end()) return found->second;
    if (at == kRootModule) return 0;
  }
}

std::uint64_t Flow::depth(const Key& key) const {
  Key forward = key;
  forward.slot = output_slot(key.slot);
  const bool activation =
      key.phase == Phase::forward || key.phase == Phase::recompute || key.phase == Phase::backward;
  const std::optional<std::uint64_t> own = activation ? index_of(forward) : std::nullopt;
  const std::uint64_t index = own ? *own : start_of(module_of(key));
  const auto finished = std::lower_bound(block_ends_.begin(), block_ends_.end(), index);
  return 1 + static_cast<std::uint64_t>(finished - block_ends_.begin());
}

Place Flow::backward_place(const Key& key) const {
  const std::uint64_t count = index_.size();
  Key forward = key;
  forward.slot = output_slot(key.slot);
  const std::optional<std::uint64_t> own = index_of(forward);
  const std::uint64_t index = own ? *own : start_of(module_of(key));
  const auto end = storage_ends_.find({forward.module, forward.call, forward.slot});
  const std::uint64_t last = end == storage_ends_.end() ? index : end->second;
  return {Stage::backward, count - last, index, key.microbatch};
}

Place Flow::step_place(const Key& key) const {
  const std::uint64_t reversed = index_.size() - start_of(module_of(key));
  if (key.phase == Phase::grad) {
    if (key.module == kRootModule) return {Stage::clip, 0, 0, -1};
    // A local gradient comes right after the gradient of the module's output.
    if (key.slot == "local") return {Stage::backward, reversed, kUnknown, key.microbatch};
    return {key.slot == "reduced" ? Stage::reduction : Stage::clip, reversed, 1, -1};
  }
  if (key.module == kRootModule) return {Stage::clip, 0, 0, -1};
  const std::uint64_t within = key.slot == "param" ? 2 : (key.slot == "master" ? 1 : 0);
  return {Stage::step, reversed, within, -1};
}

Place Flow::place(const Key& key) const {
  switch (key.phase) {
    case Phase::param:
      return {Stage::parameters, start_of(module_of(key)), 0, -1};
    case Phase::forward: {
      if (key.module == kRootModule && is_input(key)) return {Stage::data, 0, 0, key.microbatch};
      const Stage stage = key.module == kRootModule ? Stage::loss : Stage::forward;
      return {stage, index_of(key).value_or(start_of(key.module)), 0, key.microbatch};
    }
    case Phase::recompute:
    case Phase::backward:
      return backward_place(key);
    case Phase::grad:
    case Phase::step:
      return step_place(key);
    case Phase::comm:
      break;
  }
  return {Stage::step, kUnknown, 0, key.microbatch};
}

const std::vector<Key>& Flow::inputs_of(const Key& output) const {
  const auto found = inputs_.find(call_of(output));
  return found == inputs_.end() ? kNoKeys : found->second;
}

const std::vector<Key>& Flow::consumers_of(const Key& output) const {
  const auto found = consumers_.find(output);
  return found == consumers_.end() ? kNoKeys : found->second;
}

std::vector<std::string> Flow::takers_of(const Key& output) const {
  Key source = output;
  const auto first = firsts_.find({output.module, output.call, output.slot});
  if (first != firsts_.end()) {
    source.module = first->second.module;
    source.call = first->second.call;
    source.slot = first->second.slot;
  }
  std::set<std::string> takers;
  for (const Key& call : consumers_of(source)) {
    if (!lies_in(output.module, call.module)) takers.insert(call.module);
  }
  std::vector<std::string> outermost;
  for (const std::string& module : takers) {
    const bool inner = std::any_of(takers.begin(), takers.end(), [&](const std::string& other) {
      return other != module && lies_in(module, other);
    });
    if (!inner) outermost.push_back(module);
  }
  return outermost;
}

std::string Flow::next_after(const Key& output) const {
  const std::optional<std::uint64_t> own = index_of(output);
  if (!own) return "";
  const auto end = storage_ends_.find({output.module, output.call, output.slot});
  const std::uint64_t next = 1 + (end == storage_ends_.end() ? *own : std::max(*own, end->second));
  if (next >= names_.size()) return "";
  std::string module = names_[next].module;
  if (lies_in(output.module, module)) return module;
  while (!lies_in(output.module, parent_of(module))) module = parent_of(module);
  return module;
}

}  // namespace ttrace
