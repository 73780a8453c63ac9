// SPDX-License-Identifier: Apache-2.0
// Compiles the cuts of one dimension to runs, and what boxes can do (pieces.cpp multiplies the
// runs). A cut picks positions of a sequence; the outermost sees the elements of the dimension,
// each inner one the sequence that the cut around it left to this rank, in local order.
#include "libttrace/layout.hpp"

#include <algorithm>
#include <charconv>

#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

// More sections than this are a mistake in the layout, not a way to cut tensors.
constexpr std::uint64_t kMaxSections = std::uint64_t{1} << 22;

// Positions [begin, end) of a sequence.
struct Span {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

[[noreturn]] void refuse_cut(const Cut& cut, std::uint64_t extent, const std::string& why) {
  Layout shown;
  shown.dims = {{cut}};
  throw Trouble("layout", to_string(shown), std::to_string(extent) + " elements " + why);
}

// The `position`th part that torch.chunk makes of [begin, begin + extent): parts of ceil(extent /
// size) elements, the last ones smaller or empty.
Span chunk(std::uint64_t begin, std::uint64_t extent, const AxisPosition& position) {
  const std::uint64_t part = extent / position.size + (extent % position.size != 0 ? 1 : 0);
  const std::uint64_t first = std::min(extent, part * position.coord);
  return {begin + first, begin + std::min(extent, first + part)};
}

// All of it where the cut names no sections.
std::vector<Span> sections_of(std::uint64_t extent, const Cut& cut) {
  if (cut.sections.empty() && cut.documents.empty()) return {{0, extent}};
  if (cut.sections.empty()) {
    refuse_cut(cut, extent, "cannot be cut before it is known where the documents end");
  }
  std::vector<Span> spans;
  std::uint64_t begin = 0;
  for (const std::uint64_t section : cut.sections) {
    if (section > extent - begin) refuse_cut(cut, extent, "are fewer than the sections add up to");
    spans.push_back({begin, begin + section});
    begin += section;
  }
  if (begin != extent) refuse_cut(cut, extent, "are more than the sections add up to");
  return spans;
}

// Chunks r and 2n-1-r of each section; the whole is one when there are none.
std::vector<Span> zigzag_spans(std::uint64_t extent, const Cut& cut, const AxisPosition& position) {
  const std::uint64_t parts = 2 * position.size;
  const std::uint64_t mirrored = parts - 1 - position.coord;
  std::vector<Span> spans;
  for (const auto& [begin, end] : sections_of(extent, cut)) {
    if ((end - begin) % parts != 0) {
      refuse_cut(cut, end - begin, "do not divide into " + std::to_string(parts) + " chunks");
    }
    const std::uint64_t part = (end - begin) / parts;
    for (const std::uint64_t chunk : {position.coord, mirrored}) {
      spans.push_back({begin + chunk * part, begin + (chunk + 1) * part});
    }
  }
  return spans;
}

std::vector<Span> strided_spans(std::uint64_t extent, const Cut& cut,
                                const AxisPosition& position) {
  if (cut.parts == 0 || extent % cut.parts != 0) {
    refuse_cut(cut, extent, "do not divide into " + std::to_string(cut.parts) + " equal sections");
  }
  if (cut.parts > kMaxSections) refuse_cut(cut, extent, "are cut into too many sections");
  const std::uint64_t section = extent / cut.parts;
  std::vector<Span> spans;
  for (std::uint64_t i = 0; i < cut.parts; ++i) {
    spans.push_back(chunk(i * section, section, position));
  }
  return spans;
}

std::vector<Span> section_spans(std::uint64_t extent, const Cut& cut,
                                const AxisPosition& position) {
  std::vector<Span> spans;
  for (const auto& [begin, end] : sections_of(extent, cut)) {
    spans.push_back(chunk(begin, end - begin, position));
  }
  return spans;
}

std::vector<Span> ragged_spans(std::uint64_t extent, const Cut& cut, const AxisPosition& position) {
  if (cut.sections.size() != position.size) {
    refuse_cut(cut, extent, "cannot be cut before the sizes of all shards are known");
  }
  std::uint64_t total = 0;
  std::uint64_t begin = 0;
  for (std::size_t coord = 0; coord < cut.sections.size(); ++coord) {
    if (coord == position.coord) begin = total;
    total += cut.sections[coord];
  }
  if (total != extent) {
    refuse_cut(cut, extent, "are not the " + std::to_string(total) + " that the shards add up to");
  }
  return {{begin, begin + cut.sections[position.coord]}};
}

std::vector<Span> spans_of(const Cut& cut, std::uint64_t extent, const AxisPosition& position) {
  if (position.size == 0 || position.coord >= position.size) {
    refuse_cut(cut, extent,
               "cannot be cut: coordinate " + std::to_string(position.coord) +
                   " on an axis of size " + std::to_string(position.size));
  }
  switch (cut.kind) {
    case CutKind::shard:
      return {chunk(0, extent, position)};
    case CutKind::zigzag:
      return zigzag_spans(extent, cut, position);
    case CutKind::strided:
      return strided_spans(extent, cut, position);
    case CutKind::sections:
      return section_spans(extent, cut, position);
    case CutKind::ragged:
      return ragged_spans(extent, cut, position);
  }
  __builtin_unreachable();
}

void append_run(std::vector<Run>& runs, std::uint64_t global, std::uint64_t count) {
  if (count == 0) return;
  if (!runs.empty() && runs.back().global + runs.back().count == global) {
    runs.back().count += count;
    return;
  }
  runs.push_back({local_extent(runs), count, global});
}

// The part of `runs` that lies at the local positions of `spans`, one after the other.
std::vector<Run> select(const std::vector<Run>& runs, const std::vector<Span>& spans) {
  std::vector<Run> selected;
  for (const Span& span : spans) {
    auto run = std::partition_point(runs.begin(), runs.end(), [&span](const Run& candidate) {
      return candidate.local + candidate.count <= span.begin;
    });
    for (; run != runs.end() && run->local < span.end; ++run) {
      const std::uint64_t begin = std::max(span.begin, run->local);
      const std::uint64_t end = std::min(span.end, run->local + run->count);
      append_run(selected, run->global + (begin - run->local), end - begin);
    }
  }
  return selected;
}

// "tp/outer2": the axis tp of n ranks as 2 neighbourhoods of n/2, or "tp/inner2": the place among 2
// neighbours.
struct SplitAxis {
  std::string base;
  std::uint64_t size = 0;
  bool inner = false;
};

std::optional<SplitAxis> split_axis(const std::string& axis) {
  for (const std::string_view part : {"/outer", "/inner"}) {
    const std::size_t at = axis.rfind(part);
    if (at == std::string::npos) continue;
    SplitAxis split{axis.substr(0, at), 0, part == "/inner"};
    const char* end = axis.data() + axis.size();
    const auto [stop, error] = std::from_chars(axis.data() + at + part.size(), end, split.size);
    if (error == std::errc() && stop == end) return split;
  }
  return std::nullopt;
}

}  // namespace

