// SPDX-License-Identifier: Apache-2.0
// Opening the directory of a trace: what it says, and what stops it.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "libttrace/finding.hpp"
#include "libttrace/trace.hpp"
#include "test/catch.hpp"
#include "test/libttrace/segment_builder.hpp"

using namespace ttrace;
using namespace ttrace::testing;

namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// Members of rank.json beyond the necessary ones.
std::string rank_json(int rank, const std::string& more = "") {
  return R"({"format":"ttrace-rank","version":1,"run_id":"r","rank":)" + std::to_string(rank) +
         R"(,"world_size":4)" + (more.empty() ? "" : "," + more) + "}";
}

class SampleTrace {
 public:
  SampleTrace() {
    put(path() / "trace.json", R"({"format":"ttrace-trace","version":1,"run_id":"r"})");
    add_rank(0, {0, 2});
    add_rank(3, {2, 1000000});
  }
  void add_rank(int rank, const std::vector<std::int64_t>& iterations,
                const std::string& more = "") const {
    for (const std::int64_t iteration : iterations) write_segment(rank, iteration, {});
    put(rank_file(rank), rank_json(rank, more));
  }
  void write_segment(int rank, std::int64_t iteration, std::optional<SegmentInfo> info) const {
    const fs::path file = segment_path(path(), rank, iteration);
    fs::create_directories(file.parent_path());
    SegmentWriter writer(file, info.value_or(SegmentInfo{"r", rank, iteration, true}));
    write(writer, record_of("it0/param/w/value", DType::uint8, {1}), std::array{std::byte{9}});
    writer.close(true);
  }
  [[nodiscard]] fs::path path() const { return folder_ / "run.trace"; }
  [[nodiscard]] fs::path rank_file(int rank) const {
    return segment_path(path(), rank, 0).parent_path() / "rank.json";
  }
  [[nodiscard]] std::string trouble() const {
    return trouble_of([&] { Trace::open(path()); });
  }
  // Rank 0's folder as a run leaves it, or a run that is still going on.
  void leave_part(const std::string& more) const {
    put(part(), "");
    put(rank_file(0), rank_json(0, more));
  }
  [[nodiscard]] fs::path part() const { return segment_path(path(), 0, 3).string() + ".part"; }

 private:
  ScratchFolder folder_;
};

std::string host() {
  std::array<char, 256> name{};
  REQUIRE(gethostname(name.data(), name.size() - 1) == 0);
  return name.data();
}

// This process under another name, as the kernel shows it.
class ProcessName {
 public:
  explicit ProcessName(const char* name) {
    prctl(PR_GET_NAME, old_.data());
    prctl(PR_SET_NAME, name);
  }
  ~ProcessName() { prctl(PR_SET_NAME, old_.data()); }
  ProcessName(const ProcessName&) = delete;
  ProcessName& operator=(const ProcessName&) = delete;

 private:
  std::array<char, 16> old_{};
};

}  // namespace

TEST_CASE("a trace lists its ranks and iterations") {
  const SampleTrace sample;
  put(sample.path() / "rank00000" / "notes.txt", "ignored");
  put(sample.path() / "rankings" / "x", "ignored");
  put(sample.path() / "init.pack", "ignored");

  const Trace trace = Trace::open(sample.path());

  CHECK(trace.path() == sample.path());
  CHECK(trace.run_id() == "r");
  CHECK(contains(trace.json(), "ttrace-trace"));
  CHECK(!trace.logical());
  CHECK(trace.world_size() == 4);
  REQUIRE(trace.ranks().size() == 2);
  CHECK(trace.ranks()[0].rank == 0);
  CHECK(trace.ranks()[1].rank == 3);
  CHECK(trace.ranks()[1].iterations == std::vector<std::int64_t>{2, 1000000});
  CHECK(trace.iterations() == std::vector<std::int64_t>{0, 2, 1000000});
}

