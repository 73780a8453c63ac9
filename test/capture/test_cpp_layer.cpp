// SPDX-License-Identifier: Apache-2.0
// ttrace.hpp as a C++17 program uses it (cpp_client.cpp), and what is in the files afterwards.
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libttrace/segment.hpp"
#include "test/capture/client_run.hpp"
#include "test/catch.hpp"

using namespace ttrace;
using namespace ttrace::testing;

namespace {

// The trace of the client, which is rank 1.
class CppRun {
 public:
  CppRun() : code_(run_client(scratch_.path, "", "TTRACE_COMM=hash ")) { REQUIRE(code_ == 0); }
  [[nodiscard]] std::filesystem::path folder() const { return scratch_.path / "rank00001"; }

 private:
  Scratch scratch_;
  int code_;
};

std::map<std::string, Record> by_key(const SegmentReader& reader) {
  std::map<std::string, Record> records;
  for (const Record& record : reader.records()) records.emplace(to_string(record.key), record);
  return records;
}

}  // namespace

TEST_CASE("each C++ type has its dtype") {
  const CppRun run;
  const SegmentReader reader(run.folder() / "it000003.h5");
  const auto records = by_key(reader);
  for (const auto& [name, dtype] : std::map<std::string, DType>{{"double", DType::float64},
                                                                {"float", DType::float32},
                                                                {"bool", DType::boolean},
                                                                {"signed char", DType::int8},
                                                                {"unsigned char", DType::uint8},
                                                                {"short", DType::int16},
                                                                {"int", DType::int32},
                                                                {"long", DType::int64},
                                                                {"long long", DType::int64},
                                                                {"bfloat16", DType::bfloat16},
                                                                {"half", DType::float16},
                                                                {"code", DType::bfloat16}}) {
    const Record& record = records.at("it3/forward/" + name + "/output.0");
    CAPTURE(name);
    CHECK(record.dtype == dtype);
    CHECK(record.shape.empty());
  }
}

TEST_CASE("a tensor is the same from a pointer, a vector and an array") {
  const CppRun run;
  const SegmentReader reader(run.folder() / "it000003.h5");
  const auto records = by_key(reader);
  for (const char* slot : {"pointer", "vector", "array", "flat"}) {
    const Record& record = records.at(std::string("it3/mb5/forward/layer/") + slot);
    CAPTURE(slot);
    CHECK(record.shape == (std::string(slot) == "flat" ? Shape{6} : Shape{2, 3}));
    REQUIRE(record.bytes == 24);
    std::vector<float> values(6);
    std::memcpy(values.data(), reader.bytes(record).data(), 24);
    CHECK(values == std::vector<float>{1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("places say phase, module, slot and what else is known") {
  const CppRun run;
  const SegmentReader reader(run.folder() / "it000003.h5");
  const auto records = by_key(reader);
  CHECK(records.count("it3/mb5/forward/layer/input.0") == 1);
  CHECK(records.count("it3/mb5/backward/layer/grad_output.1") == 1);
  CHECK(records.count("it3/grad/w/reduced") == 1);
  CHECK(records.count("it3/mb5/grad/w/local") == 1);
  CHECK(records.count("it3/step/w/param") == 1);
  const Record& value = records.at("it3/param/w/value");
  CHECK(value.flags == kFlagTrainable);
  CHECK(raw_name_of(value) == "module.w");
  CHECK(reader.layouts().at(static_cast<std::size_t>(value.layout)) ==
        R"({"dims":"h[tp]","shape":[4],"source":"program"})");
  CHECK(records.at("it3/param/w/master").alias_of == static_cast<std::int64_t>(value.sequence));
  CHECK(records.at("it3/mb5/comm/layer#2/all_reduce.input").kind == RecordKind::hash);
  CHECK(records.at("it3/mb7/forward/layer/output.0").flags == kFlagGlue);
  CHECK(reader.info().complete);
  REQUIRE(reader.collectives().size() == 1);
  CHECK(reader.collectives()[0].module == "layer");
  CHECK(reader.collectives()[0].member == 1);
  CHECK(reader.collectives()[0].flags == 0);  // it has ended
}

TEST_CASE("what went wrong is in the trace with words, and was not recorded") {
  const CppRun run;
  CHECK(SegmentReader(run.folder() / "it000003.h5").records().size() == 12 + 4 + 9);
  std::ifstream file(run.folder() / "rank.json");
  const auto rank = nlohmann::json::parse(file);
  CHECK(rank["degraded"] == true);
  CHECK(rank["note"] == 1);
  CHECK(rank["axes"][0]["coord"] == 1);
  CHECK(rank["groups"]["tp"] == std::vector<int>{0, 1});
  std::map<std::string, int> events;
  for (const auto& event : rank["events"]) events[event["why"]] = event["count"];
  CHECK(events == std::map<std::string, int>{{"its shape has 4 elements, the container 3", 2},
                                             {"17 dimensions, at most 16 are possible", 1},
                                             {"shape is larger than any memory", 1},
                                             {"module is empty", 1}});
}

TEST_CASE("without a trace directory the same program does nothing") {
  const std::string command = std::string("env -u TTRACE_OUT ") + TEST_CLIENT + " inert";
  const int status = std::system(command.c_str());
  CHECK(WEXITSTATUS(status) == 0);
}
