// SPDX-License-Identifier: Apache-2.0
// See runs.hpp.
#include "diff/runs.hpp"

namespace ttrace {

View view_in_shard(const Piece& piece, const Shape& local_shape, const Box& box) {
  const bool flat = piece.local_start.size() != box.start.size() ||
                    piece.local_start.size() != local_shape.size();
  View view{flat ? piece.local_start[0] : 0, row_major(flat ? piece.global.count : local_shape)};
  for (std::size_t dim = 0; dim < box.start.size(); ++dim) {
    const std::uint64_t local = flat ? 0 : piece.local_start[dim];
    view.offset += (local + box.start[dim] - piece.global.start[dim]) * view.strides[dim];
  }
  return view;
}

View view_in_tensor(const Shape& shape, const Box& box) {
  View view{0, row_major(shape)};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    view.offset += box.start[dim] * view.strides[dim];
  }
  return view;
}

Runs::Runs(const Shape& count, const View& reference, const View& candidate, const View& logical)
    : at_{reference.offset, candidate.offset, logical.offset, 1} {
  for (std::size_t dim = 0; dim < count.size(); ++dim) {
    if (count[dim] == 0) more_ = false;
    if (count[dim] == 1) continue;
    outer_.push_back(
        {count[dim], reference.strides[dim], candidate.strides[dim], logical.strides[dim]});
  }
  // Inner dimensions join the run as long as all three go on without a gap.
  while (!outer_.empty()) {
    const Dimension& inner = outer_.back();
    if (inner.reference != at_.count || inner.candidate != at_.count ||
        inner.logical != at_.count) {
      break;
    }
    at_.count *= inner.count;
    outer_.pop_back();
  }
  index_.assign(outer_.size(), 0);
  first_ = at_;
}

void Runs::seek(std::uint64_t run) {
  at_ = first_;
  for (std::size_t dim = outer_.size(); dim-- > 0;) {
    const Dimension& step = outer_[dim];
    index_[dim] = run % step.count;
    run /= step.count;
    at_.reference += index_[dim] * step.reference;
    at_.candidate += index_[dim] * step.candidate;
    at_.logical += index_[dim] * step.logical;
  }
}

bool Runs::next(Overlap& run) {
  if (!more_) return false;
  run = at_;
  for (std::size_t dim = outer_.size(); dim-- > 0;) {
    const Dimension& step = outer_[dim];
    at_.reference += step.reference;
    at_.candidate += step.candidate;
    at_.logical += step.logical;
    if (++index_[dim] < step.count) return true;
    index_[dim] = 0;
    at_.reference -= step.count * step.reference;
    at_.candidate -= step.count * step.candidate;
    at_.logical -= step.count * step.logical;
  }
  more_ = false;
  return true;
}

}  // namespace ttrace
