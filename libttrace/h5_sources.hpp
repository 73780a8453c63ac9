// SPDX-License-Identifier: Apache-2.0
// What else a dataset is read from: the sources of a virtual one, raw files. libhdf5 reads fill
// values where a source is not there.
#pragma once

#include <string>

#include "libttrace/h5.hpp"

namespace ttrace::h5 {

// What is not there; "" when everything is. Throws Trouble: it is there and cannot be read.
[[nodiscard]] std::string missing_source(const Caller& caller, Id dataset, Id creation);

// What libhdf5 takes from the environment when it is first used, to be called before. Raw files of
// relative names are looked for beside the HDF5 file, not where the program runs, unless
// HDF5_EXTFILE_PREFIX names another folder; and files are not locked, those that links lead to
// included, so that links may lead back to a file that is open.
void prepare_environment();

}  // namespace ttrace::h5
