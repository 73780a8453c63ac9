// SPDX-License-Identifier: Apache-2.0
// What the object references of one file refer to. The paths of all its objects are collected once,
// because libhdf5 searches the whole file for the path of each reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "libttrace/h5.hpp"
#include "libttrace/h5_element.hpp"

namespace ttrace::h5 {

class References {
 public:
  // Of the file that holds the object.
  References(const Caller& caller, Id object);

  // The path of what it refers to; nullptr: that is not, or no longer, in the file. The first path,
  // where hard links make several.
  [[nodiscard]] const std::string* path(const std::byte* reference) const;
  // Whether the path, through links of all kinds, leads to what it refers to.
  [[nodiscard]] bool is_reached(const std::byte* reference, const std::string& path) const;

 private:
  Handle file_;
  std::uint64_t opening_ = 0;
  std::unordered_map<std::uint64_t, std::string> paths_;  // by address
};

// It was never set.
[[nodiscard]] bool is_null(const std::byte* reference);
// Whether elements of the type are references, or hold some.
[[nodiscard]] bool has_references(const ElementType& type);

}  // namespace ttrace::h5
