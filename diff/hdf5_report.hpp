// SPDX-License-Identifier: Apache-2.0
// The result of comparing two HDF5 files as a value, and how it is printed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "diff/hdf5_limits.hpp"
#include "diff/hdf5_numbers.hpp"
#include "diff/report.hpp"
#include "libttrace/h5_object.hpp"

namespace ttrace {

struct DatasetLine {
  std::string path;
  std::shared_ptr<const std::string> reference_type, candidate_type;
  h5::Extent extent;                 // of both
  std::optional<DType> compared_as;  // nullopt: not numbers, or not compared
  NumberMetrics numbers;             // of compared_as; else only count, unequal, first_unequal
  std::string first_values, worst_values;  // "1.5 against 1.25", where something is unequal
  double relative_error = 0;               // of the norms
  bool differs = false;                    // beyond what is allowed
};

struct Hdf5Finding {
  std::string kind;  // docs/report.md
  std::string path;
  std::string attribute;  // "": the object itself
  std::string message;
};

struct Hdf5Report {
  std::string reference, candidate;  // paths
  Hdf5Limits limits;
  std::string filter;  // of paths; "": all
  std::string backend;
  std::deque<DatasetLine> datasets;  // that could be compared, by path as they were met
  std::vector<Hdf5Finding> findings;
  std::vector<Hdf5Finding> notes;  // what is no difference, but should be known
  std::uint64_t groups = 0, attributes = 0, types = 0, links = 0;  // compared
  std::uint64_t bytes = 0;                                         // of the reference's datasets

  [[nodiscard]] bool same() const { return findings.empty(); }
};

[[nodiscard]] std::string hdf5_report_as_text(const Hdf5Report& report, const TextOptions& options);
[[nodiscard]] std::string hdf5_report_as_json(const Hdf5Report& report);
[[nodiscard]] std::string hdf5_report_as_junit(const Hdf5Report& report);
[[nodiscard]] std::string hdf5_trouble_as_json(const std::string& message);

// "[3,17]" for a flat index.
[[nodiscard]] std::string index_text(std::uint64_t flat, const Shape& shape);

}  // namespace ttrace
