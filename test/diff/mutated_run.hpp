// SPDX-License-Identifier: Apache-2.0
// A healthy run of several ranks in one of the known layouts, and what can be wrong with its trace:
// a list that tests change before it is written, and files that they change afterwards.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/libttrace/known_layouts.hpp"

namespace ttrace::testing {

// A shard as a rank records it; the declaration is kept in parts, so that each can be changed.
struct Held {
  Field field;
  Tensor tensor;
  std::string dims;
  std::optional<Shape> shape;
  std::optional<FlatRange> flat;
  bool declared = true;

  friend bool operator==(const Held& left, const Held& right) {
    return left.field.key == right.field.key && left.field.dtype == right.field.dtype &&
           left.field.kind == right.field.kind && left.tensor.shape == right.tensor.shape &&
           left.tensor.values == right.tensor.values && left.dims == right.dims &&
           left.shape == right.shape && left.flat == right.flat && left.declared == right.declared;
  }
};

// How much the program says of its layouts. Where a flat range begins it must always say.
enum class Declared { dims_and_shape, dims, nothing };

struct RunOfRanks {
  std::map<std::int32_t, Coordinates> places;
  std::map<std::int32_t, std::vector<Held>> held;
  std::vector<std::function<void(const std::filesystem::path&)>> files;  // once all are written
};

inline std::string list_text(const Shape& shape) {
  std::string text;
  for (const std::uint64_t extent : shape)
    text += (text.empty() ? "" : ",") + std::to_string(extent);
  return "[" + text + "]";
}

inline std::string declaration_of(const Held& held) {
  if (!held.declared) return "";
  std::string json = R"({"dims":")" + held.dims + R"(","source":"program")";
  if (held.shape) json += R"(,"shape":)" + list_text(*held.shape);
  if (held.flat) {
    json += R"(,"flat":{"shape":)" + list_text(held.flat->shape) + R"(,"start":)" +
            std::to_string(held.flat->start) + R"(,"count":)" + std::to_string(held.flat->count) +
            "}";
  }
  return json + "}";
}

// Tokens, or offsets of documents.
inline bool is_whole_numbers(const Key& key) {
  return key.module == kRootModule && key.slot[0] == 'i';
}

// The logical tensors of a layout: whole numbers for inputs, whatever is random for the others.
inline std::map<Key, Tensor> logical_tensors(const KnownLayout& layout, unsigned seed) {
  std::map<Key, Tensor> tensors;
  for (const KnownTensor& known : layout.tensors) {
    const Key key = key_of(known.key);
    Tensor tensor = random_tensor(known.shape, ++seed);
    if (is_whole_numbers(key)) {
      for (float& value : tensor.values) value = std::trunc(1000 * value);
    }
    if (!known.values.empty()) tensor.values = known.values;
    const std::size_t pads =
        known.padding == 0 ? 0 : known.padding * tensor.values.size() / tensor.shape[0];
    std::fill(tensor.values.end() - static_cast<std::ptrdiff_t>(pads), tensor.values.end(), 0.0f);
    tensors[key] = std::move(tensor);
  }
  return tensors;
}

inline Field field_of(const Key& key) {
  const bool input = is_whole_numbers(key);
  return {key, input ? DType::int64 : DType::float32, RecordKind::full, "",
          input ? kFlagRootInput : 0};
}

// What the rank holds of a tensor; nothing when the micro-batch is another rank's.
inline std::optional<Held> held_by(const KnownLayout& layout, const KnownTensor& known,
                                   const Tensor& logical, const Coordinates& where,
                                   Declared declared) {
  Field field = field_of(key_of(known.key));
  if (!layout.deals.empty() && field.key.microbatch >= 0) {
    const auto [coord, size] = where.at(layout.deals);
    const auto logical_number = static_cast<std::uint64_t>(field.key.microbatch);
    if (logical_number % size != coord) return std::nullopt;
    field.key.microbatch = static_cast<std::int32_t>(logical_number / size);
  }
  Held held{field, known.cutter(logical, where), known.dims, std::nullopt, std::nullopt, true};
  if (declared == Declared::dims_and_shape) held.shape = logical.shape;
  held.declared = declared != Declared::nothing || known.flat;
  if (!known.flat) return held;
  const auto [begin, end] = known.flat(held.tensor.values.size(), where);
  held.flat = FlatRange{held.tensor.shape, begin, end - begin};
  held.tensor.values = {held.tensor.values.begin() + static_cast<std::ptrdiff_t>(begin),
                        held.tensor.values.begin() + static_cast<std::ptrdiff_t>(end)};
  held.tensor.shape = {end - begin};
  return held;
}

// A layout's healthy run on disk, and changed ones beside it that share what did not change.
class HealthyRun {
 public:
  HealthyRun(const KnownLayout& layout, Declared declared, unsigned seed)
      : logical_(logical_tensors(layout, seed)), reference_("reference") {
    TraceBuilder candidate("unused");
    candidate.mesh(layout.mesh);
    run_.places = candidate.places();
    reference_.place(0, {});
    for (const KnownTensor& known : layout.tensors) {
      const Tensor& tensor = logical_.at(key_of(known.key));
      reference_.add(0, field_of(key_of(known.key)), tensor);
      for (const auto& [rank, where] : run_.places) {
        auto held = held_by(layout, known, tensor, where, declared);
        if (held) run_.held[rank].push_back(std::move(*held));
      }
    }
    builder_of(run_).write_ranks(folder_.path() / "healthy", ranks_of(run_));
  }

  [[nodiscard]] const RunOfRanks& run() const { return run_; }
  [[nodiscard]] const std::map<Key, Tensor>& logical() const { return logical_; }
  [[nodiscard]] Trace reference() const { return reference_.write(); }

  // Writes the changed ranks, links the files of the others, changes files last.
  [[nodiscard]] std::filesystem::path write(const RunOfRanks& changed) {
    namespace fs = std::filesystem;
    fs::path root = folder_.path() / std::to_string(++written_);
    std::set<std::int32_t> dirty;
    for (const auto& [rank, where] : changed.places) {
      const bool same =
          where == run_.places.at(rank) && changed.held.at(rank) == run_.held.at(rank);
      if (!same) dirty.insert(rank);
    }
    builder_of(changed).write_ranks(root, dirty);
    for (const std::int32_t rank : ranks_of(changed)) {
      if (dirty.count(rank) != 0) continue;
      const std::string name = "rank0000" + std::to_string(rank);
      fs::create_directory(root / name);
      for (const auto& entry : fs::directory_iterator(folder_.path() / "healthy" / name)) {
        fs::create_hard_link(entry.path(), root / name / entry.path().filename());
      }
    }
    for (const auto& change : changed.files) change(root);
    return root;
  }

 private:
  static std::set<std::int32_t> ranks_of(const RunOfRanks& run) {
    std::set<std::int32_t> ranks;
    for (const auto& [rank, where] : run.places) ranks.insert(rank);
    return ranks;
  }
  static TraceBuilder builder_of(const RunOfRanks& run) {
    TraceBuilder builder("candidate");
    for (const auto& [rank, where] : run.places) builder.place(rank, where);
    for (const auto& [rank, list] : run.held) {
      for (const Held& held : list) {
        Field field = held.field;
        field.layout = declaration_of(held);
        builder.add(rank, field, held.tensor);
      }
    }
    return builder;
  }

  std::map<Key, Tensor> logical_;
  TraceBuilder reference_;
  TemporaryFolder folder_;
  RunOfRanks run_;
  int written_ = 0;
};

}  // namespace ttrace::testing
