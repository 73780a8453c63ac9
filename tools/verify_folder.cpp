// SPDX-License-Identifier: Apache-2.0
// See verify_folder.hpp.
#include "tools/verify_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cstdio>
#include <system_error>

#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {

namespace fs = std::filesystem;

VerifyFolder::VerifyFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path)) {
    throw Trouble("create", path.string(),
                  (error ? error.message() : "is no directory") + ", choose another with -o");
  }
  const fs::path lock = path / "verify.lock";  // says that the folder is ours, too
  if (!fs::exists(lock) && !fs::is_empty(path)) {
    throw Trouble("-o", path.string(),
                  "has files that ttrace-verify did not make, choose another or an empty folder");
  }
  lock_ = open_file(lock, O_RDWR | O_CREAT | O_CLOEXEC);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Trouble("-o", path.string(),
                  "another ttrace-verify works in it, wait for it or choose another folder");
  }
}

void write_file(const fs::path& path, const std::string& text) {
  std::error_code error;
  if (!path.parent_path().empty()) fs::create_directories(path.parent_path(), error);
  replace_file(path, text);
}

void write_document(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write_file(path, text);
  }
}

}  // namespace ttrace
