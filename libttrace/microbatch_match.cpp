// SPDX-License-Identifier: Apache-2.0
// Passes, each over what the one before left: equal inputs, inputs that are a part of the
// reference's, stages that see no inputs, and new numbers for what matches nothing.
#include "libttrace/microbatch_match.hpp"

#include <algorithm>

#include "libttrace/inference_family.hpp"

namespace ttrace {
namespace {

bool holds_content(const std::map<std::string, std::vector<Shard>>& slots, const std::string& slot,
                   const Shard& shard) {
  const auto shards = slots.find(slot);
  if (shards == slots.end()) return false;
  return std::any_of(shards->second.begin(), shards->second.end(), [&shard](const Shard& known) {
    return content_of(known) == content_of(shard);
  });
}

}  // namespace

MicrobatchMatcher::MicrobatchMatcher(RunInputs reference, RunInputs candidate)
    : reference_(std::move(reference)),
      candidate_(std::move(candidate)),
      reference_numbers_(number_by_content(reference_)) {
  for (const auto& [turn, number] : reference_numbers_) {
    Slots& slots = logicals_[number];
    for (const auto& [slot, shard] : reference_.turns.at(turn)) {
      slots[slot].push_back(shard);
      documents_.add(root_input(slot, number), shard);
    }
  }
  weigh_slots();
}

// A slot weighs as many different contents as it has among the reference's micro-batches; among all
// turns when the reference has only one. What is the same everywhere weighs nothing.
void MicrobatchMatcher::weigh_slots() {
  std::map<std::string, std::set<Content>> contents;
  for (const auto& [number, slots] : logicals_) {
    for (const auto& [slot, shards] : slots) contents[slot].insert(content_of(shards.front()));
  }
  const bool single = logicals_.size() == 1;
  if (single) {
    for (const auto& [slot, found] : contents_of(candidate_)) {
      const auto known = contents.find(slot);
      if (known != contents.end()) known->second.insert(found.begin(), found.end());
    }
  }
  std::size_t most = 0;
  for (const auto& [slot, found] : contents) most = std::max(most, found.size());
  for (const auto& [slot, found] : contents) {
    if (found.size() > 1 || (single && most == 1)) weights_[slot] = found.size();
  }
}

std::vector<std::string> MicrobatchMatcher::identifying_slots(const Turn& turn) const {
  std::size_t most = 0;
  std::vector<std::string> slots;
  for (const auto& [slot, shard] : candidate_.turns.at(turn)) {
    const auto weight = weights_.find(slot);
    if (weight == weights_.end() || weight->second < most) continue;
    if (weight->second > most) slots.clear();
    most = weight->second;
    slots.push_back(slot);
  }
  return slots;
}

std::set<Turn> MicrobatchMatcher::without_number() const {
  std::set<Turn> turns;
  for (const auto& [turn, slots] : candidate_.turns) {
    if (numbers_.count(turn) == 0) turns.insert(turn);
  }
  return turns;
}

std::set<Turn> MicrobatchMatcher::unmatched() const {
  std::set<Turn> turns;
  for (const Turn& turn : without_number()) {
    if (!identifying_slots(turn).empty()) turns.insert(turn);
  }
  return turns;
}

std::vector<std::vector<Turn>> MicrobatchMatcher::unmatched_kinds() const {
  std::map<std::vector<Content>, std::vector<Turn>> kinds;
  for (const Turn& turn : unmatched()) {
    std::vector<Content> contents;
    for (const std::string& slot : identifying_slots(turn)) {
      contents.push_back(content_of(candidate_.turns.at(turn).at(slot)));
    }
    kinds[contents].push_back(turn);
  }
  std::vector<std::vector<Turn>> sorted;
  for (auto& [contents, turns] : kinds) sorted.push_back(std::move(turns));
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

std::set<std::int32_t> MicrobatchMatcher::reference_microbatches() const {
  std::set<std::int32_t> numbers;
  for (const auto& [number, slots] : logicals_) numbers.insert(number);
  return numbers;
}

std::set<std::string> MicrobatchMatcher::reference_shapes(const std::string& slot) const {
  std::set<std::string> shapes;
  for (const auto& [number, slots] : logicals_) {
    const auto shards = slots.find(slot);
    if (shards != slots.end()) shapes.insert(bracketed(shards->second.front().record->shape));
  }
  return shapes;
}

std::map<std::int32_t, Shard> MicrobatchMatcher::reference_inputs(const std::string& slot) const {
  std::map<std::int32_t, Shard> whole;
  for (const auto& [number, slots] : logicals_) {
    const auto shards = slots.find(slot);
    if (shards != slots.end()) whole.emplace(number, shards->second.front());
  }
  return whole;
}

// A rank computes each micro-batch once, so equal contents match in order.
bool MicrobatchMatcher::is_taken(std::int32_t rank, std::int32_t number) const {
  return std::any_of(numbers_.begin(), numbers_.end(), [&](const auto& entry) {
    return entry.first.first == rank && entry.second == number;
  });
}

void MicrobatchMatcher::match_equal(const Turn& turn) {
  const std::vector<std::string> identifying = identifying_slots(turn);
  const InputSlots& own = candidate_.turns.at(turn);
  std::size_t best = 0;
  for (const auto& [number, slots] : logicals_) {
    const auto equal = static_cast<std::size_t>(std::count_if(
        identifying.begin(), identifying.end(),
        [&](const std::string& slot) { return holds_content(slots, slot, own.at(slot)); }));
    if (equal <= best || is_taken(turn.first, number)) continue;
    best = equal;
    numbers_[turn] = number;
  }
}

void MicrobatchMatcher::match_cut(const std::string& slot) {
  // Turns that another input has told show how this one is cut, too.
  const std::set<Turn> open = unmatched();
  std::set<Shape> shapes;
  for (const Turn& turn : open) {
    const auto own = candidate_.turns.at(turn).find(slot);
    if (own != candidate_.turns.at(turn).end()) shapes.insert(own->second.record->shape);
  }
  std::map<Turn, Shard> parts;
  for (const auto& [turn, own] : candidate_.turns) {
    const auto part = own.find(slot);
    if (part == own.end() || shapes.count(part->second.record->shape) == 0) continue;
    parts.emplace(turn, part->second);
  }
  const std::optional<CutMatch> cut = match_cut_inputs(reference_inputs(slot), parts, documents_);
  if (!cut) return;
  for (const auto& [turn, numbers] : cut->numbers) {
    const auto free = std::find_if(numbers.begin(), numbers.end(), [&](std::int32_t number) {
      return !is_taken(turn.first, number);
    });
    if (open.count(turn) != 0 && free != numbers.end()) numbers_[turn] = *free;
  }
  for (const auto& cuts : cut->layout.dims) {
    for (const Cut& used : cuts) cut_axes_.insert(used.axis);
  }
}

void MicrobatchMatcher::match() {
  for (const Turn& turn : unmatched()) match_equal(turn);
  for (const auto& [slot, weight] : weights_) match_cut(slot);
  std::set<Turn> blind = without_number();
  for (const Turn& turn : unmatched()) blind.erase(turn);
  follow_neighbours(candidate_, blind, numbers_);
}

// Neighbours that see other slots are other stages of a pipeline (tokens go into the first one,
// labels into the last), which work on the same micro-batches.
void MicrobatchMatcher::follow_other_stages() {
  MicrobatchNumbers found;
  for (const auto& [axis, pairs] : neighbours_of(candidate_.places)) {
    for (const Turn& turn : unmatched()) {
      for (const auto& [rank, neighbour] : pairs) {
        const auto number = numbers_.find({neighbour, turn.second});
        if (rank != turn.first || number == numbers_.end()) continue;
        if (identifying_slots(number->first) == identifying_slots(turn)) continue;
        if (!is_taken(rank, number->second)) found.emplace(turn, number->second);
      }
    }
  }
  numbers_.insert(found.begin(), found.end());
}

void MicrobatchMatcher::number_the_rest() {
  follow_other_stages();
  std::int32_t next = logicals_.empty() ? 0 : logicals_.rbegin()->first + 1;
  for (const std::vector<Turn>& kind : unmatched_kinds()) {
    std::vector<std::int32_t> given;  // the same inputs on several ranks are one micro-batch
    for (const Turn& turn : kind) {
      const auto free = std::find_if(given.begin(), given.end(), [&](std::int32_t number) {
        return !is_taken(turn.first, number);
      });
      numbers_[turn] = free == given.end() ? next : *free;
      if (free == given.end()) given.push_back(next++);
    }
  }
  follow_neighbours(candidate_, without_number(), numbers_);
}

}  // namespace ttrace
