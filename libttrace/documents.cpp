// SPDX-License-Identifier: Apache-2.0
// See documents.hpp.
#include "libttrace/documents.hpp"

#include <algorithm>

#include "libttrace/inference_sampling.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 24;  // of one input
const char* const kInput = "input";

using Values = std::vector<double>;

// 0, 1, 2, 0, 1, ...: each element is one more than the one before, or begins a document.
std::optional<DocumentLengths> lengths_of_positions(const Values& values) {
  DocumentLengths lengths;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) {
      lengths.push_back(0);
    } else if (i == 0 || values[i] != values[i - 1] + 1) {
      return std::nullopt;
    }
    ++lengths.back();
  }
  const bool only_zeros = lengths.size() == values.size();
  return only_zeros ? std::nullopt : std::optional(lengths);
}

// 0, 8, 20, 32, 32: where the documents end. Repeated offsets fill the tensor up.
std::optional<DocumentLengths> lengths_of_offsets(const Values& values) {
  if (values.size() < 2 || values.front() != 0 || !std::is_sorted(values.begin(), values.end())) {
    return std::nullopt;
  }
  DocumentLengths lengths;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] == values[i - 1]) continue;
    lengths.push_back(static_cast<std::uint64_t>(values[i] - values[i - 1]));
  }
  return lengths.empty() ? std::nullopt : std::optional(lengths);
}

Values decoded(DType dtype, const std::byte* bytes, std::uint64_t elements) {
  Values values;
  values.reserve(elements);
  for (std::uint64_t i = 0; i < elements; ++i) values.push_back(decode(dtype, bytes, i));
  return values;
}

bool is_small(const Shape& shape) {
  const std::uint64_t elements = element_count(shape);
  return elements > 0 && elements <= kMostElements;
}

bool all_alike(const std::vector<Shard>& shards) {
  return std::all_of(shards.begin(), shards.end(), [&shards](const Shard& shard) {
    return shard.record->hash == shards.front().record->hash &&
           shard.record->shape == shards.front().record->shape;
  });
}

}  // namespace

std::optional<DocumentLengths> document_lengths(const std::vector<double>& values,
                                                const Shape& shape) {
  if (values.empty() || values.front() != 0) return std::nullopt;
  const std::size_t row = shape.empty() ? 1 : shape.back();
  const Values first(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(row));
  bool same = true;
  for (std::size_t i = 0; i < values.size() && same; ++i) same = values[i] == first[i % row];
  const Values& told = same ? first : values;
  if (auto lengths = lengths_of_positions(told)) return lengths;
  return same ? lengths_of_offsets(told) : std::nullopt;
}

Key root_input(const std::string& slot, std::int32_t microbatch) {
  Key key;
  key.microbatch = microbatch;
  key.phase = Phase::forward;
  key.module = kRootModule;
  key.slot = slot;
  return key;
}

bool may_tell_documents(const Key& key, DType dtype) {
  return key.phase == Phase::forward && key.module == kRootModule && key.call == 0 &&
         key.slot.rfind(kInput, 0) == 0 && !is_floating(dtype) && dtype != DType::boolean;
}

void DocumentTable::add(const LogicalTensors& tensors) {
  for (const auto& [key, tensor] : tensors) {
    const auto held = [](const PlacedShard& placed) {
      return placed.copy || has_bytes(placed.shard);
    };
    const bool readable = may_tell_documents(key, tensor.dtype) && tensor.proved() &&
                          is_small(tensor.shape) &&
                          std::all_of(tensor.shards.begin(), tensor.shards.end(), held);
    if (!readable) continue;
    std::vector<std::byte> bytes(element_count(tensor.shape) * size_of(tensor.dtype));
    const Shape origin(tensor.shape.size(), 0);
    read_box(tensor, {origin, Shape(tensor.shape.size(), 1)}, bytes.data());
    if (decode(tensor.dtype, bytes.data(), 0) != 0) continue;  // tokens, most likely
    read_box(tensor, {origin, tensor.shape}, bytes.data());
    add(key, decoded(tensor.dtype, bytes.data(), element_count(tensor.shape)), tensor.shape);
  }
}

void DocumentTable::add(const ShardGroups& groups) {
  for (const auto& [key, shards] : groups) {
    const bool told = may_tell_documents(key, shards.front().record->dtype);
    if (told && all_alike(shards)) add(key, shards.front());
  }
}

void DocumentTable::add(const Key& key, const Shard& whole) {
  const Record& record = *whole.record;
  if (!may_tell_documents(key, record.dtype) || !is_small(record.shape) || !has_bytes(whole)) {
    return;
  }
  const auto bytes = whole.segment->bytes(record);
  if (decode(record.dtype, bytes.data(), 0) == 0) {  // else tokens, most likely
    add(key, decoded(record.dtype, bytes.data(), element_count(record.shape)), record.shape);
  }
  whole.segment->release(bytes);
}

void DocumentTable::add(const Key& key, const Values& values, const Shape& shape) {
  std::optional<DocumentLengths> lengths = document_lengths(values, shape);
  if (!lengths) return;
  const bool several = lengths->size() > 1;
  Documents& told = documents_[{key.iteration, key.microbatch}];
  const bool is_new = told.emplace(key.slot, std::move(*lengths)).second;
  packed_ = packed_ || (is_new && several);
}

const Documents* DocumentTable::of(const Key& key) const {
  const auto found = documents_.find({key.iteration, key.microbatch});
  return found == documents_.end() ? &none_ : &found->second;
}

std::vector<Cut> with_documents(std::vector<Cut> cuts, const Documents* documents) {
  if (documents == nullptr) return cuts;
  for (Cut& cut : cuts) {
    const auto told = documents->find(cut.documents);
    if (told != documents->end()) cut.sections = told->second;
  }
  return cuts;
}

Layout with_documents(Layout layout, const Documents* documents) {
  for (auto& cuts : layout.dims) cuts = with_documents(std::move(cuts), documents);
  return layout;
}

std::string missing_documents(const Layout& layout, const Documents* documents) {
  for (const auto& cuts : layout.dims) {
    for (const Cut& cut : cuts) {
      const bool known = documents != nullptr && documents->count(cut.documents) != 0;
      if (!cut.documents.empty() && !known) return cut.documents;
    }
  }
  return "";
}

std::string untold_documents(const std::string& input) {
  return "the layout is cut by @" + input + ", but this micro-batch has no integer input of the " +
         "model of that name, alike on all ranks, that tells where documents end (offsets from 0, "
         "or positions that begin at 0 with each document): name another, or write the sections";
}

}  // namespace ttrace
