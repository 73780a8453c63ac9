// SPDX-License-Identifier: Apache-2.0
// See numbering.hpp.
#include "libttrace/numbering.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "libttrace/inference_classes.hpp"
#include "libttrace/inference_sampling.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kRuns = 4;  // of neighbours that must be found, for each parameter
constexpr std::uint64_t kRunLength = 8;
constexpr std::size_t kParameters = 3;  // looked at, for each layer
constexpr std::size_t kDigits = 9;      // of a number that counts something

using Number = std::uint64_t;
using Values = std::vector<const Shard*>;        // of one parameter, by rank
using Layer = std::map<std::string, Values>;     // by what follows the number: ".fc1.weight"
using LayerList = std::map<Number, Layer>;       // by number
using Lists = std::map<std::string, LayerList>;  // by what stands before the number

// Adds the parameter to the list of its `depth`-th numeric component, if it has one.
void add_to_list(const std::string& module, std::size_t depth, const Shard& shard, Lists& lists) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string component = module.substr(begin, end - begin);
    if (is_number(component) && component.size() <= kDigits && depth-- == 0) {
      lists[module.substr(0, begin)][std::stoull(component)][module.substr(end)].push_back(&shard);
      return;
    }
    begin = end + 1;
  }
}

std::span<const std::byte> bytes_of(const Shard& shard) {
  return shard.segment->bytes(*shard.record);
}

bool is_constant(std::span<const std::byte> bytes, std::size_t size) {
  for (std::size_t at = size; at + size <= bytes.size(); at += size) {
    if (std::memcmp(bytes.data(), bytes.data() + at, size) != 0) return false;
  }
  return true;
}

// Whether neighbours in the shard's rows are neighbours in one of the reference's shards, too.
bool is_part_of(const Shard& shard, const Values& reference) {
  const std::size_t size = size_of(shard.record->dtype);
  const std::span<const std::byte> own = bytes_of(shard);
  const std::uint64_t row = shard.record->shape.empty() ? 1 : shard.record->shape.back();
  const std::uint64_t length = std::min<std::uint64_t>(kRunLength, row);
  std::uint64_t state = seed_of(bracketed(shard.record->shape));
  for (std::size_t run = 0; run < kRuns; ++run) {
    const std::uint64_t rows = own.size() / size / row;
    // Cuts of rows lie at multiples of the length, mostly.
    const std::uint64_t first =
        next_random(state) % rows * row + next_random(state) % (row / length) * length;
    const bool found = std::any_of(reference.begin(), reference.end(), [&](const Shard* other) {
      if (other->record->dtype != shard.record->dtype) return false;
      const std::span<const std::byte> theirs = bytes_of(*other);
      return memmem(theirs.data(), theirs.size(), own.data() + first * size, length * size) !=
             nullptr;
    });
    if (!found) return false;
  }
  return true;
}

bool has_number(const std::string& name) { return starred(name) != name; }

// The parameters that tell layers apart, smallest first. Those of experts come last: their own
// numbers may be others, too.
std::vector<std::string> telling(const Layer& layer) {
  std::vector<std::tuple<bool, std::size_t, std::string>> sizes;
  for (const auto& [name, values] : layer) {
    const Shard& shard = *values.front();
    if (!has_bytes(shard)) continue;
    const auto bytes = bytes_of(shard);
    const std::size_t size = size_of(shard.record->dtype);
    if (bytes.size() < kRunLength * size || is_constant(bytes, size)) continue;
    sizes.emplace_back(has_number(name), bytes.size(), name);
  }
  std::sort(sizes.begin(), sizes.end());
  std::vector<std::string> names;
  for (const auto& [numbered, size, name] : sizes) {
    if (numbered && !names.empty() && !has_number(names.front())) break;
    if (names.size() < kParameters) names.push_back(name);
  }
  return names;
}

// Whether all that tells says that the layers are the same; nullopt when nothing tells.
std::optional<bool> same_layer(const Layer& own, const Layer& reference) {
  std::optional<bool> same;
  for (const std::string& name : telling(own)) {
    const auto theirs = reference.find(name);
    if (theirs == reference.end()) return false;
    if (!is_part_of(*own.at(name).front(), theirs->second)) return false;
    same = true;
  }
  return same;
}

