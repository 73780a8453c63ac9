// SPDX-License-Identifier: Apache-2.0
// Datasets that only libhdf5 can read (chunked, compressed, external, virtual, not yet written),
// and elements that are no plain numbers: read box by box, each of a few MiB, along the reference's
// chunks.
#pragma once

#include "diff/backend.hpp"
#include "diff/hdf5_report.hpp"
#include "libttrace/h5_object.hpp"
#include "libttrace/h5_references.hpp"

namespace ttrace {

struct OpenDataset {
  const h5::Dataset& dataset;
  const h5::References* references;  // nullptr: its type has none
};

// Of equal extents that are not null. Both fill in `line`, with what the first elements of each
// dimension are, as many as `shape` says.
void compare_numbers_by_boxes(const OpenDataset& reference, const OpenDataset& candidate,
                              const Shape& shape, const Backend& backend, DatasetLine& line);
void compare_elements_by_boxes(const OpenDataset& reference, const OpenDataset& candidate,
                               const Shape& shape, DatasetLine& line);

}  // namespace ttrace
