// SPDX-License-Identifier: Apache-2.0
// See capture_child.hpp.
#include "tools/capture_child.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "libttrace/core/trouble.hpp"
#include "tools/cli.hpp"

namespace ttrace {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// In the child: becomes the command, or tells the parent through `pipe` why it could not.
[[noreturn]] void become(const std::vector<std::string>& command, const Environment& environment,
                         const SignalGuard& signals, int pipe) {
  sigprocmask(SIG_SETMASK, &signals.before(), nullptr);
  for (const auto& [name, value] : environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int error = errno;
  if (write(pipe, &error, sizeof error) < 0) _exit(kNotExecutable);
  _exit(error == ENOENT ? kNotFound : kNotExecutable);
}

struct Started {
  pid_t pid = -1;
  int error = 0;  // errno value of exec, 0 when it worked
};

Started start(const std::vector<std::string>& command, const Environment& environment,
              const SignalGuard& signals) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Trouble("start", command[0], std::strerror(errno));
  Started started;
  started.pid = fork();
  if (started.pid < 0) throw Trouble("start", command[0], std::strerror(errno));
  if (started.pid == 0) become(command, environment, signals, ends[1]);
  close(ends[1]);
  if (read(ends[0], &started.error, sizeof started.error) <= 0) started.error = 0;
  close(ends[0]);
  return started;
}

// Collects every child that ended: as process 1 of a container we inherit orphans, too.
// True when `pid` was among them; then `status` is its.
bool collect(pid_t pid, int& status) {
  bool ended = false;
  int found = 0;
  for (pid_t child = waitpid(-1, &found, WNOHANG); child > 0;
       child = waitpid(-1, &found, WNOHANG)) {
    if (child != pid) continue;
    ended = true;
    status = found;
  }
  return ended;
}

}  // namespace

SignalGuard::SignalGuard() {
  sigemptyset(&handled_);
  sigaddset(&handled_, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&handled_, signal);
  sigprocmask(SIG_BLOCK, &handled_, &before_);
}

SignalGuard::~SignalGuard() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

int SignalGuard::wait(std::chrono::milliseconds limit, siginfo_t& info) const {
  const timespec time{limit.count() / 1000, limit.count() % 1000 * 1000000};
  const int signal = sigtimedwait(&handled_, &info, &time);
  return signal < 0 ? 0 : signal;
}

int run_command(const std::vector<std::string>& command, const Environment& environment,
                const SignalGuard& signals) {
  const Started started = start(command, environment, signals);
  int status = 0;
  while (!collect(started.pid, status)) {
    siginfo_t info{};
    const int signal = signals.wait(std::chrono::seconds(1), info);
    const bool from_keyboard = info.si_code == SI_KERNEL;
    if (signal != 0 && signal != SIGCHLD && !from_keyboard) kill(started.pid, signal);
  }
  if (started.error != 0) {
    note(command[0] + ": " + std::strerror(started.error));
    return started.error == ENOENT ? kNotFound : kNotExecutable;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace ttrace
