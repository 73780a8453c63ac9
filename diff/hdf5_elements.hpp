// SPDX-License-Identifier: Apache-2.0
// Elements of HDF5 files that are not plain numbers (and attributes, whatever they are): equal when
// they say the same, however it is stored. Texts are their characters, not their padding; members
// of compounds are matched by name, values of enums by their names, references by the path of what
// they refer to.
#pragma once

#include <cstddef>
#include <string>

#include "libttrace/h5_element.hpp"
#include "libttrace/h5_references.hpp"

namespace ttrace {

// One element, and what references in it refer to; nullptr where its type has none.
struct ElementView {
  const h5::ElementType& type;
  const std::byte* data;
  const h5::References* references = nullptr;
};

// Why elements of the two types cannot be compared; "" when they can.
[[nodiscard]] std::string incomparable(const h5::ElementType& reference,
                                       const h5::ElementType& candidate);
// Of comparable types. NaN equals NaN, -0 equals 0.
[[nodiscard]] bool equal_elements(const ElementView& reference, const ElementView& candidate);
// For a reader, shortened.
[[nodiscard]] std::string element_text(const ElementView& element);

}  // namespace ttrace
