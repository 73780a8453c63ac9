// SPDX-License-Identifier: Apache-2.0
// Files that are not what a writer closed: cut, damaged, foreign, newer, or rewritten by another
// tool. Reading them is right or it is Trouble that names the file; it never crashes.
#include <hdf5.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>

#include "libttrace/segment.hpp"
#include "libttrace/segment_index.hpp"
#include "test/catch.hpp"
#include "test/libttrace/segment_builder.hpp"

using namespace ttrace;
using namespace ttrace::testing;

namespace {

namespace fs = std::filesystem;

// Two tensors, an alias, statistics, an empty and a boolean tensor.
void write_sample(const fs::path& path) {
  SegmentWriter writer(path, {"run", 0, 0, true});
  Record record = record_of("it0/mb0/forward/first/output.0", DType::bfloat16, {3, 700});
  write(writer, record, random_payload(DType::bfloat16, {3, 700}, 1), R"({"dims":"h d"})");
  record.key.module = "second";
  record.alias_of = 0;
  write(writer, record, {});
  record = record_of("it0/step/third/param", DType::float32, {50});
  record.kind = RecordKind::stats;
  write(writer, record, random_payload(DType::float32, {50}, 2));
  write(writer, record_of("it0/step/fourth/param", DType::float64, {0}), {});
  for (const DType dtype : {DType::boolean, DType::float8_e4m3fn, DType::float64}) {
    write(writer, record_of("it0/grad/fifth/reduced", dtype, {17}), random_payload(dtype, {17}, 3));
  }
  writer.close(true);
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Reads everything there is to read.
std::string trouble_reading(const fs::path& path) {
  return trouble_of([&] {
    const SegmentReader reader(path);
    unsigned sum = 0;
    for (const Record& record : reader.records()) {
      if (record.kind != RecordKind::full) continue;
      for (const std::byte byte : reader.bytes(record)) sum += static_cast<unsigned>(byte);
    }
    volatile unsigned sink = sum;
    static_cast<void>(sink);
  });
}

// An open HDF5 file to damage in style.
class Surgery {
 public:
  explicit Surgery(const fs::path& path) : file_(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)) {
    REQUIRE(file_ >= 0);
  }
  ~Surgery() { H5Fclose(file_); }
  Surgery(const Surgery&) = delete;
  Surgery& operator=(const Surgery&) = delete;
  [[nodiscard]] hid_t file() const { return file_; }

  void remove_attribute(const char* name) const { REQUIRE(H5Adelete(file_, name) >= 0); }

  void set_version(std::int32_t version) const {
    const hid_t attribute = H5Aopen(file_, "version", H5P_DEFAULT);
    REQUIRE(H5Awrite(attribute, H5T_NATIVE_INT32, &version) >= 0);
    H5Aclose(attribute);
  }

  [[nodiscard]] std::uint64_t offset_of(const char* dataset) const {
    const hid_t id = H5Dopen2(file_, dataset, H5P_DEFAULT);
    const haddr_t offset = H5Dget_offset(id);
    H5Dclose(id);
    return offset;
  }

  void edit_rows(const std::function<void(std::vector<IndexRow>&)>& edit) const {
    const hid_t dataset = H5Dopen2(file_, "index", H5P_DEFAULT);
    const hid_t type = H5Dget_type(dataset);
    REQUIRE(H5Tget_size(type) == sizeof(IndexRow));
    std::vector<IndexRow> rows(7);
    REQUIRE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) >= 0);
    edit(rows);
    REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) >= 0);
    H5Tclose(type);
    H5Dclose(dataset);
    remove_attribute("index_hash");
  }

  // The same rows with other columns: `type_of` gives a column's new type, 0 to drop it. A column
  // of our own stands before them.
  void replace_columns(const std::function<hid_t(const std::string&, hid_t)>& type_of) const {
    const hid_t dataset = H5Dopen2(file_, "index", H5P_DEFAULT);
    const hid_t old_type = H5Dget_type(dataset);
    const hid_t space = H5Dget_space(dataset);
    const hid_t type = H5Tcreate(H5T_COMPOUND, 512);
    H5Tinsert(type, "novelty", 0, H5T_STD_I16LE);
    std::size_t at = 2;
    for (unsigned i = 0; i < static_cast<unsigned>(H5Tget_nmembers(old_type)); ++i) {
      char* name = H5Tget_member_name(old_type, i);
      const hid_t column = type_of(name, H5Tget_member_type(old_type, i));
      if (column != 0) {
        H5Tinsert(type, name, at, column);
        at += H5Tget_size(column);
      }
      H5free_memory(name);
    }
    std::vector<std::byte> rows(7 * 512);
    REQUIRE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) >= 0);
    H5Dclose(dataset);
    H5Ldelete(file_, "index", H5P_DEFAULT);
    const hid_t again =
        H5Dcreate2(file_, "index", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    REQUIRE(H5Dwrite(again, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) >= 0);
    H5Dclose(again);
    for (const hid_t id : {old_type, type}) H5Tclose(id);
    H5Sclose(space);
    remove_attribute("index_hash");
  }

 private:
  hid_t file_;
};

}  // namespace

