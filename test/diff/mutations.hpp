// SPDX-License-Identifier: Apache-2.0
// What goes wrong with a trace of several ranks: files that are lost or mixed up, shards that are
// lost, doubled, exchanged or cut short, and declarations and coordinates that are not true.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "test/diff/mutated_run.hpp"

namespace ttrace::testing {

// Whether the proof, or opening the trace, must say so, whatever the reference holds.
enum class Expected { not_applicable, told, open };

struct Mutation {
  std::string name;
  std::function<Expected(RunOfRanks&, std::mt19937_64&)> apply;
};

namespace mutation {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

// Ranks are picked among all, the second one is another than the first.
struct Pair {
  std::int32_t first = 0;
  std::int32_t second = 0;
};

inline Pair two_ranks(const RunOfRanks& run, Random& random) {
  const auto world = static_cast<std::int32_t>(run.places.size());
  const auto first = static_cast<std::int32_t>(random() % run.places.size());
  const auto step = static_cast<std::int32_t>(1 + random() % (run.places.size() - 1));
  return {first, (first + step) % world};
}

inline Held& any_shard(RunOfRanks& run, std::int32_t rank, Random& random) {
  std::vector<Held>& list = run.held.at(rank);
  return list[random() % list.size()];
}

inline Held* shard_of(RunOfRanks& run, std::int32_t rank, const Key& key) {
  for (Held& held : run.held.at(rank)) {
    if (held.field.key == key) return &held;
  }
  return nullptr;
}

inline std::size_t holders(RunOfRanks& run, const Key& key) {
  std::size_t count = 0;
  for (const auto& [rank, where] : run.places) count += shard_of(run, rank, key) != nullptr ? 1 : 0;
  return count;
}

// Another rank recorded the same values under this key, or there are none to lose.
inline bool spare(RunOfRanks& run, std::int32_t rank, const Held& held) {
  if (held.tensor.values.empty()) return true;
  for (const auto& [other, where] : run.places) {
    const Held* copy = other == rank ? nullptr : shard_of(run, other, held.field.key);
    if (copy != nullptr && copy->tensor.values == held.tensor.values) return true;
  }
  return false;
}

template <class Change>
void on_all(RunOfRanks& run, const Key& key, Change change) {
  for (const auto& [rank, where] : run.places) {
    if (Held* held = shard_of(run, rank, key)) change(*held);
  }
}

inline fs::path folder(const fs::path& root, std::int32_t rank) {
  return root / ("rank0000" + std::to_string(rank));
}

inline fs::path segment(const fs::path& root, std::int32_t rank) {
  return folder(root, rank) / "it000000.h5";
}

inline void exchange(const fs::path& left, const fs::path& right) {
  const fs::path spare_name = left.parent_path() / "spare";
  fs::rename(left, spare_name);
  fs::rename(right, left);
  fs::rename(spare_name, right);
}

// ---- files ----

inline std::vector<Mutation> of_files() {
  const auto on_files = [](auto change) {
    return [change](RunOfRanks& run, Random& random) {
      const Pair ranks = two_ranks(run, random);
      const std::uint64_t dice = random();
      run.files.push_back([=](const fs::path& root) { change(root, ranks, dice); });
      return Expected::told;
    };
  };
  using Root = const fs::path&;
  return {
      {"a rank's folder is deleted", on_files([](Root root, Pair ranks, std::uint64_t) {
         fs::remove_all(folder(root, ranks.first));
       })},
      {"a rank's segment is deleted", on_files([](Root root, Pair ranks, std::uint64_t) {
         fs::remove(segment(root, ranks.first));
       })},
      {"a rank's folder is copied over another's",
       on_files([](Root root, Pair ranks, std::uint64_t) {
         fs::remove_all(folder(root, ranks.second));
         fs::copy(folder(root, ranks.first), folder(root, ranks.second));
       })},
      {"a rank's segment is copied over another's",
       on_files([](Root root, Pair ranks, std::uint64_t) {
         fs::remove(segment(root, ranks.second));
         fs::copy(segment(root, ranks.first), segment(root, ranks.second));
       })},
      {"two ranks' folders are swapped", on_files([](Root root, Pair ranks, std::uint64_t) {
         exchange(folder(root, ranks.first), folder(root, ranks.second));
       })},
      {"two ranks' segments are swapped", on_files([](Root root, Pair ranks, std::uint64_t) {
         exchange(segment(root, ranks.first), segment(root, ranks.second));
       })},
      {"a segment is cut short", on_files([](Root root, Pair ranks, std::uint64_t dice) {
         const fs::path file = segment(root, ranks.first);
         const fs::path copy = file.parent_path() / "copy";  // the file itself is linked
         fs::copy(file, copy);
         fs::resize_file(copy, dice % fs::file_size(copy));
         fs::rename(copy, file);
       })},
  };
}

// ---- shards ----

inline Expected drop_shard(RunOfRanks& run, Random& random) {
  const std::int32_t rank = two_ranks(run, random).first;
  std::vector<Held>& list = run.held.at(rank);
  const std::size_t index = random() % list.size();
  const bool lost = !spare(run, rank, list[index]) && holders(run, list[index].field.key) > 1;
  const bool sum = !list[index].shape;  // an undeclared shape is what the shards add up to
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
  return lost && !sum ? Expected::told : Expected::open;
}

inline Expected drop_everywhere(RunOfRanks& run, Random& random) {
  const std::int32_t rank = two_ranks(run, random).first;
  const Key key = any_shard(run, rank, random).field.key;
  for (auto& [other, list] : run.held) {
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&key](const Held& held) { return held.field.key == key; }),
               list.end());
  }
  return Expected::open;
}

