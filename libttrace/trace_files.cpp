// SPDX-License-Identifier: Apache-2.0
// See trace_files.hpp.
#include "libttrace/trace_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>

#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

Trouble failure(const std::filesystem::path& path) {
  return {"write", path.string(), std::strerror(errno)};
}

// The text in a new file beside `path`, on the disk. The name is this process's own.
std::filesystem::path write_beside(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path temporary = path;
  temporary += ".new." + std::to_string(getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw failure(path);
  bool good = true;
  while (good && !text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    good = written > 0;
    if (good) text.remove_prefix(static_cast<std::size_t>(written));
  }
  good = good && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (good) return temporary;
  unlink(temporary.c_str());
  errno = error;
  throw failure(path);
}

template <class... Arguments>
std::string printed(const char* format, Arguments... arguments) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, arguments...);
  return text.data();
}

}  // namespace

std::string rank_directory_name(std::int32_t rank) { return printed("rank%05d", rank); }

std::string segment_file_name(std::int64_t iteration) {
  return printed("it%06lld.h5", static_cast<long long>(iteration));
}

std::string make_run_id() {
  std::random_device device;
  return printed("%08x%08x", device(), device());
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = write_beside(path, text);
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const Trouble trouble = failure(path);
  unlink(temporary.c_str());
  throw trouble;
}

bool create_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = write_beside(path, text);
  const bool created = link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(temporary.c_str());
  errno = error;
  if (!created && errno != EEXIST) throw failure(path);
  return created;
}

}  // namespace ttrace
