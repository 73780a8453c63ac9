// SPDX-License-Identifier: Apache-2.0
// Collectives, scopes, micro-batches and the mesh as a C program tells them (marks_client.c), and
// what is in the files afterwards.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "libttrace/segment.hpp"
#include "test/capture/client_run.hpp"
#include "test/catch.hpp"

using namespace ttrace;
using namespace ttrace::testing;

namespace {

std::string first_part(const Key& key) {
  return "mb" + std::to_string(key.microbatch) + " " + key.module;
}

}  // namespace

TEST_CASE("a collective refers to the records of its buffers and to where it was made") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "collectives 3", "TTRACE_COMM=full ") == 0);
  const SegmentReader first(scratch.path / "rank00000/it000000.h5");
  REQUIRE(first.collectives().size() == 1);
  const Collective& sum = first.collectives()[0];
  CHECK(sum.function == "all_reduce");
  CHECK(sum.reduction == "sum");
  CHECK(sum.group == "tp:0,1");
  CHECK(sum.module == "layers.1.fc");  // the scope
  CHECK(sum.microbatch == 4);          // the current one
  CHECK(sum.sequence == 5);
  CHECK(sum.count == 3);
  CHECK(sum.factor == 1);
  CHECK(sum.member == 1);
  CHECK(sum.size == 2);
  CHECK(sum.peer == -1);
  CHECK(sum.flags == kCollectiveAsynchronous);
  CHECK(sum.dtype == DType::float32);
  CHECK(sum.position == 1);
  REQUIRE(sum.input == 1);
  REQUIRE(sum.output == 2);
  CHECK(to_string(first.records()[1].key) == "it0/mb4/comm/layers.1.fc/all_reduce.input");
  CHECK(to_string(first.records()[2].key) == "it0/mb4/comm/layers.1.fc/all_reduce.output");

  const SegmentReader second(scratch.path / "rank00000/it000001.h5");
  REQUIRE(second.collectives().size() == 1);
  const Collective& exchange = second.collectives()[0];
  CHECK(exchange.function == "all_to_all");
  CHECK(exchange.module == "named");
  CHECK(exchange.microbatch == -1);  // ended with the iteration before
  CHECK(exchange.input_splits == "1,2");
  CHECK(exchange.output_splits.empty());
  CHECK(exchange.reduction.empty());
  CHECK(exchange.input == kNotRecorded);
  CHECK(exchange.output == kNotRecorded);
  CHECK(exchange.position == 0);
  CHECK(nlohmann::json::parse(rank_text(scratch.path))["degraded"] == false);
}

TEST_CASE("TTRACE_COMM says whether collectives are recorded") {
  for (const auto& [text, wanted] : {std::pair{"", 0}, std::pair{"TTRACE_COMM=metadata ", 1},
                                     std::pair{"TTRACE_COMM=hash ", 2}}) {
    const Scratch scratch;
    CAPTURE(text);
    REQUIRE(run_client(scratch.path, "collectives " + std::to_string(wanted), text) == 0);
    const SegmentReader reader(scratch.path / "rank00000/it000000.h5");
    REQUIRE(reader.records().size() == (wanted == 2 ? 3 : 1));
    if (wanted == 2) CHECK(reader.records()[1].kind == RecordKind::hash);
    REQUIRE(reader.collectives().size() == (wanted == 0 ? 0 : 1));
    if (wanted == 1) CHECK(reader.collectives()[0].input == kNotRecorded);
    CHECK(nlohmann::json::parse(rank_text(scratch.path))["degraded"] == false);
  }
  const Scratch scratch;
  CHECK(run_client(scratch.path, "marks", "TTRACE_COMM=everything 2>/dev/null ") != 0);
  CHECK_FALSE(std::filesystem::exists(scratch.path / "rank00000"));
}

TEST_CASE("a rank that dies leaves the calls that it had told") {
  const Scratch scratch;
  CHECK(run_client(scratch.path, "dies", "TTRACE_COMM=metadata ") != 0);
  const std::filesystem::path segment = scratch.path / "rank00000/it000000.h5";
  for (int tries = 0; !std::filesystem::exists(segment) && tries < 600; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // its writer ends on its own
  }
  const SegmentReader reader(segment);
  CHECK_FALSE(reader.info().complete);
  REQUIRE(reader.collectives().size() == 2);
  CHECK(reader.collectives()[0].function == "broadcast");
  CHECK(reader.collectives()[0].input == 0);
  CHECK(reader.collectives()[0].flags == 0);
  CHECK(reader.collectives()[1].function == "barrier");  // in which it died
  CHECK(reader.collectives()[1].flags == kCollectiveBegun);
}