TEST_CASE("segments open on demand and stay") {
  const SampleTrace sample;
  Trace trace = Trace::open(sample.path());

  const SegmentReader* segment = trace.segment(3, 1000000);

  REQUIRE(segment != nullptr);
  CHECK(segment->info().iteration == 1000000);
  CHECK(segment->bytes(segment->records()[0])[0] == std::byte{9});
  CHECK(trace.segment(3, 1000000) == segment);
  CHECK(trace.segment(0, 1000000) == nullptr);
  CHECK(trace.segment(1, 0) == nullptr);
  const Trace moved = std::move(trace);
  CHECK(moved.segment(3, 1000000) == segment);
}

TEST_CASE("rank.json is read whole") {
  const SampleTrace sample;
  sample.add_rank(1, {0}, R"json(
      "axes":[{"name":"dp","size":2,"coord":0},{"name":"tp","size":2,"coord":1,"kind":"tensor"}],
      "modules":{"decoder.layers.0":{"class":"TransformerLayer","forward":"layer.py:12",
                                     "expected":true,"calls":3,"returned_tensor":true},
                 "decoder":{"class":"ModuleList","expected":false},
                 "odd":{}},
      "parameters":{"w":{"shape":[8,4],"dtype":"bfloat16","trainable":false,
                         "layout":{"dims":"h[tp] d"}},
                    "b":{"shape":[],"dtype":"float32","layout":null}},
      "events":[{"what":"dropped","where":"w","why":"ring","count":7},{"what":"compiled"}],
      "updates":{"3":[{"class":"torch.optim.sgd.SGD","values":{"lr":0.5,"nesterov":true,"x":[1,2]},
                       "parameters":["w","b"],"steps":[4,null]},
                      {"class":"mine","values":{},"parameters":["c"],"steps":0}]},
      "groups":{"tp":[0,1]},"degraded":true,"some_new_member":[1,2]
      )json");

  const Trace trace = Trace::open(sample.path());

  const RankInfo& rank = trace.ranks()[1];
  CHECK(rank.axis_kinds == std::map<std::string, std::string>{{"tp", "tensor"}});
  CHECK(rank.axis_order == std::vector<std::string>{"dp", "tp"});
  CHECK(rank.axes == Coordinates{{"dp", {0, 2}}, {"tp", {1, 2}}});
  CHECK(rank.degraded);
  REQUIRE(rank.modules.size() == 3);
  const ModuleInfo& layer = rank.modules.at("decoder.layers.0");
  CHECK(layer.class_name == "TransformerLayer");
  CHECK(layer.location == "layer.py:12");
  CHECK(layer.expected);
  CHECK(layer.calls == 3);
  CHECK(layer.returned_tensor);
  CHECK(!rank.modules.at("decoder").expected);
  CHECK(rank.modules.at("odd").expected);
  const ParameterInfo& weight = rank.parameters.at("w");
  CHECK(weight.shape == Shape{8, 4});
  CHECK(weight.dtype == DType::bfloat16);
  CHECK(!weight.trainable);
  CHECK(weight.layout_json == R"({"dims":"h[tp] d"})");
  CHECK(rank.parameters.at("b").layout_json.empty());
  CHECK(rank.parameters.at("b").trainable);
  REQUIRE(rank.updates.size() == 1);
  REQUIRE(rank.updates.at(3).size() == 2);
  const UpdateGroup& update = rank.updates.at(3)[0];
  CHECK(update.optimizer == "torch.optim.sgd.SGD");
  CHECK(update.values ==
        std::map<std::string, double>{{"lr", 0.5}, {"nesterov", 1}, {"x.0", 1}, {"x.1", 2}});
  CHECK(update.parameters == std::vector<std::string>{"w", "b"});
  CHECK(update.steps == std::vector<std::int64_t>{4, -1});
  CHECK(rank.updates.at(3)[1].steps == std::vector<std::int64_t>{0});
  REQUIRE(rank.events.size() == 2);
  CHECK(rank.events[0].what == "dropped");
  CHECK(rank.events[0].count == 7);
  CHECK(rank.events[1].count == 1);
}

