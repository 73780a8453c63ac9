// SPDX-License-Identifier: Apache-2.0
// Where links lead that cannot be followed. What is not there is no failure; what is there and
// cannot be read is Trouble.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "libttrace/h5.hpp"

namespace ttrace::h5 {

// Where libhdf5 looks for the file `name` that the file `holder` names, in its order.
// `variable`: HDF5_EXT_PREFIX for links, HDF5_VDS_PREFIX for the sources of virtual datasets.
[[nodiscard]] std::vector<std::filesystem::path> places_of(const std::string& holder,
                                                           const std::string& name,
                                                           const char* variable);
// The first of the places that can be opened; invalid when none exists. Throws Trouble that names
// the first that exists, when none can be opened.
[[nodiscard]] Handle open_first(const std::vector<std::filesystem::path>& places);

// Whether the latest call of libhdf5 failed because a name is not there.
[[nodiscard]] bool failed_for_want_of_a_name();

// What the link `name` of the group, which could not be opened, points to, where nothing is.
[[nodiscard]] std::string target_of_dangling(const Caller& caller, Id group,
                                             const std::string& name);

}  // namespace ttrace::h5
