// SPDX-License-Identifier: Apache-2.0
// The C interface as a C program uses it (abi_client.c), and what is in the files afterwards.
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "libttrace/segment.hpp"
#include "test/capture/client_run.hpp"
#include "test/catch.hpp"

using namespace ttrace;
using namespace ttrace::testing;
namespace fs = std::filesystem;

TEST_CASE("what a C program records is what a reader finds, in every dtype") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "dtypes") == 0);

  const SegmentReader reader(scratch.path / "rank00000/it000000.h5");
  CHECK(reader.info().run_id == "run-1");
  CHECK(reader.info().complete);
  REQUIRE(reader.records().size() == 16);
  for (std::uint8_t dtype = 0; dtype < kDTypeCount; ++dtype) {
    const Record& record = reader.records()[dtype];
    CHECK(record.dtype == static_cast<DType>(dtype));
    CHECK(record.key.module == "layer." + std::to_string(dtype));
    CHECK(record.key.microbatch == dtype);
    CHECK(record.shape == Shape{3, 5});
    const auto bytes = reader.bytes(record);
    REQUIRE(bytes.size() == 15 * size_of(record.dtype));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto mask = record.dtype == DType::boolean ? 1u : 0xffu;
      const auto expected = static_cast<unsigned char>((dtype * 7 + i * 13) & mask);
      if (bytes[i] != static_cast<std::byte>(expected)) FAIL_CHECK("byte " << i << " differs");
    }
  }
}

TEST_CASE("scalars, empty tensors, aliases and statistics keep their meaning") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "dtypes") == 0);
  const SegmentReader reader(scratch.path / "rank00000/it000000.h5");

  const Record& scalar = reader.records().at(12);
  CHECK(scalar.shape.empty());
  float value = 0;
  std::memcpy(&value, reader.bytes(scalar).data(), sizeof value);
  CHECK(value == 1.5f);

  CHECK(reader.records().at(13).shape == Shape{4, 0});
  CHECK(reader.bytes(reader.records()[13]).empty());

  const Record& alias = reader.records().at(14);
  CHECK(alias.alias_of == 12);
  CHECK(alias.flags == kFlagRootInput);
  CHECK(raw_name_of(alias) == "module.alias");
  CHECK(alias.hash == scalar.hash);
  CHECK(reader.layouts().at(static_cast<std::size_t>(alias.layout)).find("program") !=
        std::string::npos);

  const Record& stats = reader.records().at(15);
  CHECK(stats.kind == RecordKind::stats);
  CHECK(stats.key.call == 2);
  CHECK(stats.statistics.sum_squares == 30);
  CHECK(stats.statistics.min == -3);
  CHECK(stats.statistics.max == 4);
}

TEST_CASE("each iteration has its segment, and rank.json what the program told") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "dtypes") == 0);

  const SegmentReader later(scratch.path / "rank00000/it000004.h5");
  CHECK(later.info().iteration == 4);
  CHECK(later.records().size() == 1);

  const nlohmann::json rank = nlohmann::json::parse(rank_text(scratch.path));
  CHECK(rank["format"] == "ttrace-rank");
  CHECK(rank["axes"][0]["name"] == "tp");
  CHECK(rank["note"] == nlohmann::json({{"a", 1}, {"b", {2, 3}}}));
  CHECK(rank["events"].size() == 1);
  CHECK(rank["events"][0]["where"] == "layer.9");
  CHECK(rank["records"] == 17);
  CHECK(rank["lost"] == 0);
  CHECK(rank["degraded"] == false);
  CHECK_FALSE(rank.contains("writer_pid"));
  CHECK_FALSE(fs::exists(scratch.path / "rank00000/writer.log"));
  CHECK(fs::exists(scratch.path / "trace.json"));
}

TEST_CASE("wrong arguments are refused with words, and the trace says so") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "wrong") == 0);

  const nlohmann::json rank = nlohmann::json::parse(rank_text(scratch.path));
  CHECK(rank["degraded"] == true);
  CHECK(rank["records"] == 2);
  CHECK(rank["lost"] == 0);
  CHECK(rank["events"].size() == 17);
}

TEST_CASE("records of several threads all arrive, and the end of the process closes the trace") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "threads") == 0);

  const SegmentReader reader(scratch.path / "rank00000/it000000.h5");
  CHECK(reader.info().complete);
  REQUIRE(reader.records().size() == 800);
  for (const Record& record : reader.records()) {
    const auto bytes = reader.bytes(record);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    CHECK(text == record.key.module);
  }
}

TEST_CASE("a forked child is inert, and its parent goes on") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "forked") == 0);

  const SegmentReader reader(scratch.path / "rank00000/it000000.h5");
  CHECK(reader.info().complete);
  REQUIRE(reader.records().size() == 2);
  CHECK(reader.records()[1].key.module == "parent.again");
}

TEST_CASE("without a trace directory nothing is captured and nothing fails") {
  const std::string command =
      std::string("env -u TTRACE_OUT ") + TEST_CLIENT + " hold < /dev/null > /dev/null";
  const int status = std::system(command.c_str());
  CHECK(WEXITSTATUS(status) == 3);  // ttrace_open said so
}