TEST_CASE("a call is one row where it began, whenever it ends") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "overlapping", "TTRACE_COMM=metadata ") == 0);
  const SegmentReader first(scratch.path / "rank00000/it000000.h5");
  REQUIRE(first.collectives().size() == 4);
  const Collective &sum = first.collectives()[0], &gather = first.collectives()[1];
  CHECK(sum.function == "all_reduce");
  CHECK(sum.flags == 0);
  CHECK(sum.position == 1);
  CHECK(sum.input == 0);  // as it was told first
  CHECK(sum.output == 3);
  CHECK(gather.function == "all_gather");
  CHECK(gather.flags == 0);
  CHECK(gather.position == 2);
  CHECK(gather.input == 1);
  CHECK(gather.output == 2);
  for (const std::size_t never : {2, 3}) {
    CHECK(first.collectives()[never].sequence == never);
    CHECK(first.collectives()[never].flags == kCollectiveBegun);
  }
  const SegmentReader second(scratch.path / "rank00000/it000001.h5");
  REQUIRE(second.collectives().size() == 1);
  CHECK(second.collectives()[0].member == 1);

  const nlohmann::json rank = nlohmann::json::parse(rank_text(scratch.path));
  CHECK(rank["collectives"] == 5);
  CHECK(rank["lost"] == 1);
  REQUIRE(rank["events"].size() == 3);
  CHECK(rank["events"][0]["why"] == "its input has 5 elements, not 6 as its count 6 says");
  CHECK(rank["events"][1]["what"] == "end not recorded");
  CHECK(rank["events"][2]["why"] == "call 3 of group tp:0,1 was told before");
}

TEST_CASE("with --estimate and in iterations that are left out no collective is written") {
  const Scratch scratch;
  CHECK(run_client(scratch.path, "collectives 1", "TTRACE_COMM=metadata TTRACE_ESTIMATE=1 ") == 0);
  CHECK_FALSE(std::filesystem::exists(scratch.path / "rank00000/it000000.h5"));
}

TEST_CASE("wrong calls are refused with words, and the trace says so") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "wrong", "TTRACE_COMM=metadata ") == 0);
  const nlohmann::json rank = nlohmann::json::parse(rank_text(scratch.path));
  CHECK(rank["degraded"] == true);
  CHECK(rank["events"].size() == 29);  // two are the same
  CHECK(rank["lost"] == 0);
  CHECK_FALSE(rank.contains("axes"));
  CHECK_FALSE(rank.contains("groups"));
  const SegmentReader reader(scratch.path / "rank00000/it000000.h5");
  CHECK(reader.collectives().size() == 1);
}

TEST_CASE("scope and micro-batch stand for what a tensor leaves out, the mesh is in rank.json") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "marks") == 0);
  const SegmentReader first(scratch.path / "rank00000/it000000.h5");
  REQUIRE(first.records().size() == 2);
  CHECK(first_part(first.records()[0].key) == "mb-1 outer");
  CHECK(first_part(first.records()[1].key) == "mb1 outer.inner");
  const SegmentReader second(scratch.path / "rank00000/it000001.h5");
  REQUIRE(second.records().size() == 2);
  CHECK(first_part(second.records()[0].key) == "mb-1 outer.inner");
  CHECK(first_part(second.records()[1].key) == "mb0 @root");

  const nlohmann::json rank = nlohmann::json::parse(rank_text(scratch.path));
  CHECK(rank["axes"] == nlohmann::json::parse(R"([{"name":"dp","size":3,"coord":2},
                                                  {"name":"tp","size":2,"coord":1}])"));
  CHECK(rank["groups"] == nlohmann::json::parse(R"({"tensor \"parallel\"":[4,2],"all":[4]})"));
  CHECK(rank["degraded"] == false);
}

TEST_CASE("programs built against an older or newer header are understood") {
  const Scratch scratch;
  REQUIRE(run_client(scratch.path, "versions") == 0);
  const SegmentReader reader(scratch.path / "rank00000/it000000.h5");
  REQUIRE(reader.records().size() == 2);
  CHECK(static_cast<char>(reader.bytes(reader.records()[0])[0]) == 'x');
  CHECK(static_cast<char>(reader.bytes(reader.records()[1])[0]) == 'y');
}