inline Expected double_shard(RunOfRanks& run, Random& random) {
  std::vector<Held>& list = run.held.at(two_ranks(run, random).first);
  list.push_back(list[random() % list.size()]);
  return Expected::open;
}

// One rank holds, and says it holds, what another one does.
inline Expected copy_shard(RunOfRanks& run, Random& random) {
  const Pair ranks = two_ranks(run, random);
  Held& held = any_shard(run, ranks.first, random);
  const Held* other = shard_of(run, ranks.second, held.field.key);
  if (other == nullptr) return Expected::not_applicable;
  held = *other;
  return Expected::open;
}

inline Expected swap_shards(RunOfRanks& run, Random& random) {
  const Pair ranks = two_ranks(run, random);
  Held& held = any_shard(run, ranks.first, random);
  Held* other = shard_of(run, ranks.second, held.field.key);
  if (other == nullptr) return Expected::not_applicable;
  std::swap(held, *other);
  return Expected::open;
}

inline Expected swap_ranks(RunOfRanks& run, Random& random) {
  const Pair ranks = two_ranks(run, random);
  std::swap(run.held.at(ranks.first), run.held.at(ranks.second));
  return Expected::open;
}

inline Expected copy_rank(RunOfRanks& run, Random& random) {
  const Pair ranks = two_ranks(run, random);
  run.held.at(ranks.first) = run.held.at(ranks.second);
  return Expected::open;
}

// The last row is missing, and the shape says so.
inline Expected truncate(RunOfRanks& run, Random& random) {
  Held& held = any_shard(run, two_ranks(run, random).first, random);
  Shape& shape = held.tensor.shape;
  if (shape.empty() || shape[0] == 0) return Expected::not_applicable;
  const std::uint64_t row = element_count(shape) / shape[0];
  held.tensor.values.resize(held.tensor.values.size() - row);
  --shape[0];
  return held.shape || held.flat ? Expected::told : Expected::open;
}

// Copies that were equal before must be bit-equal; tokens tell micro-batches apart instead.
inline Expected of_content(RunOfRanks& run, std::int32_t rank, const Held& held) {
  const bool copied = !is_whole_numbers(held.field.key) && spare(run, rank, held);
  return copied && held.declared ? Expected::told : Expected::open;
}

