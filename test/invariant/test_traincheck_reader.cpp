// SPDX-License-Identifier: Apache-2.0
// Lines of TrainCheck's files as records, and what becomes of damaged ones.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "invariant/json_text.hpp"
#include "invariant/traincheck_line.hpp"
#include "invariant/traincheck_reader.hpp"
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"
#include "test/invariant/trace_folder.hpp"

using namespace ttrace::invariant;
using trace_folder::Folder;

namespace {

// The line with the padding that a reader needs.
class Padded {
 public:
  explicit Padded(const std::string& line) : text_(line + std::string(line_padding, '\0')) {}
  [[nodiscard]] const char* data() const { return text_.data(); }
  [[nodiscard]] std::size_t size() const { return text_.size() - line_padding; }

 private:
  std::string text_;
};

std::string field(Records& records, std::size_t number, const char* column) {
  const Value value = records.records.at(number).field(records.values.name(column));
  return value.present() ? to_json(records.values, value) : "absent";
}

bool same(const Record& a, const Record& b) {
  return a.kind == b.kind && a.time == b.time && a.process == b.process && a.thread == b.thread &&
         a.function == b.function && a.variable == b.variable &&
         a.variable_type == b.variable_type && a.call == b.call && identical(a.args, b.args) &&
         identical(a.kwargs, b.kwargs) && identical(a.returns, b.returns) &&
         identical(a.original, b.original) &&
         std::ranges::equal(a.fields, b.fields, [](const Field& one, const Field& other) {
           return one.column == other.column && identical(one.value, other.value);
         });
}

std::string lines(std::initializer_list<std::string> all) {
  std::string text;
  for (const std::string& line : all) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("a call's begin and end, an exception, a state") {
  const Folder folder;
  folder.write("trace_API_3_7.log",
               lines({trace_folder::pre, trace_folder::post, trace_folder::raised}));
  folder.write("proxy_log.json", lines({trace_folder::state}));
  Records records = read_traincheck(folder.path());
  CHECK(records.damage.empty());
  REQUIRE(records.files.size() == 2);
  REQUIRE(records.records.size() == 4);
  const Record &state = records.records[0], &pre = records.records[1], &post = records.records[2],
               &raised = records.records[3];
  CHECK(state.kind == RecordKind::state);
  CHECK(records.values.text(state.variable) == "model.fc1.weight");
  CHECK(records.values.text(state.variable_type) == "torch.nn.Parameter");
  CHECK(state.process == 14001);
  CHECK(state.thread == 140310336179072);
  CHECK(state.time == 1002752728587);
  CHECK(field(records, 0, "attributes.data") == "7904740818771230624");
  CHECK(field(records, 0, "attributes.shape") == "[32, 16]");
  CHECK(field(records, 0, "attributes.grad") == "null");
  CHECK(field(records, 0, "attributes.itemsize") == "absent");
  CHECK(field(records, 0, "meta_vars.stage") == "\"init\"");

  CHECK(pre.kind == RecordKind::pre);
  CHECK(pre.line == 1);
  CHECK(pre.file == 1);
  CHECK(records.values.text(pre.function) == "torch.nn.modules.dropout.Dropout.forward");
  CHECK(field(records, 1, "meta_vars.step") == "5");
  CHECK(field(records, 1, "proxy_obj_names") == R"([["model.fc1.weight", "Parameter"]])");
  CHECK(to_json(records.values, pre.kwargs) == "{}");
  CHECK_FALSE(pre.returns.present());
  const Value second = records.values.member(pre.args, records.values.name("1"));
  CHECK(
      to_json(records.values, second) ==
      R"({"torch.FloatTensor": {"_TRAINCHECK_data_ID": 1398915, "dtype": "torch.float32", "grad": null, "shape": [8, 144]}})");
  CHECK(field(records, 1, "args") == "absent");

  CHECK(post.kind == RecordKind::post);
  CHECK(post.call == pre.call);
  CHECK(to_json(records.values, post.returns) == R"([{"int": 16}, {"int": 48}])");
  CHECK(raised.kind == RecordKind::exception);
  CHECK(raised.call != pre.call);
  CHECK(field(records, 3, "meta_vars") == "{}");
  CHECK(field(records, 3, "exception") == "\"ValueError\"");
}

TEST_CASE("columns are in the order of the line") {
  const Folder folder;
  Records records = read_traincheck(folder.write("trace_API_3_7.log", lines({trace_folder::pre})));
  std::vector<std::string> columns;
  for (const Field& entry : records.records.at(0).fields)
    columns.emplace_back(records.values.text(entry.column));
  CHECK(columns == std::vector<std::string>{"func_call_id", "thread_id", "process_id",
                                            "meta_vars.step", "meta_vars.stage", "type", "function",
                                            "is_bound_method", "obj_id", "proxy_obj_names",
                                            "time"});
}

TEST_CASE("addresses are left out on demand") {
  const Folder folder;
  folder.write("trace_API_3_7.log", lines({trace_folder::pre, trace_folder::state}));
  Records records = read_traincheck(folder.path(), {.keep_ids = false});
  const Value second = records.values.member(records.records.at(0).args, records.values.name("1"));
  CHECK(to_json(records.values, second) ==
        R"({"torch.FloatTensor": {"dtype": "torch.float32", "grad": null, "shape": [8, 144]}})");
  CHECK(field(records, 1, "attributes._TRAINCHECK_data_ID") == "absent");
  CHECK(field(records, 1, "attributes.data") == "7904740818771230624");
}

TEST_CASE("files are read in the order of process, thread, name") {
  const Folder folder;
  for (const char* name :
       {"trace_API_100_5.log", "trace_API_20_10.log", "trace_VAR_20_9.log", "trace_API_20_9.log",
        "proxy_log.json", "env_dump.txt", "instrumentation_5.log"}) {
    folder.write(name, "");
  }
  std::vector<std::string> names;
  for (const auto& file : traincheck_files(folder.path())) names.push_back(file.filename());
  CHECK(names == std::vector<std::string>{"proxy_log.json", "trace_API_20_9.log",
                                          "trace_VAR_20_9.log", "trace_API_20_10.log",
                                          "trace_API_100_5.log"});
}

TEST_CASE("no trace is Trouble that says what is expected") {
  const Folder folder;
  folder.write("env_dump.txt", "");
  CHECK_THROWS_AS(read_traincheck(folder.path()), ttrace::Trouble);
  CHECK_THROWS_WITH(read_traincheck(folder.path()),
                    Catch::Contains("trace_API_") || Catch::Contains("proxy_log.json"));
  CHECK_THROWS_AS(read_traincheck(folder.path() / "nothing"), ttrace::Trouble);
}

TEST_CASE("copies, malformed lines and a cut end are counted, the rest is read") {
  const Folder folder;
  const std::string pre = trace_folder::pre, post = trace_folder::post;
  const auto path = folder.write(
      "trace_API_3_7.log",
      lines({pre, "", post, pre, "{\"a\": 1}", "garbage", post, pre}) + post.substr(0, 100));
  Records records = read_traincheck(path);
  CHECK(records.records.size() == 2);
  REQUIRE(records.damage.size() == 1);
  CHECK(records.damage[0].file == path.string());
  CHECK(records.damage[0].duplicates == 3);
  CHECK(records.damage[0].malformed == 2);
  CHECK(records.damage[0].first_malformed == 5);
  CHECK(records.damage[0].partial_tail);
}

TEST_CASE("a last line without an end counts when it is whole") {
  const Folder folder;
  Records records = read_traincheck(folder.write(
      "trace_API_3_7.log", std::string(trace_folder::pre) + "\r\n" + trace_folder::post));
  CHECK(records.records.size() == 2);
  CHECK(records.damage.empty());
}

TEST_CASE("the same line in two files is no copy") {
  const Folder folder;
  folder.write("trace_API_3_7.log", lines({trace_folder::pre}));
  folder.write("trace_API_3_8.log", lines({trace_folder::pre}));
  CHECK(read_traincheck(folder.path()).records.size() == 2);
}

TEST_CASE("numbers keep what they are") {
  const Folder folder;
  const auto with = [](const std::string& value) {
    return R"({"type": "state_change", "var_name": "w", "var_type": "T", "process_id": 1, "thread_id": 2, "time": 3, "x": )" +
           value + "}";
  };
  Records records = read_traincheck(folder.write(
      "proxy_log.json",
      lines({with("-9223372036854775808"), with("9223372036854775807"), with("9223372036854775808"),
             with("123456789012345678901234567890"), with("1.0"), with("-Infinity"), with("NaN"),
             with("0.1"), with("[NaN, 1]"), with("1e400")})));
  CHECK(records.damage.empty());
  REQUIRE(records.records.size() == 10);
  const std::vector<std::string> expected{"-9223372036854775808",
                                          "9223372036854775807",
                                          "9.223372036854776e+18",
                                          "1.2345678901234568e+29",
                                          "1.0",
                                          "-Infinity",
                                          "NaN",
                                          "0.1",
                                          "[NaN, 1]",
                                          "Infinity"};
  for (std::size_t at = 0; at < expected.size(); ++at)
    CHECK(field(records, at, "x") == expected[at]);
}

TEST_CASE("names that hold a '.' stay as they were in the original") {
  const Folder folder;
  const std::string line =
      R"({"type": "state_change", "var_name": "w", "var_type": "T", "process_id": 1, "thread_id": 2, "meta_vars": {"a.b": 1, "a": {"b": 2}}, "time": 3})";
  Records records =
      read_traincheck(folder.write("proxy_log.json", lines({line, trace_folder::state})));
  REQUIRE(records.records.size() == 2);
  CHECK(field(records, 0, "meta_vars.a.b") == "2");
  CHECK(to_json(records.values, records.records[0].original) == line);
  CHECK_FALSE(records.records[1].original.present());
}

TEST_CASE("lines without what a record has are malformed") {
  const Folder folder;
  const std::string good =
      R"({"type": "state_change", "var_name": "w", "var_type": "T", "process_id": 1, "thread_id": 2, "time": 3})";
  const auto replaced = [&](const std::string& part, const std::string& by) {
    std::string line = good;
    return line.replace(line.find(part), part.size(), by);
  };
  Records records = read_traincheck(folder.write(
      "proxy_log.json",
      lines({good, replaced("\"time\": 3", "\"time\": \"3\""), replaced("\"time\"", "\"when\""),
             replaced("state_change", "state"), replaced("\"w\"", "null"), replaced("1", "1.5"),
             "[" + good + "]", "null", "3", "\"text\"", good + good, good + ",", good + "}"})));
  CHECK(records.records.size() == 1);
  CHECK(records.damage.at(0).malformed == 12);
  CHECK(records.damage.at(0).first_malformed == 2);
}

TEST_CASE("long lines, NUL bytes, wrong UTF-8, deep nesting, an empty file") {
  const Folder folder;
  const auto with = [](const std::string& value) {
    return R"({"type": "state_change", "var_name": "w", "var_type": "T", "process_id": 1, "thread_id": 2, "time": 3, "x": )" +
           value + "}";
  };
  const std::string deep(100000, '[');
  Records records = read_traincheck(folder.write(
      "proxy_log.json", lines({trace_folder::state, with('"' + std::string(3 << 20, 'x') + '"'),
                               std::string(2 << 20, '\0'), with("\"\xff\xfe\""), with(deep),
                               with(std::string(100, '[') + std::string(100, ']')),
                               with("\"a\\ud800\""), trace_folder::pre})));
  CHECK(records.records.size() == 5);
  CHECK(records.damage.at(0).malformed == 3);
  CHECK(field(records, 1, "x").size() == (3U << 20U) + 2);
  CHECK(field(records, 3, "x") == "\"a\\ud800\"");
  CHECK(read_traincheck(folder.write("trace_API_0_0.log", "")).records.empty());
}

TEST_CASE("a name in an object of very many is still read") {
  const Folder folder;
  std::string members;
  for (int number = 0; number < 10000; ++number)
    members +=
        (number > 0 ? ", \"k" : "\"k") + std::to_string(number) + "\": " + std::to_string(number);
  const std::string start = trace_folder::pre;
  const auto place = start.find("\"kwargs\": {}");
  std::string line = start;
  line.replace(place, 12, "\"kwargs\": {\"d\": {\"dict\": {" + members + "}}}");
  std::string flat = start;
  flat.replace(place, 12, "\"kwargs\": {}, " + members);
  Records records = read_traincheck(folder.write("trace_API_3_7.log", lines({line, flat, start})));
  REQUIRE(records.records.size() == 3);
  const Value dict = records.values.member(
      records.values.member(records.records[0].kwargs, records.values.name("d")),
      records.values.name("dict"));
  CHECK(records.values.members(dict).size() == 10000);
  CHECK(records.values.member(dict, records.values.name("k9999")).integer == 9999);
  CHECK(field(records, 1, "k9999") == "9999");
}

namespace {

// Changes a line as a broken disk, a killed writer or another run would.
class Mutation {
 public:
  explicit Mutation(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t limit) { return random_() % limit; }

  std::string of(std::string line) {
    for (std::size_t change = below(4); change > 0; --change) {
      const std::size_t at = below(line.size());
      switch (below(7)) {
        case 0:
          line[at] = letter();
          break;
        case 1:
          line.insert(at, 1, letter());
          break;
        case 2:
          line.erase(at, 1 + below(3));
          break;
        case 3:
          line.resize(at + 1);
          break;
        case 4:
          line.insert(at, line.substr(below(line.size()), below(60)));
          break;
        case 5:
          line.erase(at, below(60));
          break;
        default:
          change_number(line, at);
          break;
      }
      if (line.empty()) line = "x";
    }
    return line;
  }

 private:
  char letter() {
    static const std::string alphabet = "{}[]\",:.\\ntu0123456789-eE+ \r\t\x01\x7f\xc3\xa9_";
    return alphabet[below(alphabet.size())];
  }
  void change_number(std::string& line, std::size_t at) {
    static const std::vector<std::string> numbers{"0",
                                                  "-1",
                                                  "1.5",
                                                  "1e400",
                                                  "NaN",
                                                  "null",
                                                  "true",
                                                  "\"x\"",
                                                  "{}",
                                                  "[]",
                                                  "[1, {\"a\": 2}]",
                                                  "9223372036854775808",
                                                  "123456789012345678",
                                                  "1234567890123456789",
                                                  "-0",
                                                  "01",
                                                  "\"\\n\"",
                                                  "\"\xe2\x89\xa4\""};
    const std::size_t begin = line.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(line.find_first_not_of("0123456789", begin), line.size());
    line.replace(begin, end - begin, numbers[below(numbers.size())]);
  }

  std::mt19937 random_;
};

// How many of the lines were records.
int compare_ways(const ReadOptions& options, unsigned seed, int rounds) {
  Values values;
  TraincheckLine reader(values, options);
  const std::string nested =
      R"json({"func_call_id": "1_2", "thread_id": 1, "process_id": 2, "meta_vars": {"ranks": [0, [1, 2], {"a": {"b": 3}}], "more": {"deep": {"x": 4}}}, )json"
      R"json("type": "function_call (pre)", "function": "f", "args": {"0": {"dict": {"k": [5, {"_TRAINCHECK_data_ID": 6, "z": NaN}], "t\u00e9": "\n"}}, )json"
      R"json("1": {"T": {"_TRAINCHECK_data_ID": 7, "shape": [8, 9], "n": 10}}}, "_ML_DAIKON_x": {"y": 11}, "time": 12})json";
  const std::vector<std::string> originals{trace_folder::pre, trace_folder::post,
                                           trace_folder::raised, trace_folder::state, nested};
  Mutation mutation(seed);
  int good = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string line = mutation.of(originals[mutation.below(originals.size())]);
    const Padded padded(line);
    Record fast, slow;
    const bool read_fast = reader.read(padded.data(), padded.size(), fast);
    const bool read_slowly = reader.read_slowly(padded.data(), padded.size(), slow);
    INFO(line);
    REQUIRE(read_fast == read_slowly);
    if (read_fast) REQUIRE(same(fast, slow));
    good += read_fast ? 1 : 0;
  }
  return good;
}

}  // namespace

TEST_CASE("all ways of reading a line agree, also on damaged lines") {
  for (const bool keep_ids : {true, false}) {
    const int good = compare_ways({.keep_ids = keep_ids}, keep_ids ? 7 : 8, 40000);
    CHECK(good > 4000);
    CHECK(good < 36000);
  }
}
