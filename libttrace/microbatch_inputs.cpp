// SPDX-License-Identifier: Apache-2.0
// Reads root inputs and numbers the micro-batches of one run.
#include "libttrace/microbatch_inputs.hpp"

#include <algorithm>

#include "libttrace/core/trouble.hpp"
#include "libttrace/inference_family.hpp"

namespace ttrace {
namespace {

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

bool is_pipeline(const std::string& axis) {
  return axis == "pp" || starts_with(axis, "pipe") || starts_with(axis, "pp_");
}

// Axes inside a micro-batch: along them ranks hold different parts of the same samples. Without a
// reference only the name can tell, or a declaration.
bool is_sequence(const std::string& axis) {
  return axis == "cp" || axis == "sp" || starts_with(axis, "context") || starts_with(axis, "seq");
}

bool is_root_input(const Record& record, InputKind kind) {
  const bool floating = is_floating(record.dtype);
  return record.key.phase == Phase::forward && record.key.module == kRootModule &&
         (record.flags & kFlagRootInput) != 0 && starts_with(record.key.slot, "input") &&
         floating == (kind == InputKind::floating);
}

// Axes enough to tell the ranks apart, in the order in which neighbours are looked for: pipelines,
// sequences, then the smaller ones. Composite axes (dp and cp as one) are left out, so that two
// ranks can differ along a single axis.
std::vector<std::string> basis_axes(const std::map<std::int32_t, Coordinates>& places) {
  std::map<std::string, std::uint64_t> sizes;
  for (const auto& [rank, where] : places) {
    for (const auto& [name, position] : where) sizes[name] = std::max(sizes[name], position.size);
  }
  std::vector<std::string> names;
  for (const auto& [name, size] : sizes) names.push_back(name);
  std::stable_sort(names.begin(), names.end(), [&sizes](const auto& one, const auto& other) {
    return sizes[one] < sizes[other];
  });
  std::stable_partition(names.begin(), names.end(), is_sequence);
  std::stable_partition(names.begin(), names.end(), is_pipeline);
  std::vector<std::string> basis;
  std::map<std::int32_t, std::vector<std::uint64_t>> spots;
  std::size_t told_apart = 1;
  for (const std::string& name : names) {
    std::set<std::vector<std::uint64_t>> distinct;
    auto finer = spots;
    for (const auto& [rank, where] : places) {
      finer[rank].push_back(position_on(where, name).coord);
      distinct.insert(finer[rank]);
    }
    if (distinct.size() == told_apart) continue;
    told_apart = distinct.size();
    spots = std::move(finer);
    basis.push_back(name);
  }
  return basis;
}

// The slot that tells most turns apart; among equals the one that most turns have.
std::optional<std::string> anchor_slot(const RunInputs& inputs) {
  std::optional<std::string> best;
  std::pair<std::size_t, std::size_t> best_counts;
  for (const auto& [slot, contents] : contents_of(inputs)) {
    std::size_t holders = 0;
    for (const auto& [turn, slots] : inputs.turns) holders += slots.count(slot);
    const std::pair counts{contents.size(), holders};
    if (best && counts <= best_counts) continue;
    best = slot;
    best_counts = counts;
  }
  return best;
}

// Axes over which the program says that it cut this input.
std::set<std::string> declared_cuts(const Shard& shard) {
  std::set<std::string> axes;
  if (shard.record->layout == kNoLayout) return axes;
  const auto row = static_cast<std::size_t>(shard.record->layout);
  try {
    for (const auto& cuts : layout_from_json(shard.segment->layouts().at(row)).dims) {
      for (const Cut& cut : cuts) axes.insert(cut.axis.substr(0, cut.axis.find('/')));
    }
  } catch (const Trouble&) {
    // A declaration that cannot be read is reported where the tensor is placed.
  }
  return axes;
}

bool is_first_part(const Shard& shard) {
  const std::set<std::string> cuts = declared_cuts(shard);
  return std::all_of(shard.where.begin(), shard.where.end(), [&cuts](const auto& axis) {
    return axis.second.coord == 0 || !(is_sequence(axis.first) || cuts.count(axis.first) != 0);
  });
}

}  // namespace

std::map<std::int32_t, Coordinates> places_of_ranks(const Trace& trace) {
  std::map<std::int32_t, Coordinates> places;
  std::map<std::vector<std::pair<std::string, std::uint64_t>>, std::uint64_t> crowd;
  std::map<std::int32_t, std::uint64_t> turn_in_crowd;
  std::uint64_t largest = 0;
  for (const RankInfo& info : trace.ranks()) {
    Coordinates where;
    std::vector<std::pair<std::string, std::uint64_t>> spot;
    for (const auto& [name, position] : info.axes) {
      if (position.size < 2) continue;
      where[name] = position;
      spot.emplace_back(name, position.coord);
    }
    turn_in_crowd[info.rank] = crowd[spot]++;
    largest = std::max(largest, crowd[spot]);
    places[info.rank] = std::move(where);
  }
  const auto world = static_cast<std::uint64_t>(std::max<std::int32_t>(1, trace.world_size()));
  const bool no_mesh = crowd.size() == 1 && world > 1 && places.begin()->second.empty();
  if (no_mesh) {
    for (auto& [rank, where] : places) where["rank"] = {static_cast<std::uint64_t>(rank), world};
  } else if (largest > 1) {
    for (auto& [rank, where] : places) where["rank"] = {turn_in_crowd[rank], largest};
  }
  return places;
}

bool RunInputs::any() const {
  return std::any_of(turns.begin(), turns.end(),
                     [](const auto& turn) { return !turn.second.empty(); });
}

RunInputs read_inputs(const Trace& trace, std::int64_t iteration, InputKind kind) {
  RunInputs inputs;
  inputs.places = places_of_ranks(trace);
  for (const auto& [rank, where] : inputs.places) {
    const SegmentReader* segment = trace.segment(rank, iteration);
    if (segment == nullptr) continue;
    for (const Record& record : segment->records()) {
      if (record.key.microbatch < 0) continue;
      InputSlots& slots = inputs.turns[{rank, record.key.microbatch}];
      if (is_root_input(record, kind)) {
        slots.emplace(record.key.slot, Shard{rank, where, segment, &record});
      }
    }
  }
  return inputs;
}

Content content_of(const Shard& shard) {
  return {shard.record->hash, shard.record->dtype, shard.record->shape};
}

std::map<std::string, std::set<Content>> contents_of(const RunInputs& inputs) {
  std::map<std::string, std::set<Content>> contents;
  for (const auto& [turn, slots] : inputs.turns) {
    for (const auto& [slot, shard] : slots) contents[slot].insert(content_of(shard));
  }
  return contents;
}

std::vector<std::pair<std::string, std::vector<RankPair>>> neighbours_of(
    const std::map<std::int32_t, Coordinates>& places) {
  const std::vector<std::string> axes = basis_axes(places);
  std::vector<std::pair<std::string, std::vector<RankPair>>> neighbours;
  for (const std::string& moved : axes) {
    std::map<std::vector<std::uint64_t>, std::vector<std::int32_t>> lines;
    for (const auto& [rank, where] : places) {
      std::vector<std::uint64_t> spot;
      for (const std::string& axis : axes) {
        if (axis != moved) spot.push_back(position_on(where, axis).coord);
      }
      lines[spot].push_back(rank);
    }
    neighbours.emplace_back(moved, std::vector<RankPair>());
    for (const auto& [spot, ranks] : lines) {
      for (const std::int32_t one : ranks) {
        for (const std::int32_t other : ranks) {
          if (one != other) neighbours.back().second.emplace_back(one, other);
        }
      }
    }
  }
  return neighbours;
}

void follow_neighbours(const RunInputs& inputs, const std::set<Turn>& followers,
                       MicrobatchNumbers& numbers) {
  for (const auto& [axis, pairs] : neighbours_of(inputs.places)) {
    MicrobatchNumbers found;
    for (const Turn& turn : followers) {
      if (numbers.count(turn) != 0) continue;
      for (const auto& [rank, neighbour] : pairs) {
        const auto number = numbers.find({neighbour, turn.second});
        if (rank == turn.first && number != numbers.end()) found.emplace(turn, number->second);
      }
    }
    numbers.insert(found.begin(), found.end());
  }
}

MicrobatchNumbers number_by_position(const RunInputs& inputs) {
  MicrobatchNumbers numbers;
  for (const auto& [turn, slots] : inputs.turns) numbers[turn] = turn.second;
  return numbers;
}

MicrobatchNumbers number_by_content(const RunInputs& inputs) {
  const auto anchor = anchor_slot(inputs);
  if (!anchor || inputs.places.size() == 1) return number_by_position(inputs);
  // Own numbers first, then ranks: the order in which data-parallel samplers deal out samples.
  std::vector<Turn> order;
  for (const auto& [turn, slots] : inputs.turns) order.push_back(turn);
  std::sort(order.begin(), order.end(), [](const Turn& one, const Turn& other) {
    return std::pair(one.second, one.first) < std::pair(other.second, other.first);
  });
  MicrobatchNumbers numbers;
  std::map<std::pair<Content, std::size_t>, std::int32_t> known;  // content, how manieth on a rank
  std::map<std::pair<std::int32_t, Content>, std::size_t> times;
  std::set<Turn> followers;
  for (const Turn& turn : order) {
    const auto shard = inputs.turns.at(turn).find(*anchor);
    if (shard == inputs.turns.at(turn).end() || !is_first_part(shard->second)) {
      followers.insert(turn);
      continue;
    }
    const Content content = content_of(shard->second);
    const std::size_t time = times[{turn.first, content}]++;
    const auto next = static_cast<std::int32_t>(known.size());
    numbers[turn] = known.emplace(std::pair(content, time), next).first->second;
  }
  follow_neighbours(inputs, followers, numbers);
  return numbers;
}

}  // namespace ttrace