TEST_CASE("a segment cut at any length is trouble") {
  ScratchFolder folder;
  write_sample(folder / "whole.h5");
  const std::string whole = content_of(folder / "whole.h5");
  const fs::path cut = folder / "cut.h5";
  for (std::size_t size = 0; size < whole.size(); size += size < 4096 ? 61 : 7919) {
    put(cut, whole.substr(0, size));
    CAPTURE(size);
    REQUIRE(contains(trouble_reading(cut), cut.string()));
  }
  put(cut, whole.substr(0, whole.size() - 1));
  CHECK(contains(trouble_reading(cut), cut.string()));
  put(cut, whole);
  CHECK(trouble_reading(cut) == "");
}

TEST_CASE("any flipped byte of the index is noticed") {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  write_sample(path);
  const std::uint64_t begin = Surgery(path).offset_of("index");
  std::string content = content_of(path);
  for (std::size_t i = 0; i < 7 * sizeof(IndexRow); i += 5) {
    content[begin + i] ^= 0x10;
    put(path, content);
    content[begin + i] ^= 0x10;
    CAPTURE(i);
    REQUIRE(contains(trouble_reading(path), "index is damaged"));
  }
  const std::size_t name = content.find("second");  // in /names
  REQUIRE(name != std::string::npos);
  content[name] = 'S';
  put(path, content);
  CHECK(contains(trouble_reading(path), "index is damaged"));
}

TEST_CASE("a damaged index without a hash never leads outside the file") {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  write_sample(path);
  Surgery(path).remove_attribute("index_hash");
  REQUIRE(trouble_reading(path) == "");
  const std::uint64_t begin = Surgery(path).offset_of("index");
  std::string content = content_of(path);
  int noticed = 0;
  for (std::size_t i = 0; i < 7 * sizeof(IndexRow); i += 3) {
    content[begin + i] ^= static_cast<char>(1 << i % 8);
    put(path, content);
    content[begin + i] ^= static_cast<char>(1 << i % 8);
    noticed += trouble_reading(path) != "";  // or other numbers; under ASan this must be clean
  }
  CHECK(noticed > 100);
}

TEST_CASE("rows that contradict the file are trouble") {
  struct Case {
    std::string why;
    std::function<void(std::vector<IndexRow>&)> edit;
  };
  using Rows = std::vector<IndexRow>&;
  const std::uint64_t far = std::uint64_t{1} << 40;
  const std::vector<Case> cases{
      {"not inside the file",
       [&](Rows rows) {
         rows[0].bytes = far;  // with a shape to match, and every sample still right
         rows[0].ndim = 1;
         rows[0].shape = {far / 2};
         rows[1] = rows[2];
       }},
      {"size is not that of its shape", [](Rows rows) { rows[4].bytes = 16; }},
      {"size is not that of its shape",
       [&](Rows rows) {
         rows[0].ndim = 3;
         rows[0].shape = {far, far, far};
       }},
      {"unknown dtype", [](Rows rows) { rows[0].dtype = 12; }},
      {"unknown phase", [](Rows rows) { rows[0].phase = 7; }},
      {"16 dimensions", [](Rows rows) { rows[0].ndim = 17; }},
      {"module is not a row of /names", [](Rows rows) { rows[0].module = 1000; }},
      {"slot is not a row of /names", [](Rows rows) { rows[0].slot = -1; }},
      {"raw_name is not a row of /names", [](Rows rows) { rows[0].raw_name = -2; }},
      {"layout is not a row of /layouts", [](Rows rows) { rows[0].layout = 1; }},
      {"alias of a row that does not come before", [](Rows rows) { rows[1].alias_of = 1; }},
      {"alias of a row that does not come before", [](Rows rows) { rows[1].alias_of = -2; }},
      {"alias of a row of another size", [](Rows rows) { rows[3].alias_of = 0; }},
      {"cannot be opened", [](Rows rows) { rows[0].call = 9; }},
  };
  for (const Case& entry : cases) {
    ScratchFolder folder;
    const fs::path path = folder / "s.h5";
    write_sample(path);
    Surgery(path).edit_rows(entry.edit);

    const std::string trouble = trouble_reading(path);

    CAPTURE(entry.why, trouble);
    CHECK(contains(trouble, entry.why));
    CHECK(contains(trouble, path.string()));
  }
}

