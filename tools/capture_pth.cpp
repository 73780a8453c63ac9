// SPDX-License-Identifier: Apache-2.0
// See capture_pth.hpp.
#include "tools/capture_pth.hpp"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {
namespace {

// One line, because Python runs only lines of a .pth that start with "import".
constexpr const char* kContent =
    "import os, sys; agent = os.environ.get('TTRACE_AGENT'); "
    "exec(\"sys.path.append(agent)\\ntry:\\n import ttrace_agent.arming\\n "
    "ttrace_agent.arming.arm()\\nexcept Exception as error:\\n "
    "print('ttrace: nothing is captured:', repr(error), file=sys.stderr)\") "
    "if agent and agent not in sys.path else None\n";

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::filesystem::path pth_of(const std::string& python) {
  const std::string command = quoted(python) +
                              " -I -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))' "
                              "2>/dev/null";
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) throw Trouble("run", python, "failed");
  std::array<char, 4096> line{};
  const bool read = std::fgets(line.data(), line.size(), output) != nullptr;
  const int status = pclose(output);
  std::string folder = read ? line.data() : "";
  while (!folder.empty() && folder.back() == '\n') folder.pop_back();
  if (status != 0 || folder.empty()) {
    throw Trouble("run", python, "is no Python that tells its site-packages, name one that runs");
  }
  return std::filesystem::path(folder) / "ttrace.pth";
}

}  // namespace

void install_pth(const std::string& python) {
  const std::filesystem::path path = pth_of(python);
  replace_file(path, kContent);
  std::printf("%s\n", path.c_str());
}

void uninstall_pth(const std::string& python) {
  const std::filesystem::path path = pth_of(python);
  if (!std::filesystem::remove(path)) {
    throw Trouble("remove", path.string(), "is not there, was it installed for another Python?");
  }
  std::printf("%s\n", path.c_str());
}

}  // namespace ttrace
