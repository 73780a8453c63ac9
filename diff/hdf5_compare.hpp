// SPDX-License-Identifier: Apache-2.0
// Any two HDF5 files, object by object at equal paths. What cannot be compared is a difference.
#pragma once

#include <filesystem>
#include <string>

#include "diff/backend.hpp"
#include "diff/hdf5_report.hpp"
#include "libttrace/file_bytes.hpp"

namespace ttrace {

struct Hdf5Options {
  Hdf5Limits limits;
  std::string filter;  // glob of paths, "" = all
  ReadMode mode = ReadMode::automatic;
};

// Throws Trouble: a file is none, or broken, or there is nothing to compare.
[[nodiscard]] Hdf5Report compare_hdf5(const std::filesystem::path& reference,
                                      const std::filesystem::path& candidate,
                                      const Backend& backend, const Hdf5Options& options);

}  // namespace ttrace