// own number -> logical number; empty when nothing needs to change, or it is not clear how.
std::map<Number, Number> match(const LayerList& own, const LayerList& reference) {
  std::map<Number, Number> numbers;
  if (own.size() >= reference.size()) return numbers;
  std::set<Number> taken;
  bool moved = false;
  for (const auto& [number, layer] : own) {
    const auto alike = reference.find(number);
    std::optional<Number> found;
    if (alike != reference.end() && same_layer(layer, alike->second).value_or(false)) {
      found = number;
    }
    for (auto other = reference.begin(); !found && other != reference.end(); ++other) {
      if (same_layer(layer, other->second).value_or(false)) found = other->first;
    }
    if (!found || !taken.insert(*found).second) return {};
    numbers[number] = *found;
    moved = moved || *found != number;
  }
  return moved ? numbers : std::map<Number, Number>{};
}

class Numbering {
 public:
  Numbering(const ShardGroups& reference, const ShardGroups& candidate)
      : reference_(reference), candidate_(candidate) {}

  RankNames find() {
    // Outer numbers first: the experts of layer 0 may be those of layer 2.
    for (const std::size_t depth : {0, 1}) {
      Lists known;
      for (const auto& [key, shards] : reference_) {
        if (key.slot != "value") continue;
        for (const Shard& shard : shards) add_to_list(key.module, depth, shard, known);
      }
      std::map<std::int32_t, Lists> held;
      for (const auto& [key, shards] : candidate_) {
        if (key.slot != "value") continue;
        for (const Shard& shard : shards) {
          add_to_list(key.module, depth, shard, held[shard.rank]);
        }
      }
      for (const auto& [rank, lists] : held) match_lists(rank, lists, known);
    }
    return std::move(names_);
  }

 private:
  void match_lists(std::int32_t rank, const Lists& lists, const Lists& known) {
    for (const auto& [prefix, layers] : lists) {
      const std::string logical = logical_prefix(rank, prefix);
      const auto theirs = known.find(logical);
      if (theirs == known.end()) continue;
      std::set<std::int64_t> steps;
      for (const auto& [own, number] : match(layers, theirs->second)) {
        names_[rank].set(prefix + std::to_string(own), logical + std::to_string(number));
        steps.insert(static_cast<std::int64_t>(number) - static_cast<std::int64_t>(own));
      }
      if (steps.size() == 1) names_[rank].shift(prefix, logical, *steps.begin());
    }
  }

  // "blocks.2.experts." of "blocks.0.experts."
  std::string logical_prefix(std::int32_t rank, const std::string& prefix) const {
    const auto known = names_.find(rank);
    return known == names_.end() ? prefix : known->second.logical(prefix);
  }

  const ShardGroups& reference_;
  const ShardGroups& candidate_;
  RankNames names_;
};

}  // namespace

std::string ModuleNames::logical(const std::string& module) const {
  for (std::size_t end = module.size(); end > 0; end = module.rfind('.', end - 1)) {
    const auto found = prefixes_.find(module.substr(0, end));
    if (found != prefixes_.end()) return found->second + module.substr(end);
    if (module.rfind('.', end - 1) == std::string::npos) break;
  }
  return shifted(module);
}

std::string ModuleNames::shifted(const std::string& module) const {
  for (auto list = shifts_.rbegin(); list != shifts_.rend();
       ++list) {  // the longest of a name first
    const auto& [own, to] = *list;
    if (module.rfind(own, 0) != 0) continue;
    const std::size_t end = std::min(module.find('.', own.size()), module.size());
    const std::string number = module.substr(own.size(), end - own.size());
    if (!is_number(number) || number.size() > kDigits) continue;
    const std::int64_t counted = std::stoll(number) + to.second;
    if (counted >= 0) return to.first + std::to_string(counted) + module.substr(end);
  }
  return module;
}

RankNames find_numbers(const Trace& reference, const Trace& candidate) {
  const auto start = first_common_iteration(reference, candidate);
  if (!start) return {};
  return Numbering(group_parameters(reference, *start), group_parameters(candidate, *start)).find();
}

ShardGroups renamed(ShardGroups groups, const RankNames& names) {
  if (names.empty()) return groups;
  ShardGroups result;
  for (auto& [key, shards] : groups) {
    for (Shard& shard : shards) {
      Key logical = key;
      const auto own = names.find(shard.rank);
      if (own != names.end()) {
        logical.module = own->second.logical(key.module);
        shard.names = &own->second;
      }
      result[std::move(logical)].push_back(shard);
    }
  }
  for (auto& [key, shards] : result) {
    std::sort(shards.begin(), shards.end(),
              [](const Shard& one, const Shard& other) { return one.rank < other.rank; });
  }
  return result;
}

}  // namespace ttrace