bool cuts_over(const Layout& layout, const std::string& axis) {
  return std::any_of(layout.dims.begin(), layout.dims.end(), [&axis](const auto& cuts) {
    return std::any_of(cuts.begin(), cuts.end(), [&axis](const Cut& cut) {
      return cut.axis == axis || cut.axis.rfind(axis + "/", 0) == 0;
    });
  });
}

AxisPosition position_on(const Coordinates& where, const std::string& axis) {
  const auto found = where.find(axis);
  if (found != where.end()) return found->second;
  const std::optional<SplitAxis> split = split_axis(axis);
  const auto base = split ? where.find(split->base) : where.end();
  if (base == where.end()) return {};
  const auto [coord, size] = base->second;
  if (split->size == 0 || size % split->size != 0) {
    throw Trouble("layout", axis, split->base + " has " + std::to_string(size) + " ranks");
  }
  if (split->inner) return {coord % split->size, split->size};
  return {coord / (size / split->size), split->size};
}

void measure_ragged(Layout& layout, const std::vector<std::pair<Coordinates, Shape>>& shards) {
  for (std::size_t dim = 0; dim < layout.dims.size(); ++dim) {
    for (Cut& cut : layout.dims[dim]) {
      if (cut.kind != CutKind::ragged) continue;
      if (layout.dims[dim].size() > 1) refuse_cut(cut, 0, "are cut in another way, too");
      std::map<std::uint64_t, std::uint64_t> sizes;
      std::uint64_t size = 1;
      for (const auto& [where, shape] : shards) {
        const AxisPosition position = position_on(where, cut.axis);
        size = position.size;
        const std::uint64_t held = dim < shape.size() ? shape[dim] : 0;
        const auto [known, added] = sizes.emplace(position.coord, held);
        if (!added && known->second != held) {
          refuse_cut(cut, held,
                     "on one rank, " + std::to_string(known->second) +
                         " on another that should hold the same");
        }
      }
      if (sizes.size() != size) refuse_cut(cut, 0, "are known of some coordinates: ranks lack");
      cut.sections.clear();
      for (const auto& [coord, held] : sizes) cut.sections.push_back(held);
    }
  }
}

std::vector<Run> runs_of(std::uint64_t extent, const std::vector<Cut>& cuts,
                         const Coordinates& where) {
  std::vector<Run> runs;
  append_run(runs, 0, extent);
  for (const Cut& cut : cuts) {
    runs = select(runs, spans_of(cut, local_extent(runs), position_on(where, cut.axis)));
  }
  return runs;
}

std::uint64_t local_extent(const std::vector<Run>& runs) {
  return runs.empty() ? 0 : runs.back().local + runs.back().count;
}

Shape row_major(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t dim = shape.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * shape[dim];
  return strides;
}

std::uint64_t volume(const Box& box) { return element_count(box.count); }

std::optional<Box> intersection(const Box& left, const Box& right) {
  if (left.start.size() != right.start.size()) return std::nullopt;
  Box common;
  for (std::size_t dim = 0; dim < left.start.size(); ++dim) {
    const std::uint64_t begin = std::max(left.start[dim], right.start[dim]);
    const std::uint64_t end =
        std::min(left.start[dim] + left.count[dim], right.start[dim] + right.count[dim]);
    if (begin >= end) return std::nullopt;
    common.start.push_back(begin);
    common.count.push_back(end - begin);
  }
  return common;
}

std::string to_string(const Box& box) {
  std::string text;
  for (std::size_t dim = 0; dim < box.start.size(); ++dim) {
    text += (dim == 0 ? "" : ", ") + std::to_string(box.start[dim]) + ":" +
            std::to_string(box.start[dim] + box.count[dim]);
  }
  return "[" + text + "]";
}

}  // namespace ttrace
