// SPDX-License-Identifier: Apache-2.0
// The table of collectives: what goes in comes out, a file without it reads as before, and a
// damaged one is trouble.
#include <hdf5.h>

#include <cstdlib>
#include <vector>

#include "libttrace/segment.hpp"
#include "test/catch.hpp"
#include "test/libttrace/segment_builder.hpp"

using namespace ttrace;
using namespace ttrace::testing;
namespace fs = std::filesystem;

namespace {

const SegmentInfo kInfo{"run-7", 3, 12, true};

Collective uneven_exchange() {
  Collective call;
  call.function = "all_to_all";
  call.group = "ep:0,1";
  call.module = "layers.0.experts";
  call.input_splits = "3,5";
  call.output_splits = "4,4";
  call.sequence = 17;
  call.count = 8;
  call.position = 1;
  call.member = 1;
  call.size = 2;
  call.microbatch = 2;
  call.flags = kCollectiveAsynchronous | kCollectiveInGroup;
  call.dtype = DType::bfloat16;
  call.input = 0;
  call.output = 1;
  return call;
}

Collective scaled_reduction() {
  Collective call;
  call.function = "reduce";
  call.reduction = "premul_sum";
  call.group = "dp";
  call.sequence = std::uint64_t{1} << 40;
  call.count = std::uint64_t{1} << 33;
  call.position = 2;
  call.factor = 0.125;
  call.size = 4;
  call.peer = 3;
  call.flags = kCollectiveInPlace | kCollectiveFailed;
  return call;
}

// Two records and two calls.
void fill(SegmentWriter& writer) {
  for (const char* key : {"it12/mb2/comm/layers.0.experts/all_to_all.input",
                          "it12/mb2/comm/layers.0.experts/all_to_all.output"}) {
    const auto payload = random_payload(DType::bfloat16, {8}, 1);
    write(writer, record_of(key, DType::bfloat16, {8}), payload, R"({"dims":"h"})");
  }
  writer.add_collective(uneven_exchange());
  writer.add_collective(scaled_reduction());
}

void write_sample(const fs::path& path) {
  SegmentWriter writer(path, kInfo);
  fill(writer);
  writer.close(true);
}

bool same(const Collective& left, const Collective& right) {
  return left.function == right.function && left.reduction == right.reduction &&
         left.group == right.group && left.module == right.module &&
         left.input_splits == right.input_splits && left.output_splits == right.output_splits &&
         left.sequence == right.sequence && left.count == right.count &&
         left.position == right.position && left.factor == right.factor &&
         left.member == right.member && left.size == right.size && left.peer == right.peer &&
         left.microbatch == right.microbatch && left.flags == right.flags &&
         left.dtype == right.dtype && left.input == right.input && left.output == right.output;
}

void check_sample(const SegmentReader& reader) {
  REQUIRE(reader.collectives().size() == 2);
  CHECK(same(reader.collectives()[0], uneven_exchange()));
  CHECK(same(reader.collectives()[1], scaled_reduction()));
}

std::string trouble_reading(const fs::path& path) {
  const SegmentReader reader(path);  // what else is in the file still reads
  CHECK(reader.records().size() == 2);
  return trouble_of([&] { (void)reader.collectives(); });
}

// Writes one column of all rows, as any tool could; the hash goes, unless it is to notice it.
void set_column(const fs::path& path, const char* name, hid_t type, const void* values,
                bool keep_hash = false) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(file >= 0);
  const hid_t column = H5Tcreate(H5T_COMPOUND, H5Tget_size(type));
  H5Tinsert(column, name, 0, type);
  const hid_t dataset = H5Dopen2(file, "collectives", H5P_DEFAULT);
  REQUIRE(H5Dwrite(dataset, column, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  if (!keep_hash) REQUIRE(H5Adelete(file, "collectives_hash") >= 0);
  H5Dclose(dataset);
  H5Tclose(column);
  H5Fclose(file);
}

std::string trouble_with(const char* column, hid_t type, std::vector<std::int64_t> values) {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  write_sample(path);
  H5Tconvert(H5T_NATIVE_INT64, type, values.size(), values.data(), nullptr, H5P_DEFAULT);
  set_column(path, column, type, values.data());
  const std::string trouble = trouble_reading(path);
  CHECK(contains(trouble, path.string()));
  CHECK(contains(trouble, "row 1 of /collectives"));
  return trouble;
}

}  // namespace

TEST_CASE("collectives come back as they were added, with the records they refer to") {
  ScratchFolder folder;
  write_sample(folder / "s.h5");
  const SegmentReader reader(folder / "s.h5");
  check_sample(reader);
  CHECK(reader.records()[1].key.slot == "all_to_all.output");
  CHECK(&reader.collectives() == &reader.collectives());  // read once
}

TEST_CASE("without a collective there is no table, and a reader finds none") {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  {
    SegmentWriter writer(path, kInfo);
    write(writer, record_of("it12/param/w/value", DType::float32, {2}),
          random_payload(DType::float32, {2}, 1));
    writer.close(true);
  }
  CHECK(SegmentReader(path).collectives().empty());
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK(H5Lexists(file, "collectives", H5P_DEFAULT) == 0);
  CHECK(H5Aexists(file, "collectives_hash") == 0);
  H5Fclose(file);
}

TEST_CASE("a segment may have collectives alone") {
  ScratchFolder folder;
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    Collective call = scaled_reduction();
    call.position = 0;
    for (call.sequence = 0; call.sequence < 3000; ++call.sequence) writer.add_collective(call);
    writer.close(true);
  }
  const SegmentReader reader(folder / "s.h5");
  CHECK(reader.records().empty());
  REQUIRE(reader.collectives().size() == 3000);
  CHECK(reader.collectives()[2999].sequence == 2999);
}

