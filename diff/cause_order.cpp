// SPDX-License-Identifier: Apache-2.0
// Causes that put the reference's elements in other places: each is a map of positions, and fits if
// the candidate's sampled elements are found where the map says. Blocks that a dimension is cut
// into are not guessed at: each block of the candidate is looked for among the reference's, and the
// order that comes out is then put into words.
#include <algorithm>
#include <functional>

#include "diff/cause.hpp"
#include "diff/cause_sample.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kMostBlocks = 64;
constexpr std::uint64_t kOfBlock = 16;      // sampled positions
constexpr std::uint64_t kLargestShift = 4;  // by single elements; more only by blocks
constexpr std::uint64_t kLeastChanged = 4;  // fewer elements fall into place by accident

using Order = std::vector<std::uint64_t>;  // block b of the candidate is the reference's order[b]
// Where the element at a position (within the region) comes from; nullopt: from nowhere.
using Move = std::function<std::optional<Shape>(Shape)>;

std::string along(std::size_t dim) { return " along dimension " + std::to_string(dim); }

bool is_rolled(const Order& order) {
  for (std::size_t b = 0; b < order.size(); ++b) {
    if (order[b] != (b + order[0]) % order.size()) return false;
  }
  return true;
}

bool is_reversed(const Order& order) {
  for (std::size_t b = 0; b < order.size(); ++b) {
    if (order[b] != order.size() - 1 - b) return false;
  }
  return true;
}

// The two blocks that have changed places; nullopt when it is not just two.
std::optional<std::pair<std::size_t, std::size_t>> swapped(const Order& order) {
  std::vector<std::size_t> moved;
  for (std::size_t b = 0; b < order.size(); ++b) {
    if (order[b] != b) moved.push_back(b);
  }
  if (moved.size() != 2) return std::nullopt;
  return std::pair{moved[0], moved[1]};
}

// A block that is there more than once; nullopt when each is there once.
std::optional<std::uint64_t> repeated(Order order) {
  std::sort(order.begin(), order.end());
  const auto found = std::adjacent_find(order.begin(), order.end());
  return found == order.end() ? std::nullopt : std::optional<std::uint64_t>(*found);
}

std::string order_text(const Order& order, std::uint64_t length, std::size_t dim) {
  const std::uint64_t count = order.size();
  const std::string blocks = std::to_string(count) + " equal blocks" + along(dim);
  if (const auto block = repeated(order)) {
    return "with block " + std::to_string(*block) + " of " + blocks +
           " again where another belongs";
  }
  if (count == 2) return "with the two halves" + along(dim) + " swapped";
  if (is_rolled(order)) {
    // Block 0 of the reference is where order[b] is 0.
    return "rolled by " + std::to_string((count - order[0]) * length) + along(dim) + " (of " +
           std::to_string(count * length) + ")";
  }
  if (is_reversed(order)) return "with the " + blocks + " in reverse order";
  if (const auto pair = swapped(order)) {
    return "with blocks " + std::to_string(pair->first) + " and " + std::to_string(pair->second) +
           " of " + blocks + " swapped";
  }
  constexpr std::size_t kShown = 16;
  std::string list;
  for (std::size_t b = 0; b < order.size() && b < kShown; ++b)
    list += " " + std::to_string(order[b]);
  return "with the " + blocks + " in the order" + list + (count > kShown ? " ..." : "");
}

class Orders {
 public:
  Orders(const Suspect& suspect, Box region, std::string where)
      : suspect_(suspect),
        region_(std::move(region)),
        where_(std::move(where)),
        sample_(sample_of(suspect, region_)) {}

  std::optional<Cause> run() {
    for (std::size_t dim = 0; dim < region_.count.size(); ++dim) {
      if (try_blocks(dim) || try_shifts(dim) || try_interleaving(dim) || try_transposed(dim)) break;
    }
    return std::move(cause_);
  }

 private:
  [[nodiscard]] Lookup lookup(const Move& move) const {
    return [this, &move](const Shape& at) -> std::optional<double> {
      Shape inside = at;
      for (std::size_t dim = 0; dim < at.size(); ++dim) inside[dim] -= region_.start[dim];
      std::optional<Shape> from = move(std::move(inside));
      if (!from) return std::nullopt;
      for (std::size_t dim = 0; dim < at.size(); ++dim) (*from)[dim] += region_.start[dim];
      return suspect_.reference->at(*from);
    };
  }

  bool try_move(const std::string& how, const Move& move) {
    const std::optional<Fit> found = fit(sample_, lookup(move));
    if (!found || found->changed < kLeastChanged ||
        2 * found->compared < sample_.positions.size()) {
      return false;
    }
    cause_ = {"the candidate is " + where_ + "the reference " + how, fit_text(*found),
              is_guess(*found)};
    return true;
  }

  // ---- blocks ----

