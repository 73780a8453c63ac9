// SPDX-License-Identifier: Apache-2.0
// See spawn.hpp.
#include "capture/spawn.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <vector>

extern char** environ;

namespace ttrace {
namespace {

constexpr int kRingFd = 3;  // as the writer expects it
constexpr std::chrono::milliseconds kPatience{60000};
constexpr std::chrono::milliseconds kLook{20};

class SpawnSetup {
 public:
  explicit SpawnSetup(int ring_fd) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_adddup2(&files_, ring_fd, kRingFd);  // also clears close-on-exec
    posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files_, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files_, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

std::vector<char*> clean_environment() {
  std::vector<char*> kept;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (name != "LD_PRELOAD" && name != "LD_LIBRARY_PATH" && name != "LD_AUDIT") {
      kept.push_back(*entry);
    }
  }
  kept.push_back(nullptr);
  return kept;
}

pid_t spawn(const Settings& settings, int ring_fd) {
  std::vector<std::string> words = {settings.writer,
                                    "--ring",
                                    std::to_string(kRingFd),
                                    "--parent",
                                    std::to_string(getpid()),
                                    "--rank",
                                    std::to_string(settings.rank),
                                    "--world-size",
                                    std::to_string(settings.world_size),
                                    "--run-id",
                                    settings.run_id,
                                    "--directory",
                                    settings.directory};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment = clean_environment();

  const SpawnSetup setup(ring_fd);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, settings.writer.c_str(), setup.files(), setup.attributes(),
                                arguments.data(), environment.data());
  if (error == 0) return pid;
  throw SpawnFailure(error, settings.writer + ": " + std::strerror(error));
}

// The spawned process exits as soon as its child, the writer, is ready or has given up. Gone too
// when the program itself collected it (it may wait for any child, or ignore SIGCHLD).
bool collected(pid_t pid, int flags) {
  pid_t result = -1;
  do {
    result = waitpid(pid, nullptr, flags);
  } while (result < 0 && errno == EINTR);
  return result != 0;
}

}  // namespace

void start_writer(const Settings& settings, RingProducer& ring) {
  const pid_t pid = spawn(settings, ring.fd());
  ring.close_fd();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool ended = false;
  ConsumerReport report = ring.report();
  while (report.state == ConsumerState::starting && !ended &&
         std::chrono::steady_clock::now() < end) {
    report = ring.wait_while(ConsumerState::starting, kLook);
    ended = collected(pid, WNOHANG);
  }
  if (report.state == ConsumerState::starting && ended) report = ring.report();
  if (report.state == ConsumerState::starting) {
    throw SpawnFailure(ended ? ECHILD : ETIMEDOUT,
                       settings.writer + (ended ? ": ended at once" : ": does not answer"));
  }
  if (!ended) (void)collected(pid, 0);
  if (report.state == ConsumerState::refused) throw SpawnFailure(report.error, report.message);
}

}  // namespace ttrace
