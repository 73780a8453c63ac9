// SPDX-License-Identifier: Apache-2.0
// See capture_parts.hpp.
#include "tools/capture_parts.hpp"

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "libttrace/core/trouble.hpp"

namespace ttrace {

namespace fs = std::filesystem;

namespace {

std::vector<CaptureParts> candidates(const fs::path& programs) {
  std::vector<CaptureParts> places;
  if (const char* home = std::getenv("TTRACE_HOME"); home != nullptr && *home != '\0') {
    const fs::path folder = home;
    places.push_back(
        {folder / "libttrace_capture.so", folder / "ttrace-writer", folder / "python", {}});
    places.push_back({folder / "libttrace_capture.so",
                      folder / "../../bin/ttrace-writer",
                      folder / "python",
                      {}});
    return places;  // who sets it wants no other
  }
  for (const char* shared : {"../share/ttrace", "../ttrace"}) {  // an installation, a wheel
    const fs::path folder = programs / shared;
    places.push_back(
        {folder / "libttrace_capture.so", programs / "ttrace-writer", folder / "python", {}});
  }
  const fs::path build = programs / "../capture";
  std::string agent;
  std::ifstream file(build / "agent.path");
  std::getline(file, agent);
  places.push_back({build / "libttrace_capture.so", build / "ttrace-writer", agent, {}});
  return places;
}

// Beside the library, or in a build tree; optional.
fs::path find_nccl(const fs::path& library) {
  const fs::path folder = library.parent_path();
  std::error_code error;
  for (const fs::path& place : {folder / "libttrace_nccl.so", folder / "nccl/libttrace_nccl.so"}) {
    if (fs::exists(place, error)) return fs::canonical(place);
  }
  return {};
}

bool complete(const CaptureParts& parts) {
  std::error_code error;
  return fs::exists(parts.library, error) && fs::exists(parts.writer, error) &&
         fs::exists(parts.agent / "ttrace_agent", error);
}

}  // namespace

CaptureParts find_parts() {
  const fs::path programs = fs::read_symlink("/proc/self/exe").parent_path();
  std::string looked;
  for (const CaptureParts& place : candidates(programs)) {
    if (complete(place)) {
      return {fs::canonical(place.library), fs::canonical(place.writer), fs::canonical(place.agent),
              find_nccl(place.library)};
    }
    looked +=
        (looked.empty() ? "" : ", ") + place.library.parent_path().lexically_normal().string();
  }
  throw Trouble("find libttrace_capture.so, ttrace-writer and ttrace_agent", looked,
                "not all are there, install ttrace again or set TTRACE_HOME");
}

}  // namespace ttrace
