// SPDX-License-Identifier: Apache-2.0
// events.bin, its bytes written here one by one: what comes back, also of files that are cut,
// damaged or still growing.
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "invariant/events_reader.hpp"
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"

namespace {

using namespace ttrace;
using namespace ttrace::invariant;
namespace fs = std::filesystem;

template <class Number>
std::string bytes(Number number) {
  std::string text(sizeof number, '\0');
  std::memcpy(text.data(), &number, sizeof number);
  return text;
}

std::string counted(const std::string& text) {
  return bytes(static_cast<std::uint32_t>(text.size())) + text;
}
std::string text(const std::string& value) { return "s" + counted(value); }
std::string number(std::int64_t value) { return "i" + bytes(value); }
std::string list(std::uint32_t count, const std::string& members) {
  return "l" + bytes(count) + members;
}
std::string object(std::uint32_t count, const std::string& members) {
  return "o" + bytes(count) + members;
}
std::string typed(const std::string& type, const std::string& value) {
  return object(1, counted(type) + value);
}

std::string block(std::uint32_t kind, std::uint64_t tag, const std::string& payload) {
  const auto* data = reinterpret_cast<const Bytef*>(payload.data());
  const auto size = static_cast<std::uint32_t>(payload.size());
  const auto check = static_cast<std::uint32_t>(crc32(0, data, size));
  return "TTEB" + bytes(kind) + bytes(size) + bytes(check) + bytes(tag) + payload;
}

std::string row(std::int64_t what, std::int64_t kind, std::int64_t time, std::int64_t third,
                std::int64_t fourth) {
  return bytes(what << 3 | kind) + bytes(time) + bytes(third) + bytes(fourth);
}

std::string header(std::uint32_t version = 1) {
  return "TTREVENT" + bytes(version) + bytes(std::uint32_t{0});
}

std::string tensor() {
  return "T" + counted("torch.nn.Parameter") + counted("torch.float32") + counted("cpu") +
         counted("torch.strided") + bytes(std::uint32_t{1 | 2 | 4}) + bytes(std::uint32_t{4}) +
         bytes(std::uint32_t{2}) + bytes(std::int64_t{3}) + bytes(std::int64_t{5});
}

// f(1) returns 2 and changes a variable.
std::string start() {
  return header() + block(0, 0, object(1, counted("pid") + number(77))) +
         block(3, 0, object(2, counted("step") + number(4) + counted("stage") + text("training"))) +
         block(1, 0,
               list(2, list(1, typed("int", number(1))) + object(0, "")) + typed("int", number(2)) +
                   text("model.w") + tensor() + text("f")) +
         block(2, 0, list(3, number(6) + text("f") + "t"));
}
const std::string kCall = row(6, 0, 100, 0, 4242);
const std::string kState = row(2, 3, 110, 3, 4) + row(0, 4, -5, 9, 3);
const std::string kReturn = row(6, 1, 120, 1, 0);

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("ttrace-events-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_ / "rank00000");
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& data, std::ios::openmode mode = std::ios::trunc) const {
    std::ofstream(path_ / "rank00000" / "events.bin", std::ios::binary | mode) << data;
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Value field(Records& records, std::size_t at, const char* column) {
  return records.records[at].field(records.values.name(column));
}

TEST_CASE("meta variables hold from their time on, in every thread") {
  const auto step = [](std::int64_t value) { return object(1, counted("step") + number(value)); };
  // A hash is no time, however large.
  const std::string state = row(2, 3, 130, 3, 4) + row(0, 4, 900, 9, 3);
  const Folder folder;
  folder.write(start() + block(3, 105, step(5)) + block(3, 140, step(6)) +
               block(4, 9, kCall + kState + state + row(6, 1, 150, 1, 0)) +
               block(4, 8, row(6, 0, 139, 0, 1) + row(6, 1, 141, 1, 0)) + block(3, 200, step(7)) +
               block(4, 8, row(6, 0, 199, 0, 1) + row(6, 1, 201, 1, 0)));
  Records records = read_events(folder.path());
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> steps;  // by thread and time
  for (std::size_t i = 0; i < records.records.size(); ++i) {
    const Record& record = records.records[i];
    steps[{record.thread, record.time}] = field(records, i, "meta_vars.step").integer;
  }
  const decltype(steps) expected = {{{9, 100}, 4}, {{9, 110}, 5}, {{9, 130}, 5}, {{9, 150}, 6},
                                    {{8, 139}, 5}, {{8, 141}, 6}, {{8, 199}, 6}, {{8, 201}, 7}};
  CHECK(steps == expected);
}

TEST_CASE("a call, the change within it, its return") {
  const Folder folder;
  folder.write(start() + block(4, 9, kCall + kState + kReturn));
  Records records = read_events(folder.path());
  CHECK(records.damage.empty());
  REQUIRE(records.records.size() == 3);
  const Record& call = records.records[0];
  CHECK(call.kind == RecordKind::pre);
  CHECK(call.process == 77);
  CHECK(call.thread == 9);
  CHECK(call.time == 100);
  CHECK(records.values.text(call.function) == "f");
  CHECK(field(records, 0, "meta_vars.step").integer == 4);
  CHECK(records.values.text(field(records, 0, "meta_vars.stage")) == "training");
  CHECK(field(records, 0, "obj_id").integer == 4242);
  CHECK(field(records, 0, "is_bound_method").boolean);
  const Value first = records.values.member(call.args, records.values.name("0"));
  CHECK(records.values.member(first, records.values.name("int")).integer == 1);
  CHECK(records.records[2].call == call.call);
  CHECK(records.values.member(records.records[2].returns, records.values.name("int")).integer == 2);
  CHECK_FALSE(field(records, 0, "func_call_id").present());

  CHECK(records.values.text(records.records[1].variable) == "model.w");
  CHECK(records.values.text(records.records[1].variable_type) == "torch.nn.Parameter");
  CHECK(field(records, 1, "attributes.data").integer == -5);
  CHECK(field(records, 1, "attributes.grad").integer == 9);
  CHECK(field(records, 1, "attributes.nbytes").integer == 60);
  CHECK(field(records, 1, "attributes.requires_grad").boolean);
  CHECK(field(records, 1, "attributes.grad_fn").kind == Kind::none);
  CHECK(records.values.text(field(records, 1, "dump_loc")) == "f");
}

TEST_CASE("what is told before a call belongs to it") {
  const Folder folder;
  const std::string typed_tensor = tensor();
  const std::string told =
      block(1, 5, list(2, list(1, typed_tensor) + object(0, "")) + text("0") + text("train.py:31"));
  const std::string content = row(6, 5, 77, 0, 0), site = row(7, 6, 0, 0, 0);
  const auto bits = static_cast<std::int64_t>(std::uint64_t{0x7FF8} << 48);
  folder.write(start() + told +
               block(4, 9,
                     site + content + row(6, 0, 100, 5, 1) + kCall + kState + kReturn +
                         row(0, 7, 130, bits, 0) + row(0, 7, 131, bits, 0) + kReturn + kCall));
  Records records = read_events(folder.path());
  REQUIRE(records.records.size() == 6);
  const auto name = [&](const char* word) { return records.values.name(word); };
  const auto content_of = [&](std::size_t at) {
    const Value argument = records.values.member(records.records[at].args, name("0"));
    const Value inner = records.values.member(argument, name("torch.nn.Parameter"));
    return inner.kind == Kind::object ? records.values.member(inner, name("data")) : Value{};
  };
  CHECK(content_of(0).integer == 77);
  CHECK_FALSE(content_of(1).present());
  for (std::size_t at = 0; at < 5; ++at) {  // the calls within it, too
    CHECK(records.values.text(records.records[at].site) == "train.py:31");
  }
  CHECK(records.records[5].site == 0);
  REQUIRE(records.nan_losses.size() == 1);
  CHECK(records.nan_losses[0].count == 2);
  CHECK(records.nan_losses[0].step == 4);
  CHECK(records.nan_losses[0].line == 8);
  CHECK(records.values.text(records.nan_losses[0].site) == "train.py:31");
  Records exported = read_events(folder.path(), {.call_ids = true});
  const Value argument =
      exported.values.member(exported.records[0].args, exported.values.name("0"));
  const Value inner = exported.values.member(argument, exported.values.name("torch.nn.Parameter"));
  CHECK_FALSE(exported.values.member(inner, exported.values.name("data")).present());
}

TEST_CASE("every cut leaves whole blocks") {
  const Folder folder;
  const std::string whole = start() + block(4, 9, kCall) + block(4, 9, kState + kReturn);
  for (std::size_t size = header().size(); size <= whole.size(); ++size) {
    folder.write(whole.substr(0, size));
    const Records records = read_events(folder.path());
    const std::size_t first = start().size() + block(4, 9, kCall).size();
    const bool at_edge = records.damage.empty();
    CHECK(records.records.size() == (size == whole.size() ? 3U : size >= first ? 1U : 0U));
    if (size == whole.size() || size == first) CHECK(at_edge);
    if (size > first && size < whole.size()) {
      REQUIRE(records.damage.size() == 1);
      CHECK(records.damage[0].partial_tail);
      CHECK(records.damage[0].last_step == 4);
    }
  }
}

// What is said of a file that cannot be read; "" when it can.
std::string trouble(const Folder& folder, const std::string& data) {
  folder.write(data);
  try {
    (void)read_events(folder.path());
  } catch (const Trouble& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a flipped byte is trouble") {
  const Folder folder;
  const std::string whole = start() + block(4, 9, kCall + kReturn);
  const std::string more = block(4, 9, kCall + kReturn);
  for (std::size_t at = start().size(); at < whole.size(); ++at) {
    std::string damaged = whole + more;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const std::size_t place = at - start().size();
    // The checksum covers neither the kind nor the thread.
    if ((place >= 4 && place < 8) || (place >= 16 && place < 24)) continue;
    const std::string said = trouble(folder, damaged);
    INFO(place << " " << said);
    // A length that shrank moves the fault to where the next block should begin.
    CHECK(said.find("events.bin: block ") != std::string::npos);
    if (place < 4 || place >= 12) {
      CHECK(said.find("block 5 at byte " + std::to_string(start().size())) != std::string::npos);
    }
  }
}

TEST_CASE("a missing block is trouble") {
  const Folder folder;
  const auto meta = [](std::int64_t step) {
    return block(3, 0, object(1, counted("step") + number(step)));
  };
  const std::string rest = block(1, 5, text("model.v")) + block(4, 9, kCall + kReturn);
  CHECK(trouble(folder, start() + meta(5) + meta(5) + meta(6) + rest).empty());
  CHECK(trouble(folder, start() + meta(6)).find("step 6 after step 4") != std::string::npos);
  CHECK(trouble(folder, start() + meta(3)).find("step 3 after step 4") != std::string::npos);
  // The definitions of `rest` without those of the start; its call without functions.
  const std::string process = header() + block(0, 0, object(1, counted("pid") + number(77)));
  CHECK(trouble(folder, process + rest).find("definition 5, after 0") != std::string::npos);
  CHECK(trouble(folder, process + block(4, 9, kCall)).find("not defined") != std::string::npos);
  // A part cut out of the middle, wherever it ends.
  const std::string whole = start() + meta(5) + rest + meta(6);
  for (std::size_t end = start().size() + 1; end < start().size() + meta(5).size(); ++end) {
    CHECK_FALSE(trouble(folder, start().substr(0, start().size() - 3) + whole.substr(end)).empty());
  }
}

TEST_CASE("lost rows leave later calls whole") {
  const Folder folder;
  // Of a call inside another one the return is lost; a return has lost its call.
  folder.write(
      start() + block(2, 0, list(3, number(7) + text("g") + "f")) +
      block(4, 9, kCall + row(7, 0, 105, 0, 0) + kReturn + row(7, 1, 130, 1, 0) + kCall + kReturn));
  const Records records = read_events(folder.path());
  REQUIRE(records.records.size() == 5);
  CHECK(records.records[2].call == records.records[0].call);
  CHECK(records.records[4].call == records.records[3].call);
  CHECK(records.records[4].call != records.records[0].call);
  REQUIRE(records.damage.size() == 1);
  CHECK(records.damage[0].malformed == 1);
  CHECK(records.damage[0].first_malformed == 4);
}

TEST_CASE("a file that grows") {
  const Folder folder;
  const std::string whole = start() + block(4, 9, kCall + kState) + block(4, 9, kReturn);
  Records records;
  EventsReader reader(folder.path(), records);
  CHECK(reader.poll() == 0);
  folder.write("");
  std::size_t found = 0;
  for (const char byte : whole) {
    folder.write(std::string(1, byte), std::ios::app);
    found += reader.poll();
  }
  CHECK(found == 3);
  reader.report_damage();
  CHECK(records.damage.empty());
}

TEST_CASE("what is no file of events") {
  const Folder folder;
  CHECK_THROWS_AS(read_events(folder.path()), Trouble);
  folder.write("something else altogether");
  CHECK_THROWS_AS(read_events(folder.path()), Trouble);
  folder.write(header(2));
  CHECK_THROWS_AS(read_events(folder.path()), Trouble);
}

TEST_CASE("values that are none") {
  const Folder folder;
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += list(1, "");
  for (const std::string& value :
       {deep + "n", std::string("l\xff\xff\xff\xff"), std::string("s\x05\0\0\0ab", 7),
        std::string("z"), std::string("T\x01")}) {
    for (const std::uint32_t kind : {1U, 2U, 3U}) {
      CHECK(trouble(folder, header() + block(kind, 0, value)).find("block 1 at byte 16") !=
            std::string::npos);
    }
    CHECK(trouble(folder, header() + block(0, 0, value) + block(4, 1, "short")).empty());
  }
}

}  // namespace
