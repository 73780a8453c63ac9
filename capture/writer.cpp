// SPDX-License-Identifier: Apache-2.0
// ttrace-writer: owns the files of one rank. The traced process starts it (spawn.cpp) and talks to
// it through the ring; it goes on when that process dies, and closes the files with all that
// arrived.
//   start detached → claim the rank's directory → drain the ring → close
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "capture/writer_claim.hpp"
#include "capture/writer_rank_file.hpp"
#include "capture/writer_segments.hpp"
#include "capture/writer_stream.hpp"
#include "capture/writer_trace_file.hpp"
#include "libttrace/core/ring.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {
namespace {

struct Arguments {
  int ring_fd = -1;
  pid_t parent = 0;
  std::int32_t rank = -1;
  std::int32_t world_size = 1;
  std::string run_id;
  std::filesystem::path directory;
};

std::optional<Arguments> parse(int argc, char** argv) {
  std::map<std::string_view, std::string_view> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  const auto number = [&given](std::string_view name, std::int32_t missing) {
    const std::string_view text = given[name];
    std::int32_t value = missing;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  Arguments arguments;
  arguments.ring_fd = number("--ring", -1);
  arguments.parent = number("--parent", 0);
  arguments.rank = number("--rank", -1);
  arguments.world_size = number("--world-size", 1);
  arguments.run_id = given["--run-id"];
  arguments.directory = given["--directory"];
  const bool complete = arguments.ring_fd >= 0 && arguments.parent > 0 && arguments.rank >= 0;
  return complete && !arguments.directory.empty() ? std::optional(arguments) : std::nullopt;
}

// ---- detaching ----

void close_inherited_files(int kept) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, static_cast<unsigned>(kept + 1), ~0U, 0U) == 0) return;
#endif
  const long limit = sysconf(_SC_OPEN_MAX);
  for (int fd = kept + 1; fd < limit; ++fd) close(fd);
}

void settle_in() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) {
    std::signal(signal, SIG_IGN);  // the rank's end is our end, nothing else
  }
  rlimit size{};
  if (getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur != size.rlim_max) {
    size.rlim_cur = size.rlim_max;  // the rank's own limit is not meant for a trace
    setrlimit(RLIMIT_FSIZE, &size);
  }
}

// Forks; the parent leaves as soon as the child calls DetachedChild::release() or dies, so that the
// rank, which waits for the parent, gets its child back at once.
class DetachedChild {
 public:
  DetachedChild() {
    int ends[2];
    if (pipe(ends) != 0) throw Trouble("pipe", "writer", "failed");
    const pid_t pid = fork();
    if (pid < 0) throw Trouble("fork", "writer", "failed");
    if (pid > 0) {
      close(ends[1]);
      char nothing = 0;
      while (read(ends[0], &nothing, 1) < 0 && errno == EINTR) {
      }
      _exit(0);
    }
    close(ends[0]);
    fd_ = ends[1];
  }
  ~DetachedChild() { release(); }
  DetachedChild(const DetachedChild&) = delete;
  DetachedChild& operator=(const DetachedChild&) = delete;
  void release() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// ---- the work ----

std::string refusal(const Arguments& arguments, const RankClaim& claim) {
  return "rank " + std::to_string(arguments.rank) + " of " + arguments.directory.string() +
         (claim.locked() ? " was captured before" : " is being captured by another process") +
         " and is left as it is; process " + std::to_string(arguments.parent) +
         " records nothing: give each process its own RANK, and each run a directory of its own";
}

// What the owner of the directory, or the next reader of it, should know.
void report_refusal(const std::filesystem::path& directory, const Arguments& arguments,
                    const RankClaim& claim, const std::string& why) {
  leave_refusal(directory, arguments.parent, why);
  if (claim.locked()) RankFile(directory).save();
}

// The outcome for the rank: 0 when nothing was lost.
int announce_end(RingConsumer& ring, const RankFile& rank_file, const std::string& trouble) {
  const bool good = rank_file.lost() == 0 && trouble.empty();
  const std::string text = std::to_string(rank_file.lost()) + " records were lost" +
                           (trouble.empty() ? "" : ": " + trouble);
  ring.announce(ConsumerState::finished, good ? 0 : EIO, good ? std::string{} : text);
  return good ? 0 : 1;
}

int write_rank(const Arguments& arguments, RingConsumer& ring, DetachedChild& child,
               const std::filesystem::path& directory) {
  const RankIdentity identity{settle_run_id(arguments.directory, arguments.run_id), arguments.rank,
                              arguments.world_size, arguments.parent};
  RankFile rank_file(directory, identity);
  Segments segments(directory, identity, rank_file);
  rank_file.save();
  ring.announce(ConsumerState::ready);
  child.release();

  std::string trouble;
  try {
    if (drain(ring, segments, rank_file) == StreamEnd::producer_died && segments.open()) {
      rank_file.add_event("rank ended early", "process " + std::to_string(arguments.parent),
                          "it ended in the middle of an iteration, without ttrace_close");
      const std::vector<RunningCall> running = segments.running_calls();
      if (!running.empty()) rank_file.tell_running(running);
    }
  } catch (const std::exception& error) {
    trouble = error.what();
    rank_file.add_event("recording stopped", "ring", trouble);
    rank_file.degrade();
    rank_file.log(trouble);
  }
  segments.end(false);
  rank_file.finish();
  return announce_end(ring, rank_file, trouble.empty() ? segments.trouble() : trouble);
}

int run(const Arguments& arguments, DetachedChild& child, ProcessWatch parent) {
  RingConsumer ring(arguments.ring_fd, std::move(parent));
  try {
    const std::filesystem::path directory =
        arguments.directory / rank_directory_name(arguments.rank);
    const RankClaim claim(directory);
    if (claim.locked() && !claim.used()) return write_rank(arguments, ring, child, directory);
    const std::string why = refusal(arguments, claim);
    ring.announce(ConsumerState::refused, EEXIST, why);
    report_refusal(directory, arguments, claim, why);
  } catch (const std::exception& error) {
    ring.announce(ConsumerState::refused, EIO, error.what());
  }
  return 1;
}

int main_of_writer(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fputs("ttrace-writer: is started by programs that are traced, see ttrace-capture\n",
               stderr);
    return 2;
  }
  close_inherited_files(arguments->ring_fd);
  settle_in();
  // The watch is made while our parent must still be the rank: its id cannot be another's yet.
  ProcessWatch parent(arguments->parent);
  if (getppid() != arguments->parent) return 1;
  DetachedChild child;
  return run(*arguments, child, std::move(parent));
}

}  // namespace
}  // namespace ttrace

int main(int argc, char** argv) {
  try {
    return ttrace::main_of_writer(argc, argv);
  } catch (const std::exception&) {
    return 2;
  }
}