  bool try_blocks(std::size_t dim) {
    const std::uint64_t extent = region_.count[dim];
    for (std::uint64_t count = 2; count <= std::min(extent, kMostBlocks); ++count) {
      if (extent % count != 0) continue;
      const std::uint64_t length = extent / count;
      const std::optional<Order> order = order_of(dim, count, length);
      if (!order) continue;
      const Move move = [&, dim](Shape at) -> std::optional<Shape> {
        at[dim] = (*order)[at[dim] / length] * length + at[dim] % length;
        return at;
      };
      if (try_move(order_text(*order, length, dim), move)) return true;
    }
    return false;
  }

  // nullopt when some block is nowhere, or all are where they belong.
  [[nodiscard]] std::optional<Order> order_of(std::size_t dim, std::uint64_t count,
                                              std::uint64_t length) const {
    Order order;
    std::vector<bool> taken(count, false);
    bool moved = false;
    for (std::uint64_t block = 0; block < count; ++block) {
      const std::optional<std::uint64_t> from = find_block(dim, block, count, length, taken);
      if (!from) return std::nullopt;
      taken[*from] = true;
      moved = moved || *from != block;
      order.push_back(*from);
    }
    return moved ? std::optional<Order>(std::move(order)) : std::nullopt;
  }

  // Its own place first, should several hold the same; one that is found already comes last.
  [[nodiscard]] std::optional<std::uint64_t> find_block(std::size_t dim, std::uint64_t block,
                                                        std::uint64_t count, std::uint64_t length,
                                                        const std::vector<bool>& taken) const {
    Box box = region_;
    box.start[dim] += block * length;
    box.count[dim] = length;
    const std::vector<Shape> positions = positions_in(box, kOfBlock);
    std::vector<double> values;
    for (const Shape& at : positions) {
      values.push_back(suspect_.scale * suspect_.candidate->at(at));
    }
    for (const bool again : {false, true}) {
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t from = (block + i) % count;
        if (taken[from] != again) continue;
        const Lookup there = [&](const Shape& at) {
          Shape moved = at;
          moved[dim] = moved[dim] - block * length + from * length;
          return suspect_.reference->at(moved);
        };
        if (agree(positions, values, there, suspect_.limit, sample_.size)) return from;
      }
    }
    return std::nullopt;
  }

  // ---- single elements ----

  bool try_shifts(std::size_t dim) {
    const std::uint64_t extent = region_.count[dim];
    for (std::uint64_t by = 1; by <= kLargestShift && 2 * by < extent; ++by) {
      for (const bool up : {true, false}) {
        const std::uint64_t offset = up ? extent - by : by;
        const Move rolled = [=](Shape at) -> std::optional<Shape> {
          at[dim] = (at[dim] + offset) % extent;
          return at;
        };
        const Move shifted = [=](Shape at) -> std::optional<Shape> {
          const bool inside = up ? at[dim] >= by : at[dim] + by < extent;
          if (!inside) return std::nullopt;
          at[dim] = up ? at[dim] - by : at[dim] + by;
          return at;
        };
        const std::string how = std::string(up ? "" : "-") + std::to_string(by) + along(dim);
        if (try_move("rolled by " + how, rolled) || try_move("shifted by " + how, shifted)) {
          return true;
        }
      }
    }
    return false;
  }

  // [n, m] -> [m, n] within one dimension.
  bool try_interleaving(std::size_t dim) {
    const std::uint64_t extent = region_.count[dim];
    for (std::uint64_t count = 2; count <= extent / 2; ++count) {
      const std::uint64_t length = extent / count;
      if (extent % count != 0 || std::min(count, length) > kMostBlocks) continue;
      const Move move = [=](Shape at) -> std::optional<Shape> {
        at[dim] = at[dim] % count * length + at[dim] / count;
        return at;
      };
      if (try_move("with its " + std::to_string(count) + " equal blocks" + along(dim) +
                       " interleaved element by element",
                   move)) {
        return true;
      }
    }
    return false;
  }

  bool try_transposed(std::size_t dim) {
    for (std::size_t other = dim + 1; other < region_.count.size(); ++other) {
      if (region_.count[dim] != region_.count[other] || region_.count[dim] < 2) continue;
      const Move move = [=](Shape at) -> std::optional<Shape> {
        std::swap(at[dim], at[other]);
        return at;
      };
      if (try_move("with dimensions " + std::to_string(dim) + " and " + std::to_string(other) +
                       " transposed",
                   move)) {
        return true;
      }
    }
    return false;
  }

  const Suspect& suspect_;
  Box region_;
  std::string where_;
  Sample sample_;
  std::optional<Cause> cause_;
};

}  // namespace

std::optional<Cause> find_order(const Suspect& suspect) {
  std::optional<Cause> cause = Orders(suspect, suspect.region, suspect.where).run();
  if (cause || !suspect.where.empty()) return cause;
  // What each rank does to its own part is no order of the whole.
  const LogicalTensor& tensor = *suspect.pair->candidate;
  if (tensor.shards.size() < 2 || tensor.shards.front().pieces.size() != 1) return std::nullopt;
  const PlacedShard& first = tensor.shards.front();
  const Box& part = first.pieces.front().global;
  if (part == suspect.region) return std::nullopt;
  return Orders(suspect, part, "rank " + std::to_string(first.shard.rank) + "'s part of ").run();
}

}  // namespace ttrace
