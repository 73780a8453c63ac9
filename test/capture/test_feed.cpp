// SPDX-License-Identifier: Apache-2.0
// ttrace_feed with packs whose bytes are written here, one by one: what arrives in the program's
// memory, what is left alone, and what the trace says about it.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "capture/ttrace.h"
#include "libttrace/segment.hpp"
#include "test/catch.hpp"

namespace fs = std::filesystem;

namespace {

// A file of the format in docs/format.md.
class HandMadePack {
 public:
  template <class T>
  void add(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
           const std::vector<T>& values, double scale = 1) {
    payloads_.resize((payloads_.size() + 63) / 64 * 64, '\0');
    const std::string bytes(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(T));
    tensors_[name] = {
        {"dtype", dtype}, {"shape", shape}, {"offset", payloads_.size()}, {"bytes", bytes.size()}};
    if (scale != 1) tensors_[name]["scale"] = scale;
    payloads_ += bytes;
  }

  void write(const fs::path& path, const std::string& microbatches,
             const std::string& layouts = "{}") const {
    const std::string index = R"({"format":"ttrace-pack","version":1,"tensors":)" +
                              tensors_.dump() + R"(,"replay":{"microbatches":)" + microbatches +
                              R"(,"layouts":)" + layouts + "}}\n";
    std::string text = "TTRACEPK";
    for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(index.size() >> (8 * byte));
    text += index;
    text.resize((text.size() + 63) / 64 * 64, '\0');
    std::ofstream(path, std::ios::binary) << text << payloads_;
  }