inline Expected change_value(RunOfRanks& run, Random& random) {
  const std::int32_t rank = two_ranks(run, random).first;
  Held& held = any_shard(run, rank, random);
  if (held.tensor.values.empty()) return Expected::not_applicable;
  const Expected expected = of_content(run, rank, held);
  float& value = held.tensor.values[random() % held.tensor.values.size()];
  value = held.field.dtype == DType::int64 ? value + 1 : 1 - 3 * value;
  return expected;
}

inline Expected rotate_rows(RunOfRanks& run, Random& random) {
  const std::int32_t rank = two_ranks(run, random).first;
  Held& held = any_shard(run, rank, random);
  const Shape& shape = held.tensor.shape;
  if (shape.empty() || shape[0] < 2) return Expected::not_applicable;
  const Expected expected = of_content(run, rank, held);
  const std::uint64_t row = held.tensor.values.size() / shape[0];
  std::rotate(held.tensor.values.begin(),
              held.tensor.values.begin() + static_cast<std::ptrdiff_t>(row),
              held.tensor.values.end());
  return expected;
}

inline Expected change_type(RunOfRanks& run, Random& random) {
  const std::int32_t rank = two_ranks(run, random).first;
  Held& held = any_shard(run, rank, random);
  const bool alone = holders(run, held.field.key) < 2;
  held.field.dtype = held.field.dtype == DType::float32 ? DType::bfloat16 : DType::float32;
  if (held.field.dtype == DType::float32) held.field.flags = 0;
  return alone || is_whole_numbers(held.field.key) ? Expected::open : Expected::told;
}

inline Expected lose_bytes(RunOfRanks& run, Random& random) {
  Held& held = any_shard(run, two_ranks(run, random).first, random);
  held.field.kind = random() % 2 == 0 ? RecordKind::stats : RecordKind::hash;
  return Expected::open;
}

inline std::vector<Mutation> of_shards() {
  return {{"a shard is dropped", drop_shard},
          {"a tensor is dropped on all ranks", drop_everywhere},
          {"a shard is recorded twice", double_shard},
          {"a shard is that of another rank", copy_shard},
          {"two ranks' shards are swapped", swap_shards},
          {"two ranks recorded as each other", swap_ranks},
          {"a rank recorded what another did", copy_rank},
          {"a shard is cut short", truncate},
          {"a value is changed", change_value},
          {"the rows of a shard are rotated", rotate_rows},
          {"a shard has another type", change_type},
          {"a shard was kept without bytes", lose_bytes}};
}

// ---- labels ----

inline Expected rename_shard(RunOfRanks& run, Random& random) {
  const std::int32_t rank = two_ranks(run, random).first;
  Held& held = any_shard(run, rank, random);
  const bool lost = !spare(run, rank, held) && holders(run, held.field.key) > 1 && held.shape;
  held.field.key.module += "x";
  return lost ? Expected::told : Expected::open;
}

inline Expected rename_everywhere(RunOfRanks& run, Random& random) {
  const Key key = any_shard(run, two_ranks(run, random).first, random).field.key;
  on_all(run, key, [](Held& held) { held.field.key.module += "x"; });
  return Expected::open;
}

inline Expected move_coordinate(RunOfRanks& run, Random& random) {
  Coordinates& where = run.places.at(two_ranks(run, random).first);
  auto axis = where.begin();
  std::advance(axis, static_cast<std::ptrdiff_t>(random() % where.size()));
  axis->second.coord =
      (axis->second.coord + 1 + random() % (axis->second.size - 1)) % axis->second.size;
  return Expected::open;
}

inline Expected swap_coordinates(RunOfRanks& run, Random& random) {
  const Pair ranks = two_ranks(run, random);
  std::swap(run.places.at(ranks.first), run.places.at(ranks.second));
  return Expected::open;
}

inline Expected resize_axis(RunOfRanks& run, Random& random) {
  Coordinates& where = run.places.at(two_ranks(run, random).first);
  auto axis = where.begin();
  std::advance(axis, static_cast<std::ptrdiff_t>(random() % where.size()));
  if (random() % 2 == 0) {
    where.erase(axis);
  } else {
    axis->second.size += 1 + random() % 3;
  }
  return Expected::open;
}

