// SPDX-License-Identifier: Apache-2.0
// Samples by themselves: which rows of the reference's data nobody computed, which are of other
// data, and which were computed twice.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "libttrace/hash.hpp"
#include "libttrace/inference_sampling.hpp"
#include "libttrace/microbatch_match.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kShown = 4;

struct Row {
  std::string where;  // "micro-batch 1 row 3"
  Hash128 hash;
};

// Rows of the last dimension of one input; none when it was not recorded by value.
std::vector<Row> rows_of(const Shard& shard, const std::string& name) {
  std::vector<Row> rows;
  const Record& record = *shard.record;
  if (!has_bytes(shard) || record.shape.empty() || record.shape.back() == 0) return rows;
  const auto bytes = shard.segment->bytes(record);
  const std::size_t size = record.shape.back() * size_of(record.dtype);
  for (std::size_t row = 0; (row + 1) * size <= bytes.size(); ++row) {
    HashStream hash;
    hash.append(bytes.subspan(row * size, size));
    rows.push_back({name + " row " + std::to_string(row), hash.finish()});
  }
  return rows;
}

std::string shown(const std::vector<std::string>& places) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, places.size()); ++i) {
    text += (i == 0 ? "" : ", ") + places[i];
  }
  if (places.size() > kShown) text += " and " + std::to_string(places.size() - kShown) + " more";
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> row_evidence(const MicrobatchMatcher& matcher,
                                                              const std::string& slot) {
  std::vector<Row> wanted, held;
  std::set<std::uint64_t> lengths;
  for (const auto& [number, shard] : matcher.reference_inputs(slot)) {
    lengths.insert(shard.record->shape.empty() ? 0 : shard.record->shape.back());
    for (Row& row : rows_of(shard, "micro-batch " + std::to_string(number))) wanted.push_back(row);
  }
  std::vector<std::string> twice;
  for (const auto& [turn, slots] : matcher.candidate().turns) {
    const auto found = slots.find(slot);
    if (found == slots.end()) continue;
    const Shape& shape = found->second.record->shape;
    lengths.insert(shape.empty() ? 0 : shape.back());
    std::set<Hash128> seen;
    const std::string name =
        "rank " + std::to_string(turn.first) + " micro-batch " + std::to_string(turn.second);
    for (Row& row : rows_of(found->second, name)) {
      if (!seen.insert(row.hash).second) twice.push_back(row.where);
      held.push_back(row);
    }
  }
  if (lengths.size() != 1 || wanted.empty() || held.empty()) return {};  // cut along the rows
  const auto missing_in = [](const std::vector<Row>& rows, const std::vector<Row>& others) {
    std::set<Hash128> known;
    for (const Row& row : others) known.insert(row.hash);
    std::vector<std::string> places;
    for (const Row& row : rows) {
      if (known.count(row.hash) == 0) places.push_back(row.where);
    }
    return places;
  };
  std::vector<std::pair<std::string, std::string>> evidence;
  const std::vector<std::string> lost = missing_in(wanted, held), other = missing_in(held, wanted);
  if (!lost.empty()) evidence.emplace_back("samples that nobody computed", shown(lost));
  if (!other.empty()) evidence.emplace_back("samples of other data", shown(other));
  if (!twice.empty()) evidence.emplace_back("samples computed twice", shown(twice));
  return evidence;
}

}  // namespace ttrace