TEST_CASE("a merged trace says that it is logical") {
  const SampleTrace sample;
  put(sample.path() / "trace.json", R"({"format":"ttrace-trace","version":1,"logical":true})");
  CHECK(Trace::open(sample.path()).logical());
}

TEST_CASE("what is no trace is refused") {
  ScratchFolder folder;
  const auto opening = [](const fs::path& path) { return trouble_of([&] { Trace::open(path); }); };
  CHECK(contains(opening(folder / "none"), "no such folder"));
  put(folder / "file", "x");
  CHECK(contains(opening(folder / "file"), "not a folder"));
  fs::create_directory(folder / "empty");
  CHECK(contains(opening(folder / "empty"), "no trace.json"));
}

TEST_CASE("a trace without segments says that nothing was captured") {
  ScratchFolder folder;
  put(folder / "trace.json", R"({"format":"ttrace-trace","version":1})");
  const auto opening = [&] { return trouble_of([&] { Trace::open(folder / ""); }); };
  CHECK(contains(opening(), "nothing captured"));
  put(folder / "rank00000", "a file, not a folder");
  CHECK(contains(opening(), "rank00000"));
  fs::remove(folder / "rank00000");
  put(folder / "rank00000/rank.json", rank_json(0));
  CHECK(contains(opening(), "nothing captured"));
}

TEST_CASE("a rank without rank.json is trouble") {
  const SampleTrace sample;
  fs::remove(sample.rank_file(3));
  CHECK(contains(sample.trouble(), sample.rank_file(3).string() + ": it is missing"));
}

TEST_CASE("malformed JSON is trouble with file and byte") {
  const SampleTrace sample;
  put(sample.rank_file(0), R"({"format":"ttrace-rank",})");
  CHECK(contains(sample.trouble(), sample.rank_file(0).string() + ": malformed JSON at byte 25"));
  put(sample.rank_file(0), "");
  CHECK(contains(sample.trouble(), "malformed JSON at byte 1"));
  put(sample.path() / "trace.json", "{\"a\":\"\xff\"}");
  CHECK(contains(sample.trouble(), "trace.json: malformed JSON at byte 7"));
}

TEST_CASE("members of the wrong type are named") {
  struct Case {
    std::string more;
    std::string complaint;
  };
  const Case entry = GENERATE(
      Case{R"("degraded":1)", "member degraded is not true or false"},
      Case{R"("axes":{})", "member axes is not a list"},
      Case{R"("axes":[3])", "member axes[0] is not an object"},
      Case{R"("axes":[{"name":"tp","size":2}])", "member axes[0].coord is missing"},
      Case{R"("axes":[{"name":"tp","size":2,"coord":2}])", "axes[0].coord is not below the size"},
      Case{R"("axes":[{"name":"tp","size":-2,"coord":0}])", "axes[0].size is not a whole number"},
      Case{R"("axes":[{"name":"a","size":2,"coord":0},{"name":"a","size":2,"coord":0}])",
           "axes[1].name appears twice"},
      Case{R"("modules":[])", "member modules is not an object"},
      Case{R"("modules":{"a.b":{"calls":1.5}})", R"(modules["a.b"].calls is not a whole number)"},
      Case{R"("parameters":{"w":{"dtype":"float32"}})", R"(parameters["w"].shape is missing)"},
      Case{R"("parameters":{"w":{"shape":[1],"dtype":"float7"}})",
           R"(parameters["w"].dtype is not a type)"},
      Case{R"("parameters":{"w":{"shape":[1],"dtype":"int8","layout":"h"}})",
           R"(parameters["w"].layout is not an object)"},
      Case{R"("events":[{"what":1}])", "events[0].what is not a string"},
      Case{R"("updates":{"x":[]})", R"(updates["x"] is of no iteration)"},
      Case{R"("updates":{"0":[{"class":"a","values":{"lr":"1"},"parameters":[],"steps":0}]})",
           R"(values["lr"] is not a number)"},
      Case{R"("updates":{"0":[{"class":"a","values":{},"parameters":["w"],"steps":[]}]})",
           "steps has not one entry a parameter"},
      Case{R"("writer_pid":"x")", "writer_pid is not a whole number"});
  const SampleTrace sample;
  put(sample.rank_file(0), rank_json(0, entry.more));
  CAPTURE(entry.more, sample.trouble());
  CHECK(contains(sample.trouble(), entry.complaint));
  CHECK(contains(sample.trouble(), sample.rank_file(0).string()));
}

