// SPDX-License-Identifier: Apache-2.0
// See consumers.hpp.
#include "invariant/builtin/collective/consumers.hpp"

#include <algorithm>

namespace ttrace::builtin {
namespace {

constexpr std::uint64_t kEqual = 3;  // at least, and three times as many as those that differ

bool may_consume(const Record& record) {
  const Phase phase = record.key.phase;
  return (phase == Phase::forward || phase == Phase::backward) && tells(&record);
}

}  // namespace

// Tensors of modules in the same layer, after the call, of the output's size.
void ConsumerLinks::add(std::int32_t /*rank*/, const SegmentReader& segment,
                        const std::vector<PlacedCall>& calls) {
  using Layer = std::pair<std::int32_t, std::vector<std::uint64_t>>;  // micro-batch, numbers
  std::map<Layer, std::vector<const Record*>> layers;
  for (const Record& record : segment.records()) {
    if (!may_consume(record)) continue;
    const std::vector<std::uint64_t> numbers = numbers_in(record.key.module);
    if (!numbers.empty()) layers[{record.key.microbatch, numbers}].push_back(&record);
  }
  for (const PlacedCall& placed : calls) {
    const Collective& row = *placed.call.row;
    const Record* output = placed.call.output();
    if (row.size < 2 || !tells(output)) continue;
    const auto layer = layers.find({row.microbatch, numbers_in(row.module)});
    if (layer == layers.end()) continue;
    for (const Record* record : layer->second) {
      const bool fits = record->dtype == output->dtype && record->bytes == output->bytes;
      if (!fits || record->sequence < row.position) continue;
      const Key& key = record->key;
      look_at({pattern_of(row.module), row.function, pattern_of(key.module), key.slot,
               placed.place.number, key.phase, key.call},
              placed, *record);
    }
  }
}

void ConsumerLinks::look_at(const Link& link, const PlacedCall& placed, const Record& record) {
  Votes& votes = votes_[link];
  const std::vector<std::uint64_t> numbers = numbers_in(record.key.module);
  if (placed.call.output()->hash == record.hash) {
    ++votes.equal;
    votes.agreeing.insert(numbers);
    return;
  }
  ++votes.different;
  if (votes.told.emplace(placed.call.rank, record.key.module).second) {
    votes.odd.emplace_back(placed.call, &record);
  }
}

std::vector<OddConsumer> ConsumerLinks::odd() const {
  std::vector<OddConsumer> odd;
  for (const auto& [link, votes] : votes_) {
    if (votes.equal < kEqual || votes.different * 3 > votes.equal) continue;
    for (const auto& [call, record] : votes.odd) {
      const std::vector<std::uint64_t> numbers = numbers_in(record->key.module);
      const bool end = numbers < *votes.agreeing.begin() || *votes.agreeing.rbegin() < numbers;
      odd.push_back({call, record, votes.equal, votes.different, end});
    }
  }
  return odd;
}

std::uint64_t ConsumerLinks::compared() const {
  std::uint64_t total = 0;
  for (const auto& [link, votes] : votes_) {
    if (votes.equal >= kEqual) total += votes.equal + votes.different;
  }
  return total;
}

}  // namespace ttrace::builtin
