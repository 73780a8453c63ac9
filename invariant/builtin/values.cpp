// SPDX-License-Identifier: Apache-2.0
// See values.hpp.
#include "invariant/builtin/values.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"

namespace ttrace::builtin {
namespace {

constexpr std::uint64_t kTile = 65536;

bool has_bytes(const SegmentReader& segment, const Record& record) {
  const Record* target = &record;
  while (target->alias_of != kNotAlias) {
    target = &segment.records().at(static_cast<std::size_t>(target->alias_of));
  }
  return target->kind == RecordKind::full;
}

std::optional<FlatRange> flat_range(const SegmentReader& segment, const Record& record) {
  if (record.layout == kNoLayout) return std::nullopt;
  const std::string& json = segment.layouts().at(static_cast<std::size_t>(record.layout));
  if (json.find("\"flat\"") == std::string::npos) return std::nullopt;
  try {
    return layout_from_json(json).flat;
  } catch (const Trouble&) {
    return std::nullopt;
  }
}

}  // namespace

template <class Out>
void ElementReader::read_as(std::uint64_t offset, std::uint64_t count, std::vector<Out>& out) {
  const std::uint64_t size = size_of(part_.record->dtype);
  const std::uint64_t from = (part_.start + offset) * size;
  const std::byte* bytes = part_.segment->view(*part_.record, from, count * size, buffer_);
  out.resize(count);
  visit_dtype(part_.record->dtype, [&](auto zero) {
    using Element = decltype(zero);
    for (std::uint64_t i = 0; i < count; ++i) {
      Element element;
      std::copy_n(bytes + i * sizeof(Element), sizeof(Element),
                  reinterpret_cast<std::byte*>(&element));
      if constexpr (std::is_integral_v<Element>) {
        out[i] = static_cast<Out>(element);
      } else {
        out[i] = static_cast<Out>(widen(element));
      }
    }
  });
  part_.segment->release(*part_.record, from, count * size);
}

void ElementReader::read(std::uint64_t offset, std::uint64_t count, std::vector<double>& out) {
  read_as(offset, count, out);
}

void ElementReader::read(std::uint64_t offset, std::uint64_t count,
                         std::vector<std::int64_t>& out) {
  read_as(offset, count, out);
}

std::optional<Part> whole(const SegmentReader& segment, const Record* record) {
  if (record == nullptr || !has_bytes(segment, *record)) return std::nullopt;
  return Part{&segment, record, 0, element_count(record->shape)};
}

std::optional<std::vector<Part>> aligned(const SegmentReader& segment,
                                         const std::vector<const Record*>& records) {
  std::vector<Part> parts;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::optional<FlatRange> piece;
  for (const Record* record : records) {
    const auto part = whole(segment, record);
    if (!part) return std::nullopt;
    least = std::min(least, part->count);
    parts.push_back(*part);
  }
  for (const Part& part : parts) {
    if (part.count == least && !piece) piece = flat_range(segment, *part.record);
  }
  for (Part& part : parts) {
    if (part.count == least) continue;
    const bool around = piece && piece->shape == part.record->shape && piece->count == least &&
                        piece->start + least <= part.count;
    if (!around) return std::nullopt;
    part.start = piece->start;
    part.count = least;
  }
  return parts;
}

void for_each_tile(const std::vector<Part>& parts,
                   const std::function<void(const Tile&, std::uint64_t)>& visit) {
  std::vector<ElementReader> readers;
  readers.reserve(parts.size());
  for (const Part& part : parts) readers.emplace_back(part);
  Tile tile(parts.size());
  const std::uint64_t total = parts.empty() ? 0 : parts.front().count;
  for (std::uint64_t first = 0; first < total; first += kTile) {
    const std::uint64_t count = std::min(kTile, total - first);
    for (std::size_t i = 0; i < parts.size(); ++i) readers[i].read(first, count, tile[i]);
    visit(tile, first);
  }
}

double relative_error(const Part& left, const Part& right) {
  double error = 0;
  double norm = 0;
  for_each_tile({left, right}, [&](const Tile& tile, std::uint64_t) {
    for (std::size_t i = 0; i < tile[0].size(); ++i) {
      const double difference = tile[1][i] - tile[0][i];
      error += difference * difference;
      norm += tile[0][i] * tile[0][i];
    }
  });
  return error == 0 ? 0 : std::sqrt(error / norm);
}

std::uint64_t row_length(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }

}  // namespace ttrace::builtin