TEST_CASE("a segment that was not completed keeps the collectives that were added") {
  ScratchFolder folder;
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    fill(writer);
    writer.begin(record_of("it12/param/w/value", DType::float32, {2}), "");  // and no bytes of it
  }
  const SegmentReader reader(folder / "s.h5");
  CHECK_FALSE(reader.info().complete);
  check_sample(reader);
}

TEST_CASE("a segment that h5repack rewrote has the same collectives") {
  if (std::system("h5repack --version >/dev/null 2>&1") != 0) {
    WARN("h5repack is not on PATH: not tested");
    return;
  }
  const std::string how = GENERATE(as<std::string>{}, "", "-f SHUF -f GZIP=1", "-l COMPA");
  ScratchFolder folder;
  write_sample(folder / "s.h5");
  const std::string command = "h5repack " + how + " '" + (folder / "s.h5").string() + "' '" +
                              (folder / "r.h5").string() + "'";
  CAPTURE(command);
  REQUIRE(std::system(command.c_str()) == 0);
  check_sample(SegmentReader(folder / "r.h5"));
}

TEST_CASE("a row that refers to nothing is trouble that names file and row") {
  CHECK(contains(trouble_with("group", H5T_STD_I32LE, {0, 99}), "group is not a row of /names"));
  CHECK(contains(trouble_with("module", H5T_STD_I32LE, {0, -2}), "module is not a row of /names"));
  CHECK(contains(trouble_with("function", H5T_STD_I32LE, {0, -1}), "no function"));
  CHECK(contains(trouble_with("input", H5T_STD_I64LE, {-1, 2}), "buffer 2 is not a row of /index"));
  CHECK(contains(trouble_with("output", H5T_STD_I64LE, {1, -2}), "buffer -2 is not a row"));
  CHECK(contains(trouble_with("position", H5T_STD_U64LE, {2, 3}), "position 3 is behind"));
  CHECK(contains(trouble_with("member", H5T_STD_I32LE, {1, 4}), "member 4 is not in a group of 4"));
  CHECK(contains(trouble_with("peer", H5T_STD_I32LE, {-1, 4}), "peer 4 is not in a group of 4"));
  CHECK(contains(trouble_with("dtype", H5T_STD_U8LE, {1, 12}), "unknown dtype"));
}

TEST_CASE("a changed byte of the table is noticed") {
  ScratchFolder folder;
  write_sample(folder / "s.h5");
  const std::uint64_t counts[2] = {8, 9};
  set_column(folder / "s.h5", "count", H5T_STD_U64LE, counts, true);
  CHECK(contains(trouble_reading(folder / "s.h5"), "its hash does not match"));
}

TEST_CASE("what would refer to nothing is not written") {
  ScratchFolder folder;
  SegmentWriter writer(folder / "s.h5", kInfo);
  fill(writer);
  const auto refusal = [&](auto change) {
    Collective call = uneven_exchange();
    change(call);
    return trouble_of([&] { writer.add_collective(call); });
  };
  CHECK(contains(refusal([](Collective& call) { call.output = 2; }), "buffer 2 is not a row"));
  CHECK(contains(refusal([](Collective& call) { call.position = 3; }), "position 3 is behind"));
  CHECK(contains(refusal([](Collective& call) { call.member = 2; }), "member 2 is not in"));
  CHECK(contains(refusal([](Collective& call) { call.function = ""; }), "no function"));
  CHECK(contains(refusal([](Collective& call) { call.group += '\0'; }), "NUL"));
  writer.close(true);
  CHECK(contains(refusal([](Collective&) {}), "closed"));
  check_sample(SegmentReader(folder / "s.h5"));
}
