// SPDX-License-Identifier: Apache-2.0
// All functions of the C interface from eight threads at once (hammer_client.c), and what of it is
// in the trace. The client is built twice: as all of this tree is, and with the sources of the
// library under ThreadSanitizer, which fails it when two threads race.
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "libttrace/segment.hpp"
#include "test/capture/client_run.hpp"
#include "test/catch.hpp"

using namespace ttrace;
using namespace ttrace::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kThreads = 8;
constexpr std::size_t kRounds = 150;

// Every call of the first iteration was made by the thread that recorded its input, right before.
void check_first(const SegmentReader& reader) {
  REQUIRE(reader.records().size() == kThreads * kRounds);
  REQUIRE(reader.collectives().size() == kThreads * kRounds);
  std::map<std::string, std::uint64_t> next;  // round of a thread
  for (const Collective& call : reader.collectives()) {
    const std::string thread = call.module.substr(0, call.module.find(".round."));
    if (call.module != thread + ".round." + std::to_string(next[thread])) {
      FAIL_CHECK(call.module << " is out of order");
    }
    if (call.sequence != next[thread]++) FAIL_CHECK(call.module << " has another sequence");
    if (call.flags != 0) FAIL_CHECK(call.module << " has not ended");
    REQUIRE(call.input >= 0);
    const Record& input = reader.records()[static_cast<std::size_t>(call.input)];
    const auto bytes = reader.bytes(input);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (input.key.module != call.module || text != call.module) {
      FAIL_CHECK(call.module << " got the buffer of " << input.key.module);
    }
    if (call.position <= input.sequence) FAIL_CHECK(call.module << " came before its input");
    if (call.microbatch < -1 || call.microbatch > 3) FAIL_CHECK("micro-batch " << call.microbatch);
  }
  CHECK(next.size() == kThreads);
}

}  // namespace

TEST_CASE("eight threads that call every function leave a whole trace, and race nowhere") {
  const Scratch scratch;
  const fs::path said = scratch.path / "said";
  const fs::path trace = scratch.path / "run.trace";
  REQUIRE(run_client(trace, "> " + said.string(), "TTRACE_COMM=full ") == 0);

  std::uint64_t accepted_records = 0;
  std::uint64_t accepted_collectives = 0;
  std::ifstream(said) >> accepted_records >> accepted_collectives;
  check_first(SegmentReader(trace / "rank00000/it000000.h5"));
  std::uint64_t records = 0;
  std::uint64_t collectives = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(trace / "rank00000")) {
    if (entry.path().extension() != ".h5") continue;
    const SegmentReader reader(entry.path());
    CHECK(reader.info().complete);
    records += reader.records().size();
    collectives += reader.collectives().size();
  }
  CHECK(records == accepted_records);
  CHECK(collectives == accepted_collectives);
  const auto rank = nlohmann::json::parse(rank_text(trace));
  CHECK(rank["records"] == records);
  CHECK(rank["lost"] == 0);
  CHECK(rank["degraded"] == false);
  CHECK(rank["axes"].size() == kThreads);
  CHECK(rank["groups"].size() == kThreads);
}
