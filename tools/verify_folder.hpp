// SPDX-License-Identifier: Apache-2.0
// The folder of results: ours alone while we work in it, and never one with other things in it.
#pragma once

#include <filesystem>
#include <string>

#include "libttrace/file.hpp"

namespace ttrace {

class VerifyFolder {
 public:
  // Makes it. Throws Trouble when it holds what ttrace-verify has not made, or another one works
  // in it.
  explicit VerifyFolder(const std::filesystem::path& path);

 private:
  FileDescriptor lock_;  // held until the process ends
};

void write_file(const std::filesystem::path& path, const std::string& text);
// To stdout when `path` is "-", nowhere when it is "".
void write_document(const std::string& path, const std::string& text);

}  // namespace ttrace