TEST_CASE("files of another kind, version, rank or run are refused") {
  const SampleTrace sample;
  put(sample.rank_file(0), R"({"format":"ttrace-rank","version":1,"rank":0})");
  CHECK(contains(sample.trouble(), "world_size is missing"));
  put(sample.rank_file(0), R"([])");
  CHECK(contains(sample.trouble(), "the document is not an object"));
  put(sample.rank_file(0), R"({"format":"ttrace-trace","version":1})");
  CHECK(contains(sample.trouble(), R"(member format is not "ttrace-rank")"));
  put(sample.rank_file(0), R"({"format":"ttrace-rank","version":2})");
  CHECK(contains(sample.trouble(), "use a newer ttrace"));
  put(sample.rank_file(0), rank_json(5));
  CHECK(contains(sample.trouble(), "it is of rank 5"));
  put(sample.rank_file(0),
      R"({"format":"ttrace-rank","version":1,"run_id":"q","rank":0,"world_size":4})");
  CHECK(contains(sample.trouble(), "it is of run q"));
  put(sample.path() / "trace.json", R"({"format":"ttrace-trace","version":2})");
  CHECK(contains(sample.trouble(), "use a newer ttrace"));
}

TEST_CASE("a segment that belongs elsewhere is refused") {
  const SampleTrace sample;
  const SegmentInfo info = GENERATE(SegmentInfo{"r", 1, 0, true}, SegmentInfo{"r", 0, 1, true},
                                    SegmentInfo{"other", 0, 0, true});
  sample.write_segment(0, 0, info);
  const Trace trace = Trace::open(sample.path());
  CHECK(contains(trouble_of([&] { (void)trace.segment(0, 0); }), "moved or renamed"));
}

TEST_CASE("a part without a living writer is trouble that names it") {
  const SampleTrace sample;
  SECTION("nobody wrote it") { sample.leave_part(""); }
  SECTION("no rank.json at all") {
    sample.leave_part("");
    fs::remove(sample.rank_file(0));
  }
  SECTION("its writer is gone") {  // larger than any process number
    sample.leave_part(R"("writer_pid":2000000000,"host":")" + host() + '"');
  }
  SECTION("its writer's number belongs to another program now") {
    sample.leave_part(R"("writer_pid":)" + std::to_string(getpid()));
  }
  CHECK(contains(sample.trouble(), sample.part().string() + ": its writer died"));
}

TEST_CASE("a part with a living writer means that the run is still going on") {
  const SampleTrace sample;
  const ProcessName name("ttrace-writer");
  sample.leave_part(R"("writer_pid":)" + std::to_string(getpid()) + R"(,"host":")" + host() + '"');
  CHECK(contains(sample.trouble(), sample.part().string() + ": the run is still going on"));

  sample.leave_part(R"("host":"elsewhere","writer_pid":)" + std::to_string(getpid()));
  CHECK(contains(sample.trouble(), "run on host elsewhere"));
}

TEST_CASE("every kind of finding has a name of its own") {
  std::vector<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(FindingKind::incomplete_trace); ++code) {
    names.push_back(name_of(static_cast<FindingKind>(code)));
  }
  CHECK(names.front() == "missing");
  CHECK(names.back() == "incomplete_trace");
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(std::find(names.begin(), names.end(), "unknown") == names.end());
}
