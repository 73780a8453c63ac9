// SPDX-License-Identifier: Apache-2.0
// See verify_process.hpp.
#include "tools/verify_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "libttrace/file.hpp"

namespace ttrace {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// From a polite request to the next stronger one: launchers need seconds to end their ranks.
constexpr std::chrono::seconds kGrace{8};
constexpr int kNoProgram = 127;

[[noreturn]] void become(const LoggedCommand& command, const SignalGuard& signals, int output,
                         int log) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody would be left to collect it
  sigprocmask(SIG_SETMASK, &signals.before(), nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  dprintf(STDERR_FILENO, "%s: %s\n", words[0], std::strerror(errno));
  _exit(kNoProgram);
}

pid_t start(const LoggedCommand& command, const SignalGuard& signals) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const FileDescriptor log = open_file(command.log, kNew | O_APPEND);
  FileDescriptor output;
  if (!command.output.empty()) output = open_file(command.output, kNew);
  const pid_t pid = fork();
  if (pid < 0) throw system_trouble("start", command.words[0], errno);
  if (pid == 0) become(command, signals, output.valid() ? output.get() : log.get(), log.get());
  setpgid(pid, pid);  // by whoever comes first
  return pid;
}

// Ends a command in steps: the launcher alone, its group, its group for good.
class Ending {
 public:
  explicit Ending(pid_t pid) : pid_(pid) {}

  void ask(int signal) {
    kill(pid_, signal);
    next_ = Clock::now() + kGrace;
    ++asked_;
  }
  void insist_when_due() {
    if (asked_ == 0 || Clock::now() < next_) return;
    insist();
  }
  void insist() {
    kill(-pid_, asked_ < 2 ? SIGTERM : SIGKILL);
    next_ = Clock::now() + kGrace;
    ++asked_;
  }
  // What the launcher left behind of its group.
  void clear() const {
    if (asked_ == 0) return;
    const auto end = Clock::now() + kGrace;
    for (int signal = SIGTERM; kill(-pid_, signal) == 0; signal = 0) {
      if (Clock::now() > end) {
        kill(-pid_, SIGKILL);
        return;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

 private:
  pid_t pid_;
  int asked_ = 0;
  Clock::time_point next_{};
};

}  // namespace

Ended run_logged(const LoggedCommand& command, const SignalGuard& signals,
                 const std::function<void()>& tick) {
  const pid_t pid = start(command, signals);
  const auto deadline = Clock::now() + command.timeout;
  Ending ending(pid);
  Ended ended;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) != pid) {
    siginfo_t info{};
    const int signal = signals.wait(milliseconds(200), info);
    const bool passed_on_only = signal == SIGUSR1 || signal == SIGUSR2;
    if (passed_on_only) {
      kill(pid, signal);
    } else if (signal != 0 && signal != SIGCHLD) {
      ended.signal == 0 ? ending.ask(signal) : ending.insist();  // twice: the user is impatient
      ended.signal = signal;
    }
    if (command.timeout.count() > 0 && !ended.timed_out && Clock::now() > deadline) {
      ended.timed_out = true;
      ending.ask(SIGTERM);
    }
    ending.insist_when_due();
    tick();
  }
  ending.clear();
  ended.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

}  // namespace ttrace
