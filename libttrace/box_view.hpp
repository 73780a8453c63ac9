// SPDX-License-Identifier: Apache-2.0
// The bytes of a box of a logical tensor where they lie, if one shard has them all in one piece,
// packed as read_box packs them. Lets the pages go when it ends.
#pragma once

#include <span>
#include <utility>

#include "libttrace/logical.hpp"

namespace ttrace {

class BoxView {
 public:
  BoxView() = default;
  BoxView(const SegmentReader& segment, std::span<const std::byte> bytes)
      : segment_(&segment), bytes_(bytes) {}
  ~BoxView() {
    if (segment_ != nullptr) segment_->release(bytes_);
  }
  BoxView(BoxView&& other) noexcept { swap(other); }
  BoxView& operator=(BoxView&& other) noexcept {
    BoxView(std::move(other)).swap(*this);
    return *this;
  }
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }  // nullptr: there is none

 private:
  void swap(BoxView& other) noexcept {
    std::swap(segment_, other.segment_);
    std::swap(bytes_, other.bytes_);
  }
  const SegmentReader* segment_ = nullptr;
  std::span<const std::byte> bytes_;
};

// Of a box that read_box could read.
[[nodiscard]] BoxView view_box(const LogicalTensor& tensor, const Box& box);

}  // namespace ttrace
