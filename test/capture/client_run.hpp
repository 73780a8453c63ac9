// SPDX-License-Identifier: Apache-2.0
// A C program of the tests run as a user's is, and what it left.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "test/catch.hpp"

namespace ttrace::testing {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "ttrace-abi-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path path;
};

// The exit code of the client; `variables` are more of its environment, "NAME=value ".
inline int run_client(const std::filesystem::path& trace, const std::string& task,
                      const std::string& variables = "") {
  const std::string command =
      "env -u RANK -u WORLD_SIZE TTRACE_OUT=" + trace.string() +
      " TTRACE_RUN_ID=run-1 TTRACE_RING=65536 TTRACE_WRITER=" + TEST_WRITER + " " + variables +
      TEST_CLIENT + " " + task;
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline std::string rank_text(const std::filesystem::path& trace) {
  std::ostringstream text;
  text << std::ifstream(trace / "rank00000/rank.json").rdbuf();
  return text.str();
}

}  // namespace ttrace::testing