TEST_CASE("a kind of a later version is kept as it is") {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  write_sample(path);
  Surgery(path).edit_rows([](std::vector<IndexRow>& rows) { rows[2].kind = 3; });

  const SegmentReader reader(path);

  CHECK(static_cast<int>(reader.records()[2].kind) == 3);
  CHECK(contains(trouble_of([&] { (void)reader.bytes(reader.records()[2]); }), "without bytes"));
}

TEST_CASE("unknown columns are ignored, missing and other ones are trouble") {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  write_sample(path);
  const SegmentReader before(path);

  SECTION("unknown") {
    Surgery(path).replace_columns([](const std::string&, hid_t type) { return type; });

    const SegmentReader reader(path);

    REQUIRE(reader.records().size() == before.records().size());
    for (const Record& record : reader.records()) {
      const Record& other = before.records()[record.sequence];
      CHECK(record.key == other.key);
      CHECK(record.shape == other.shape);
      CHECK(record.hash == other.hash);
      CHECK(record.statistics.inf_count == other.statistics.inf_count);
    }
  }
  SECTION("missing") {
    Surgery(path).replace_columns(
        [](const std::string& name, hid_t type) { return name == "alias_of" ? 0 : type; });
    CHECK(contains(trouble_reading(path), "column alias_of of /index is missing"));
  }
  SECTION("of another type") {
    Surgery(path).replace_columns(
        [](const std::string& name, hid_t type) { return name == "call" ? H5T_STD_I64LE : type; });
    CHECK(contains(trouble_reading(path), "column call of /index has another type"));
  }
  SECTION("no table at all") {
    REQUIRE(H5Ldelete(Surgery(path).file(), "index", H5P_DEFAULT) >= 0);
    CHECK(contains(trouble_reading(path), "index"));
  }
}

TEST_CASE("a newer version is refused, and says so") {
  ScratchFolder folder;
  write_sample(folder / "s.h5");
  Surgery(folder / "s.h5").set_version(2);
  const std::string trouble = trouble_reading(folder / "s.h5");
  CHECK(contains(trouble, "format version 2"));
  CHECK(contains(trouble, "use a newer ttrace"));
}

TEST_CASE("files that are no segments are refused") {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  const auto refusal = [&] { return trouble_reading(path); };
  CHECK(contains(refusal(), "No such file"));
  put(path, "");
  CHECK(contains(refusal(), "not an HDF5 file"));
  put(path, std::string(5000, 'x'));
  CHECK(contains(refusal(), "not an HDF5 file"));
  fs::remove(path);
  H5Fclose(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  CHECK(contains(refusal(), "not a segment of a trace"));
  fs::remove(path);
  fs::create_directory(path);
  CHECK(contains(refusal(), path.string()));
}

TEST_CASE("a segment that h5repack rewrote reads the same") {
  if (std::system("h5repack --version >/dev/null 2>&1") != 0) {
    WARN("h5repack is not on PATH: not tested");
    return;
  }
  const std::string how =
      GENERATE(as<std::string>{}, "", "-f GZIP=4", "-f SHUF -f GZIP=1", "-l COMPA", "-S FSM_AGGR");
  ScratchFolder folder;
  write_sample(folder / "s.h5");
  const std::string command = "h5repack " + how + " '" + (folder / "s.h5").string() + "' '" +
                              (folder / "r.h5").string() + "'";
  CAPTURE(command);
  REQUIRE(std::system(command.c_str()) == 0);

  const SegmentReader original(folder / "s.h5");
  const SegmentReader repacked(folder / "r.h5");

  REQUIRE(repacked.records().size() == original.records().size());
  CHECK(repacked.layouts() == original.layouts());
  for (const Record& record : repacked.records()) {
    if (record.kind != RecordKind::full) continue;
    const auto want = original.bytes(original.records()[record.sequence]);
    for (int again = 0; again < 2; ++again) {  // the second time after the pages were let go
      const auto got = repacked.bytes(record);
      CHECK(std::equal(got.begin(), got.end(), want.begin(), want.end()));
      CHECK(reinterpret_cast<std::uintptr_t>(got.data()) % 64 == 0);
      repacked.release(got);
    }
  }
}

TEST_CASE("a rewritten dataset of another type is trouble") {
  ScratchFolder folder;
  const fs::path path = folder / "s.h5";
  write_sample(path);
  {
    const Surgery surgery(path);
    const char* name = "/data/grad/fifth/reduced";
    REQUIRE(H5Ldelete(surgery.file(), name, H5P_DEFAULT) >= 0);
    const hsize_t extent = 17;
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    const hid_t dataset = H5Dcreate2(surgery.file(), name, H5T_STD_I8LE, space, H5P_DEFAULT,
                                     H5P_DEFAULT, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
  }
  CHECK(contains(trouble_reading(path), "another type or shape"));
}
