// SPDX-License-Identifier: Apache-2.0
// See feed.hpp. docs/format.md describes the pack.
#include "capture/feed.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "capture/feed_part.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

using nlohmann::json;

template <class Number>
Number number_of(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) throw std::invalid_argument(text + " is no number");
  return number;
}

Layout parse_layout(const json& entry) {
  Layout layout = parse_dims(entry.at("dims").get<std::string>());
  if (entry.contains("swapped")) {
    const auto& dims = entry.at("swapped");
    layout.swapped = {dims.at(0).get<std::size_t>(), dims.at(1).get<std::size_t>()};
  }
  return layout;
}

}  // namespace

Feed::Feed(const std::string& pack, std::int32_t rank) : pack_(pack) {
  try {
    const json replay = json::parse(pack_.replay());
    for (const auto& [iteration, ranks] : replay.at("microbatches").items()) {
      const auto number = number_of<std::int64_t>(iteration);
      iterations_.insert(number);
      const auto own = ranks.find(std::to_string(rank));
      if (own == ranks.end()) continue;
      for (const auto& [microbatch, in_pack] : own->items()) {
        microbatches_[{number, number_of<std::int32_t>(microbatch)}] = in_pack.get<std::int32_t>();
      }
    }
    if (!replay.contains("layouts")) return;
    for (const auto& [name, entry] : replay.at("layouts").items()) {
      layouts_.emplace(name, parse_layout(entry));
    }
  } catch (const std::exception& error) {
    throw Trouble("--replay", pack,
                  std::string(error.what()) + ", make it again with ttrace-merge --pack");
  }
}

void Feed::learn(std::string_view text) {
  const json members = json::parse(text, nullptr, false);
  if (!members.is_object() || !members.contains("axes")) return;
  where_.clear();
  for (const json& axis : members.at("axes")) {
    where_[axis.at("name").get<std::string>()] = {axis.at("coord").get<std::uint64_t>(),
                                                  axis.at("size").get<std::uint64_t>()};
  }
}

// Keys of states are those of what the step before has left; masters are known before the first.
std::optional<Key> Feed::key_in_pack(const Key& key) const {
  Key there = key;
  if (key.phase == Phase::step) {
    if (key.slot == "param" || key.call != 0) return std::nullopt;
    if (key.iteration == 0 && key.slot != "master") return std::nullopt;
    if (key.iteration == 0) there.phase = Phase::param;
    if (key.iteration > 0) --there.iteration;
  }
  if (key.microbatch < 0) return there;
  const auto number = microbatches_.find({key.iteration, key.microbatch});
  if (number == microbatches_.end()) return std::nullopt;
  there.microbatch = number->second;
  return there;
}

const PackEntry* Feed::find(const Key& key) const {
  const std::optional<Key> there = key_in_pack(key);
  if (!there) return nullptr;
  const std::string name = to_string(*there);
  const auto& entries = pack_.entries();
  const auto entry = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const PackEntry& one, const std::string& other) { return one.name < other; });
  return entry != entries.end() && entry->name == name ? &*entry : nullptr;
}

bool Feed::has_iteration(std::int64_t iteration) const { return iterations_.count(iteration) != 0; }

bool Feed::knows_state(std::int64_t iteration) const {
  return iteration == 0 || has_iteration(iteration - 1);
}

bool Feed::replaces_parameters(std::int64_t iteration) const {
  return !knows_state(iteration) || (iteration == 0 && !layouts_.empty());
}

std::optional<Layout> Feed::layout_of(const PackEntry& entry, std::string_view declared) const {
  const auto found = layouts_.find(entry.name);
  std::optional<FlatRange> flat;
  // Of most tensors nothing but the dims is told, and those are in the pack.
  const bool told = declared.find("\"flat\"") != std::string_view::npos;
  if (told) flat = layout_from_json(declared).flat;
  if (found == layouts_.end() && !flat) return std::nullopt;
  Layout layout;
  layout.dims.resize(entry.shape.size());
  if (found != layouts_.end()) layout = found->second;
  layout.flat = flat;
  return layout;
}

std::string Feed::write(const PackEntry& entry, DType dtype, const Shape& shape,
                        std::string_view declared, std::byte* out) const {
  if (is_floating(dtype) != is_floating(entry.dtype) ||
      (!is_floating(dtype) && dtype != entry.dtype)) {
    return "it is " + std::string(name_of(dtype)) + " here, " + std::string(name_of(entry.dtype)) +
           " in the pack";
  }
  try {
    const std::optional<Layout> layout = layout_of(entry, declared);
    if (!layout && shape != entry.shape) {
      return "it is " + text_of(shape) + " here, " + text_of(entry.shape) + " in the pack";
    }
    std::span<const std::byte> part = pack_.bytes(entry);
    std::vector<std::byte> buffer;
    if (layout) {
      const Part wanted{pieces_of(*layout, entry.shape, shape, where_), entry.shape, shape};
      buffer = cut_out(part, wanted, size_of(entry.dtype));
      part = buffer;
    }
    store_as(dtype, entry.dtype, entry.scale, part, out);
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace ttrace
