// SPDX-License-Identifier: Apache-2.0
// A disk that is really full: a small tmpfs in a mount namespace of a child process. What was
// committed before must be readable afterwards. Skipped where namespaces are not allowed.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>

#include "libttrace/segment.hpp"
#include "test/catch.hpp"
#include "test/libttrace/segment_builder.hpp"

using namespace ttrace;
using namespace ttrace::testing;

namespace {

constexpr int kSkip = 77;

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

bool mount_disk(const std::filesystem::path& at, const std::string& size) {
  const std::string uid = std::to_string(getuid());
  const std::string gid = std::to_string(getgid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", "0 " + uid + " 1");
    put("/proc/self/gid_map", "0 " + gid + " 1");
  } else if (unshare(CLONE_NEWNS) != 0) {
    return false;
  }
  mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  return mount("tmpfs", at.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

// Runs `body` on a small disk; it returns what is wrong, "" for nothing.
void on_small_disk(const std::string& size,
                   const std::function<std::string(const std::filesystem::path&)>& body) {
  ScratchFolder folder;
  const std::filesystem::path disk = folder / "disk";
  std::filesystem::create_directory(disk);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!mount_disk(disk, size)) _exit(kSkip);
    std::string wrong;
    try {
      wrong = body(disk);
    } catch (const std::exception& error) {
      wrong = std::string("exception: ") + error.what();
    }
    std::cerr << wrong << (wrong.empty() ? "" : "\n");
    _exit(wrong.empty() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkip) {
    WARN("mount namespaces are not allowed here: not tested");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

struct Filled {
  std::uint64_t committed = 0;
  std::uint64_t collectives = 0;
  std::string trouble;
};

std::vector<std::byte> payload_of(std::uint64_t number, std::uint64_t elements) {
  return random_payload(DType::float32, {elements}, static_cast<unsigned>(number));
}

// A record, and a call that refers to it and has a text of its own.
void add_both(SegmentWriter& writer, std::uint64_t elements, Filled& filled) {
  Record record = record_of("it0/mb0/forward/m/output.0", DType::float32, {elements});
  record.key.module = "layers." + std::to_string(filled.committed);
  write(writer, record, payload_of(filled.committed, elements), "", 1 << 20);
  Collective call;
  call.function = "all_to_all";
  call.input_splits = std::to_string(filled.committed) + ",0";
  call.size = 1;
  call.input = static_cast<std::int64_t>(filled.committed++);
  writer.add_collective(call);
  ++filled.collectives;
}

// Writes until the disk is full, then closes what there is.
Filled fill(const std::filesystem::path& path, std::uint64_t elements) {
  Filled filled;
  SegmentWriter writer(path, {"run", 0, 0, true});
  while (filled.trouble.empty() && filled.committed < 1'000'000) {
    filled.trouble = trouble_of([&] { add_both(writer, elements, filled); });
  }
  writer.abandon();
  writer.close(false);
  return filled;
}

std::string check(const std::filesystem::path& path, const Filled& filled, std::uint64_t elements) {
  if (!contains(filled.trouble, "No space left on device")) return "message: " + filled.trouble;
  if (!contains(filled.trouble, "free some space")) return "no advice: " + filled.trouble;
  const SegmentReader reader(path);
  if (reader.info().complete) return "it says that it is complete";
  if (reader.records().size() != filled.committed) {
    return std::to_string(reader.records().size()) + " of " + std::to_string(filled.committed) +
           " records";
  }
  if (filled.committed == 0) return "nothing was committed";
  if (reader.collectives().size() != filled.collectives) {
    return std::to_string(reader.collectives().size()) + " of " +
           std::to_string(filled.collectives) + " collectives";
  }
  for (const Record& record : reader.records()) {
    const auto want = payload_of(record.sequence, elements);
    const auto got = reader.bytes(record);
    if (!std::equal(got.begin(), got.end(), want.begin(), want.end())) {
      return "bytes of record " + std::to_string(record.sequence);
    }
  }
  return "";
}

}  // namespace

TEST_CASE("records committed before the disk was full are kept") {
  for (const std::uint64_t elements : {3u, 700u, 1'000'000u}) {
    CAPTURE(elements);
    on_small_disk("16m", [&](const std::filesystem::path& disk) {
      const Filled filled = fill(disk / "s.h5", elements);
      return check(disk / "s.h5", filled, elements);
    });
  }
}

TEST_CASE("a disk that fills up from outside between two records loses no committed one") {
  on_small_disk("16m", [](const std::filesystem::path& disk) {
    Filled filled;
    SegmentWriter writer(disk / "s.h5", {"run", 0, 0, true});
    Record record = record_of("it0/mb0/forward/m/output.0", DType::float32, {100});
    for (; filled.committed < 2000; ++filled.committed) {
      record.key.module = "layers." + std::to_string(filled.committed);
      write(writer, record, payload_of(filled.committed, 100));
    }
    {
      std::ofstream other(disk / "other");
      while (other << std::string(1 << 16, 'x') << std::flush) {
      }
    }
    for (std::uint64_t i = 2000; filled.trouble.empty() && i < 100'000; ++i) {
      record.key.module = "layers." + std::to_string(i);
      filled.trouble = trouble_of([&] { write(writer, record, payload_of(i, 100)); });
      if (filled.trouble.empty()) ++filled.committed;
    }
    writer.abandon();
    writer.close(false);
    return check(disk / "s.h5", filled, 100);
  });
}

TEST_CASE("a segment that cannot even begin is trouble") {
  on_small_disk("512k", [](const std::filesystem::path& disk) {
    const std::string trouble = trouble_of([&] {
      SegmentWriter writer(disk / "s.h5", {"run", 0, 0, true});
    });
    if (std::filesystem::exists(disk / "s.h5.part")) return std::string("it left a part");
    return contains(trouble, "No space left on device") ? "" : "message: " + trouble;
  });
}