 private:
  nlohmann::json tensors_ = nlohmann::json::object();
  std::string payloads_;
};

// A capture under --replay, in this process.
class Run {
 public:
  Run(const HandMadePack& pack, const std::string& microbatches,
      const std::string& layouts = "{}") {
    std::string name = (fs::temp_directory_path() / "ttrace-feed-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    pack.write(folder_ / "made.pack", microbatches, layouts);
    setenv("TTRACE_REPLAY", (folder_ / "made.pack").c_str(), 1);
    open();
  }
  ~Run() {
    ttrace_close();
    unsetenv("TTRACE_REPLAY");
    fs::remove_all(folder_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  nlohmann::json close() const {
    REQUIRE(ttrace_close() == 0);
    std::ifstream file(folder_ / "run.trace/rank00000/rank.json");
    return nlohmann::json::parse(file);
  }
  [[nodiscard]] fs::path segment(const std::string& name) const {
    return folder_ / "run.trace/rank00000" / name;
  }

 private:
  void open() const {
    for (const char* variable : {"RANK", "WORLD_SIZE"}) unsetenv(variable);
    const std::string trace = (folder_ / "run.trace").string();
    ttrace_options options{};
    options.struct_size = sizeof options;
    options.directory = trace.c_str();
    options.writer = TEST_WRITER;
    REQUIRE(ttrace_open(&options) == 0);
  }

  fs::path folder_;
};

struct Place {
  std::uint8_t phase;
  const char* module;
  const char* slot;
  int microbatch = -1;
  std::uint32_t call = 0;
};

// `data` stays as it is when nothing is fed.
template <class T>
ttrace_tensor tensor_of(const Place& place, ttrace_dtype dtype,
                        const std::vector<std::uint64_t>& shape, const std::vector<T>& data) {
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.phase = place.phase;
  tensor.dtype = static_cast<std::uint8_t>(dtype);
  tensor.ndim = static_cast<std::uint8_t>(shape.size());
  tensor.microbatch = place.microbatch;
  tensor.call = place.call;
  tensor.module = place.module;
  tensor.slot = place.slot;
  tensor.shape = shape.data();
  tensor.data = data.data();
  tensor.alias_of = -1;
  return tensor;
}

template <class T>
int feed(const Place& place, ttrace_dtype dtype, const std::vector<std::uint64_t>& shape,
         std::vector<T>& data) {
  const ttrace_tensor tensor = tensor_of(place, dtype, shape, data);
  return ttrace_feed(&tensor, data.data());
}

std::vector<std::string> events_of(const nlohmann::json& rank) {
  std::vector<std::string> events;
  for (const nlohmann::json& event : rank.at("events")) {
    events.push_back(event.at("what").get<std::string>() + "|" +
                     event.at("where").get<std::string>() + "|" +
                     event.at("why").get<std::string>());
  }
  return events;
}

constexpr const char* kOneMicrobatch = R"({"0":{"0":{"0":0}}})";

}  // namespace

TEST_CASE("the live type wins, each value is rounded once to the nearest, ties to even") {
  HandMadePack pack;
  // 1, -3 and infinity in bfloat16.
  pack.add<std::uint16_t>("it0/mb0/forward/narrow/output.0", "bfloat16", {3},
                          {0x3f80, 0xc040, 0x7f80});
  // Halfway between two bfloat16 values, of which the lower is even; of which the upper is; a bit
  // above halfway, which a first rounding to float32 would make halfway; beyond the largest.
  pack.add<double>("it0/mb0/forward/wide/output.0", "float64", {4},
                   {1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-8 + 0x1p-40, 1e300});
  pack.add<double>("it0/mb0/backward/wide/grad_output.0", "float64", {2},
                   {1 + 0x1p-24, 1 + 0x3p-24});
  pack.add<float>("it0/mb0/backward/scaled/grad_output.0", "float32", {2}, {3, -0.25f}, 0.5);
  const Run run(pack, kOneMicrobatch);
  REQUIRE(ttrace_begin_iteration(0) == 0);

  std::vector<float> floats(3, 7);
  CHECK(feed({TTRACE_FORWARD, "narrow", "output.0", 0}, TTRACE_FLOAT32, {3}, floats) == 1);
  CHECK(floats == std::vector<float>{1, -3, std::numeric_limits<float>::infinity()});
  std::vector<double> doubles(3, 7);
  CHECK(feed({TTRACE_FORWARD, "narrow", "output.0", 0}, TTRACE_FLOAT64, {3}, doubles) == 1);
  CHECK(doubles[1] == -3);
  std::vector<std::uint16_t> codes(4, 7);
  CHECK(feed({TTRACE_FORWARD, "wide", "output.0", 0}, TTRACE_BFLOAT16, {4}, codes) == 1);
  CHECK(codes == std::vector<std::uint16_t>{0x3f80, 0x3f82, 0x3f81, 0x7f80});
  std::vector<float> rounded(2, 7);
  CHECK(feed({TTRACE_BACKWARD, "wide", "grad_output.0", 0}, TTRACE_FLOAT32, {2}, rounded) == 1);
  CHECK(rounded == std::vector<float>{1, 1 + 0x1p-22f});
  CHECK(feed({TTRACE_BACKWARD, "scaled", "grad_output.0", 0}, TTRACE_FLOAT32, {2}, rounded) == 1);
  CHECK(rounded == std::vector<float>{1.5f, -0.125f});
  CHECK(run.close().at("fed") == 5);
}

TEST_CASE("what does not fit is left alone, and rank.json says where and why") {
  HandMadePack pack;
  pack.add<float>("it0/mb0/forward/layer/output.0", "float32", {2, 3}, {1, 2, 3, 4, 5, 6});
  pack.add<float>("it0/grad/weight/reduced", "float32", {2}, {1, 2});
  const Run run(pack, kOneMicrobatch);
  REQUIRE(ttrace_begin_iteration(0) == 0);

  std::vector<float> turned(6, 7);
  CHECK(feed({TTRACE_FORWARD, "layer", "output.0", 0}, TTRACE_FLOAT32, {3, 2}, turned) == -EINVAL);
  CHECK(std::string(ttrace_last_error()) ==
        "layer/output.0: it is [3, 2] here, [2, 3] in the pack");
  std::vector<std::int64_t> numbers(2, 7);
  CHECK(feed({TTRACE_GRAD, "weight", "reduced"}, TTRACE_INT64, {2}, numbers) == -EINVAL);
  CHECK(turned == std::vector<float>(6, 7));
  CHECK(numbers == std::vector<std::int64_t>(2, 7));

  const nlohmann::json rank = run.close();
  CHECK(events_of(rank) ==
        std::vector<std::string>{
            "not overwritten|layer/output.0|it is [3, 2] here, [2, 3] in the pack",
            "not overwritten|weight/reduced|it is int64 here, float32 in the pack"});
  CHECK(rank.at("fed") == 0);
  CHECK(rank.at("degraded") == false);
}

TEST_CASE("what the pack has not is left alone; only a parameter is missed") {
  HandMadePack pack;
  pack.add<float>("it0/mb2/forward/layer/output.0", "float32", {1}, {1});
  const Run run(pack, R"({"0":{"0":{"0":0,"1":2},"1":{"2":2}}})");
  std::vector<float> data(1, 7);
  const Place layer{TTRACE_FORWARD, "layer", "output.0", 1};
  CHECK(feed(layer, TTRACE_FLOAT32, {1}, data) == 0);  // no iteration was begun
  REQUIRE(ttrace_begin_iteration(0) == 0);

  for (const Place& absent :
       {Place{TTRACE_FORWARD, "other", "output.0", 1},
        Place{TTRACE_FORWARD, "layer", "output.0", 0},
        Place{TTRACE_FORWARD, "layer", "output.0", 2},  // rank 1 has it
        Place{TTRACE_FORWARD, "layer", "output.0", 1, 1},
        Place{TTRACE_BACKWARD, "layer", "output.0", 1}, Place{TTRACE_GRAD, "weight", "reduced"},
        Place{TTRACE_PARAM, "weight", "value"}}) {
    CHECK(feed(absent, TTRACE_FLOAT32, {1}, data) == 0);
    CHECK(data[0] == 7);
  }
  CHECK(feed(layer, TTRACE_FLOAT32, {1}, data) == 1);  // its number in the pack is 2
  CHECK(data[0] == 1);
  CHECK(events_of(run.close()) ==
        std::vector<std::string>{"not overwritten|weight/value|the pack has no such tensor"});
}

TEST_CASE("a step starts from what the step before it left in the other run") {
  HandMadePack pack;
  pack.add<float>("it0/param/weight/master", "float32", {1}, {10});
  for (const auto& [slot, value] :
       {std::pair{"master", 11.0f}, std::pair{"momentum", 12.0f}, std::pair{"param", 13.0f}}) {
    pack.add<float>(std::string("it0/step/weight/") + slot, "float32", {1}, {value});
    pack.add<float>(std::string("it1/step/weight/") + slot, "float32", {1}, {value + 10});
  }
  const Run run(pack, R"({"0":{"0":{"0":0}},"1":{"0":{"0":0}}})");
  const auto fed = [](const char* slot) {
    std::vector<float> data(1, 7);
    const int written = feed({TTRACE_STEP, "weight", slot}, TTRACE_FLOAT32, {1}, data);
    return std::pair{written, data[0]};
  };
  REQUIRE(ttrace_begin_iteration(0) == 0);
  CHECK(fed("master") == std::pair{1, 10.0f});
  CHECK(fed("momentum") == std::pair{0, 7.0f});  // there was none before the first step
  CHECK(fed("param") == std::pair{0, 7.0f});
  REQUIRE(ttrace_begin_iteration(1) == 0);
  CHECK(fed("master") == std::pair{1, 11.0f});
  CHECK(fed("momentum") == std::pair{1, 12.0f});
  CHECK(fed("param") == std::pair{0, 7.0f});
  CHECK(run.close().at("fed") == 0);  // counts what lies between modules
}

TEST_CASE(
    "after an iteration that the pack has not, parameters are recorded as fed and no step is") {
  HandMadePack pack;
  pack.add<float>("it5/param/weight/value", "float32", {2}, {3, 4});
  const Run run(pack, R"({"5":{"0":{"0":0}}})");
  REQUIRE(ttrace_begin_iteration(5) == 0);
  std::vector<float> own(2, 7);
  const std::vector<std::uint64_t> shape{2};
  ttrace_tensor weight = tensor_of({TTRACE_PARAM, "weight", "value"}, TTRACE_FLOAT32, shape, own);
  CHECK(ttrace_record(&weight) == 0);
  CHECK(own == std::vector<float>{7, 7});  // to record is not to write
  CHECK(ttrace_feed(&weight, own.data()) == 1);
  CHECK(own == std::vector<float>{3, 4});
  weight.phase = TTRACE_STEP;
  CHECK(ttrace_record(&weight) == -ENOTCONN);
  const nlohmann::json rank = run.close();
  REQUIRE(events_of(rank).size() == 1);
  CHECK(events_of(rank)[0].rfind("not recorded|step|", 0) == 0);

  const ttrace::SegmentReader reader(run.segment("it000005.h5"));
  REQUIRE(reader.records().size() == 1);
  std::vector<float> recorded(2);
  std::memcpy(recorded.data(), reader.bytes(reader.records()[0]).data(), 8);
  CHECK(recorded == std::vector<float>{3, 4});
}

TEST_CASE("a rank of several gets its part, as the pack says that it is cut") {
  HandMadePack pack;
  std::vector<float> whole(24);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  for (const char* name : {"rows", "halves", "turned", "whole"}) {
    pack.add<float>(std::string("it0/param/") + name + "/value", "float32", {4, 6}, whole);
  }
  const Run run(pack, kOneMicrobatch,
                R"({"it0/param/rows/value":{"dims":"[tp] -"},)"
                R"("it0/param/halves/value":{"dims":"- [tp:/2]"},)"
                R"("it0/param/turned/value":{"dims":"[tp] -","swapped":[0,1]},)"
                R"("it0/param/whole/value":{"dims":"- -"}})");
  REQUIRE(ttrace_set(R"({"axes":[{"name":"tp","size":2,"coord":1}]})") == 0);
  REQUIRE(ttrace_begin_iteration(0) == 0);
  const auto fed = [](const char* name, const std::vector<std::uint64_t>& shape) {
    std::vector<float> data(static_cast<std::size_t>(shape[0] * shape[1]), -1);
    CHECK(feed({TTRACE_PARAM, name, "value"}, TTRACE_FLOAT32, shape, data) == 1);
    return data;
  };
  CHECK(fed("rows", {2, 6}) == std::vector<float>{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  // Each half of a row, columns 0-2 and 3-5, is cut in chunks of 2 and 1 columns.
  CHECK(fed("halves", {4, 2}) == std::vector<float>{2, 5, 8, 11, 14, 17, 20, 23});
  CHECK(fed("turned", {6, 2}) ==
        std::vector<float>{12, 18, 13, 19, 14, 20, 15, 21, 16, 22, 17, 23});
  CHECK(fed("whole", {4, 6}) == whole);
  std::vector<float> wrong(6, 7);
  CHECK(feed({TTRACE_PARAM, "rows", "value"}, TTRACE_FLOAT32, {1, 6}, wrong) == -EINVAL);
  CHECK(wrong == std::vector<float>(6, 7));
}

TEST_CASE("a piece of a flattened shard is told by the program, how the shard is cut by the pack") {
  HandMadePack pack;
  std::vector<float> whole(24);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  for (const char* name : {"columns", "whole"}) {
    pack.add<float>(std::string("it0/grad/") + name + "/reduced", "float32", {4, 6}, whole);
  }
  const Run run(pack, kOneMicrobatch, R"({"it0/grad/columns/reduced":{"dims":"- [tp]"}})");
  REQUIRE(ttrace_set(R"({"axes":[{"name":"tp","size":2,"coord":1}]})") == 0);
  REQUIRE(ttrace_begin_iteration(0) == 0);
  const auto fed = [](const char* name, const char* layout) {
    std::vector<float> data(5, -1);
    const std::vector<std::uint64_t> shape = {5};
    ttrace_tensor tensor = tensor_of({TTRACE_GRAD, name, "reduced"}, TTRACE_FLOAT32, shape, data);
    tensor.layout = layout;
    const int written = ttrace_feed(&tensor, data.data());
    return std::pair(written, data);
  };
  // The shard is columns 3-5: 3 4 5, 9 10 11, 15 16 17, 21 22 23.
  const auto [written, piece] =
      fed("columns", R"({"dims":"- [tp]","flat":{"shape":[4,3],"start":4,"count":5}})");
  CHECK(written == 1);
  CHECK(piece == std::vector<float>{10, 11, 15, 16, 17});
  const auto last = fed("whole", R"({"dims":"- -","flat":{"shape":[4,6],"start":19,"count":5}})");
  CHECK(last.second == std::vector<float>{19, 20, 21, 22, 23});
  for (const char* layout :
       {R"({"dims":"- -","flat":{"shape":[4,6],"start":20,"count":5}})",  // one too many
        R"({"dims":"- -","flat":{"shape":[4,3],"start":0,"count":5}})", R"({"dims":"- -"})"}) {
    const auto [refused, untouched] = fed("whole", layout);
    CHECK(refused == -EINVAL);
    CHECK(untouched == std::vector<float>(5, -1));
  }
}

TEST_CASE("names are escaped and calls numbered as keys are printed") {
  HandMadePack pack;
  pack.add<float>("it0/mb0/forward/a%2Fb%23c%25#2/output.0", "float32", {}, {5});
  const Run run(pack, kOneMicrobatch);
  REQUIRE(ttrace_begin_iteration(0) == 0);
  std::vector<float> data(1, 7);
  CHECK(feed({TTRACE_FORWARD, "a/b#c%", "output.0", 0, 2}, TTRACE_FLOAT32, {}, data) == 1);
  CHECK(data[0] == 5);
}

TEST_CASE("without a replay, and without a trace, nothing is fed") {
  std::vector<float> data(1, 7);
  CHECK(feed({TTRACE_FORWARD, "layer", "output.0", 0}, TTRACE_FLOAT32, {1}, data) == 0);
  CHECK(ttrace_feed(nullptr, nullptr) == 0);
  CHECK(data[0] == 7);
}