inline Expected declare_shape(RunOfRanks& run, Random& random) {
  Held& any = any_shard(run, two_ranks(run, random).first, random);
  if (!any.shape || any.shape->empty()) return Expected::not_applicable;
  const std::size_t dim = random() % any.shape->size();
  const std::uint64_t more = 1 + random() % 2;
  const bool alone = holders(run, any.field.key) < 2;
  if (random() % 2 == 0 && !alone) {
    (*any.shape)[dim] += more;
  } else {
    on_all(run, Key(any.field.key), [&](Held& held) { (*held.shape)[dim] += more; });
  }
  return Expected::told;
}

inline Expected undeclare(RunOfRanks& run, Random& random) {
  Held& any = any_shard(run, two_ranks(run, random).first, random);
  if (random() % 2 == 0) {
    any.declared = false;
  } else {
    on_all(run, Key(any.field.key), [](Held& held) { held.declared = false; });
  }
  return Expected::open;
}

// Another cut over the same axis, or the cut of another dimension.
inline std::string other_dims(const std::string& dims, const Coordinates& where, Random& random) {
  const std::size_t open = dims.find('[');
  if (open == std::string::npos || random() % 4 == 0) {
    if (dims.empty()) return "partial(" + where.begin()->first + ")";
    auto axis = where.begin();
    std::advance(axis, static_cast<std::ptrdiff_t>(random() % where.size()));
    if (dims.find(axis->first) != std::string::npos) return dims;
    return dims + " partial(" + axis->first + ")";
  }
  const std::size_t close = dims.find(']');
  const std::string cuts = dims.substr(open, close - open + 1);
  const std::string rest = dims.substr(0, open) + dims.substr(close + 1);
  if (random() % 2 == 0) {
    const std::size_t at = random() % 2 == 0 ? rest.find(' ') : rest.size();
    return at == std::string::npos ? rest : rest.substr(0, at) + cuts + rest.substr(at);
  }
  const std::string axis = cuts.substr(1, cuts.find_first_of(":,/]") - 1);
  const std::vector<std::string> kinds{"", ":zigzag", ":/2", ":/4", "/outer2", "/inner2"};
  return dims.substr(0, open + 1) + axis + kinds[random() % kinds.size()] + dims.substr(close);
}

inline Expected declare_dims(RunOfRanks& run, Random& random) {
  const std::int32_t rank = two_ranks(run, random).first;
  Held& any = any_shard(run, rank, random);
  const std::string dims = other_dims(any.dims, run.places.at(rank), random);
  if (dims == any.dims) return Expected::not_applicable;
  if (random() % 2 == 0) {
    const bool alone = holders(run, any.field.key) < 2;
    any.dims = dims;
    return alone ? Expected::open : Expected::told;
  }
  on_all(run, Key(any.field.key), [&dims](Held& held) { held.dims = dims; });
  return Expected::open;
}

inline Expected move_flat(RunOfRanks& run, Random& random) {
  for (Held& held : run.held.at(two_ranks(run, random).first)) {
    if (!held.flat) continue;
    held.flat->start = held.flat->start == 0 ? 1 + random() % 5 : held.flat->start - 1;
    return Expected::told;
  }
  return Expected::not_applicable;
}

inline std::vector<Mutation> of_labels() {
  return {{"a shard has another name", rename_shard},
          {"a tensor has another name", rename_everywhere},
          {"a rank says it stands elsewhere", move_coordinate},
          {"two ranks' coordinates are swapped", swap_coordinates},
          {"an axis of a rank has another size", resize_axis},
          {"another shape is declared", declare_shape},
          {"a declaration is missing", undeclare},
          {"other dims are declared", declare_dims},
          {"a flat range begins elsewhere", move_flat}};
}

}  // namespace mutation

inline std::vector<Mutation> mutations() {
  std::vector<Mutation> all = mutation::of_files();
  for (auto more : {mutation::of_shards(), mutation::of_labels()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace ttrace::testing
