// SPDX-License-Identifier: Apache-2.0
// See outputs.hpp.
#include "tools/outputs.hpp"

#include <cstdio>
#include <fstream>

#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

void write(const std::string& text, const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Trouble("write", path, "failed; is there such a folder, and space in it?");
}

}  // namespace

void check_paths(const OutputPaths& paths) {
  if (paths.json == "-" && paths.junit == "-") {
    throw Trouble("--junit", "-", "stdout is taken by --json -; give one of the two a FILE");
  }
}

void write_outputs(const Outputs& outputs, const OutputPaths& paths) {
  for (const bool to_stdout : {false, true}) {
    if ((paths.json == "-") == to_stdout) write(outputs.json, paths.json);
    if ((paths.junit == "-") == to_stdout) write(outputs.junit, paths.junit);
  }
  if (paths.wants_text()) write(outputs.text, "-");
}

void write_trouble(const Outputs& outputs, OutputPaths paths) {
  if (paths.json == "-" && paths.junit == "-") paths.junit.clear();
  const auto attempt = [](const std::string& text, const std::string& path) {
    try {
      write(text, path);
    } catch (const Trouble&) {
      // The other document must be tried all the same.
    }
  };
  attempt(outputs.json, paths.json);
  attempt(outputs.junit, paths.junit);
}

}  // namespace ttrace
