// SPDX-License-Identifier: Apache-2.0
// What goes into a segment comes out of it. Hashes are checked against libxxhash called once over
// the whole payload.
#include <hdf5.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>

#include "libttrace/segment.hpp"
#include "libttrace/statistics.hpp"
#include "test/catch.hpp"
#include "test/libttrace/segment_builder.hpp"

using namespace ttrace;
using namespace ttrace::testing;

namespace {

const SegmentInfo kInfo{"run-7", 3, 12, true};

bool equal(std::span<const std::byte> left, std::span<const std::byte> right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

Hash128 hash_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

bool is_statistics_of(const Statistics& got, DType dtype, std::span<const std::byte> bytes) {
  StatisticsStream stream(dtype);
  stream.append(bytes);
  const Statistics want = stream.finish();
  return std::memcmp(&got, &want, sizeof got) == 0;
}

bool has_dataset(const std::filesystem::path& file, const std::string& path) {
  const hid_t id = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  REQUIRE(id >= 0);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const hid_t dataset = H5Dopen2(id, path.c_str(), H5P_DEFAULT);
  if (dataset >= 0) H5Dclose(dataset);
  H5Fclose(id);
  return dataset >= 0;
}

}  // namespace

TEST_CASE("every type and shape comes back, however it was cut into pieces") {
  const std::vector<Shape> shapes{{}, {0}, {3, 0, 2}, Shape(16, 1), {5, 7}, {2, 3, 5, 7, 11}};
  ScratchFolder folder;
  const auto path = folder / "it000012.h5";
  std::vector<std::vector<std::byte>> payloads;
  {
    SegmentWriter writer(path, kInfo);
    for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
      for (const Shape& shape : shapes) {
        const DType dtype = static_cast<DType>(code);
        payloads.push_back(random_payload(dtype, shape, static_cast<unsigned>(payloads.size())));
        const Record record = record_of("it12/mb0/forward/m/output.0", dtype, shape);
        write(writer, record, payloads.back(), "", 1 + payloads.size() % 13);
      }
    }
    CHECK(writer.record_count() == payloads.size());
    writer.close(true);
  }

  const SegmentReader reader(path);

  REQUIRE(reader.records().size() == payloads.size());
  for (const Record& record : reader.records()) {
    const auto& payload = payloads[record.sequence];
    CAPTURE(record.sequence, name_of(record.dtype));
    CHECK(static_cast<std::size_t>(record.dtype) == record.sequence / shapes.size());
    CHECK(record.shape == shapes[record.sequence % shapes.size()]);
    CHECK(record.bytes == payload.size());
    CHECK(record.offset % 64 == 0);
    CHECK((record.offset == 0) == payload.empty());
    CHECK(equal(reader.bytes(record), payload));
    CHECK(record.hash == hash_of(payload));
    CHECK(is_statistics_of(record.statistics, record.dtype, payload));
  }
}

TEST_CASE("all fields of a record and of the segment come back") {
  ScratchFolder folder;
  Record record = record_of("it12/mb4/recompute/a%2Fb.2#7/input.x", DType::int16, {4});
  record.raw_name = "module.a/b.0";
  record.flags = kFlagGlue | kFlagRootInput;
  Record plain = record_of("it12/grad/w/reduced", DType::int16, {4});
  const std::string layout = R"({"dims":"h[tp]"})";
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    write(writer, record, random_payload(DType::int16, {4}, 1), layout);
    write(writer, plain, random_payload(DType::int16, {4}, 2), R"({"dims":"d"})");
    plain.key.slot = "clipped";
    write(writer, plain, random_payload(DType::int16, {4}, 3), layout);
    plain.key.slot = "local";
    write(writer, plain, random_payload(DType::int16, {4}, 3));
    writer.close(true);
  }

  const SegmentReader reader(folder / "s.h5");

  CHECK(reader.path() == folder / "s.h5");
  CHECK(reader.info().run_id == "run-7");
  CHECK(reader.info().rank == 3);
  CHECK(reader.info().iteration == 12);
  CHECK(reader.info().complete);
  REQUIRE(reader.records().size() == 4);
  const Record& first = reader.records()[0];
  CHECK(first.key == record.key);
  CHECK(raw_name_of(first) == "module.a/b.0");
  CHECK(first.flags == record.flags);
  CHECK(first.alias_of == kNotAlias);
  CHECK(raw_name_of(reader.records()[1]) == "w");  // the same as the module
  REQUIRE(reader.layouts().size() == 2);           // each distinct text once
  CHECK(reader.layouts()[static_cast<std::size_t>(first.layout)] == layout);
  CHECK(reader.records()[2].layout == first.layout);
  CHECK(reader.records()[3].layout == kNoLayout);
  CHECK(has_dataset(folder / "s.h5", "/data/mb4/recompute/a%2Fb.2#7/input.x"));
}

TEST_CASE("an alias is a row with its target's bytes, also through another alias") {
  ScratchFolder folder;
  const Record target = record_of("it12/mb0/forward/a/output.0", DType::float32, {6});
  const auto payload = random_payload(DType::float32, {6}, 5);
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    write(writer, target, payload);
    Record alias = record_of("it12/mb0/forward/b/input.0", DType::float32, {2, 3});
    alias.alias_of = 0;
    CHECK(write(writer, alias, {}) == 1);
    alias.key.module = "c";
    alias.alias_of = 1;
    CHECK(write(writer, alias, {}) == 2);
    writer.close(true);
  }

  const SegmentReader reader(folder / "s.h5");

  for (const std::size_t row : {1u, 2u}) {
    const Record& alias = reader.records()[row];
    CHECK(alias.alias_of == static_cast<std::int64_t>(row) - 1);
    CHECK(alias.shape == Shape{2, 3});
    CHECK(alias.offset == 0);
    CHECK(alias.hash == hash_of(payload));
    CHECK(is_statistics_of(alias.statistics, DType::float32, payload));
    CHECK(equal(reader.bytes(alias), payload));
  }
  CHECK(!has_dataset(folder / "s.h5", "/data/mb0/forward/b/input.0"));
}

TEST_CASE("records without bytes keep their hash, and statistics where asked") {
  ScratchFolder folder;
  const auto payload = random_payload(DType::bfloat16, {100}, 5);
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    Record record = record_of("it12/step/w/param", DType::bfloat16, {100});
    record.kind = RecordKind::stats;
    write(writer, record, payload, "", 3);
    record.key.slot = "master";
    record.kind = RecordKind::hash;
    write(writer, record, payload, "", 7);
    writer.close(true);
  }

  const SegmentReader reader(folder / "s.h5");

  const Record& stats = reader.records()[0];
  const Record& hash = reader.records()[1];
  CHECK(stats.kind == RecordKind::stats);
  CHECK(stats.hash == hash_of(payload));
  CHECK(is_statistics_of(stats.statistics, DType::bfloat16, payload));
  CHECK(stats.bytes == 200);
  CHECK(hash.hash == hash_of(payload));
  CHECK(is_statistics_of(hash.statistics, DType::bfloat16, {}));
  CHECK(contains(trouble_of([&] { (void)reader.bytes(stats); }), "without bytes"));
  CHECK(contains(trouble_of([&] { (void)reader.bytes(hash); }), "without bytes"));
}

TEST_CASE("a key that comes again gets the next free call number") {
  ScratchFolder folder;
  const std::vector<std::byte> one(4, std::byte{1});
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    Record record = record_of("it12/mb0/forward/m#1/output.0", DType::float32, {});
    write(writer, record, one);  // call 1 is taken
    record.key.call = 0;
    write(writer, record, one);
    writer.begin(record, "");
    writer.abandon();
    for (int again = 0; again < 3; ++again) write(writer, record, one);
    record.key.call = 1;
    write(writer, record, one);
    record.kind = RecordKind::hash;  // keys of all kinds are one set
    record.key.call = 0;
    write(writer, record, one);
    writer.close(true);
  }

  const SegmentReader reader(folder / "s.h5");

  std::vector<std::uint32_t> calls;
  for (const Record& record : reader.records()) calls.push_back(record.key.call);
  CHECK(calls == std::vector<std::uint32_t>{1, 0, 2, 3, 4, 5, 6});
}

TEST_CASE("an abandoned record never was in the segment") {
  ScratchFolder folder;
  const Record record = record_of("it12/param/w/value", DType::float32, {1000});
  const auto lost = random_payload(DType::float32, {1000}, 1);
  const auto kept = random_payload(DType::float32, {1000}, 2);
  Record other = record;
  other.key.module = "other";
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    CHECK(writer.begin(other, R"({"dims":"x"})") == 0);
    writer.append(lost);
    writer.abandon();
    writer.abandon();  // nothing in flight: nothing happens
    CHECK(write(writer, record, kept) == 0);
    writer.close(true);
  }

  const SegmentReader reader(folder / "s.h5");

  REQUIRE(reader.records().size() == 1);
  CHECK(reader.records()[0].key == record.key);
  CHECK(equal(reader.bytes(reader.records()[0]), kept));
  CHECK(reader.layouts().empty());
  CHECK(has_dataset(folder / "s.h5", "/data/param/w/value"));
  CHECK(!has_dataset(folder / "s.h5", "/data/param/other/value"));
}

TEST_CASE("a segment that is closed early holds what was committed and says so") {
  ScratchFolder folder;
  const Record record = record_of("it12/mb0/forward/m/output.0", DType::uint8, {9});
  const auto payload = random_payload(DType::uint8, {9}, 1);
  const std::string how = GENERATE(as<std::string>{}, "close", "destructor", "in flight");
  CAPTURE(how);
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    write(writer, record, payload);
    if (how == "in flight") {
      writer.begin(record, "");
      writer.append(std::span(payload).first(3));
      writer.close(true);
    }
    if (how == "close") writer.close(false);
  }

  const SegmentReader reader(folder / "s.h5");

  CHECK(!reader.info().complete);
  REQUIRE(reader.records().size() == 1);
  CHECK(equal(reader.bytes(reader.records()[0]), payload));
}

TEST_CASE("the name appears only when the segment is whole") {
  ScratchFolder folder;
  SegmentWriter writer(folder / "s.h5", kInfo);
  CHECK(std::filesystem::exists(folder / "s.h5.part"));
  CHECK(!std::filesystem::exists(folder / "s.h5"));
  CHECK(contains(trouble_of([&] { SegmentReader reader(folder / "s.h5.part"); }),
                 "still being written"));

  writer.close(true);

  CHECK(!std::filesystem::exists(folder / "s.h5.part"));
  CHECK(SegmentReader(folder / "s.h5").records().empty());
  writer.close(true);  // again: nothing happens
}

TEST_CASE("the writer refuses what would not come back") {
  ScratchFolder folder;
  SegmentWriter writer(folder / "s.h5", kInfo);
  const Record good = record_of("it12/param/w/value", DType::float32, {4});
  const auto payload = random_payload(DType::float32, {4}, 1);
  const auto refusal = [&](Record record) { return trouble_of([&] { writer.begin(record, ""); }); };
  Record bad = good;
  bad.bytes = 15;
  CHECK(contains(refusal(bad), "size"));
  bad = good;
  bad.shape = {std::uint64_t{1} << 62, 16};
  bad.bytes = 0;
  CHECK(contains(refusal(bad), "size"));  // the product wraps around to 0
  bad = good;
  bad.shape = Shape(17, 1);
  CHECK(contains(refusal(bad), "16 dimensions"));
  bad = good;
  bad.key.module = "";
  CHECK(contains(refusal(bad), "empty"));
  bad.key.module = std::string("a\0b", 3);
  CHECK(contains(refusal(bad), "NUL"));
  bad = good;
  bad.alias_of = 0;
  CHECK(contains(refusal(bad), "not there"));

  writer.begin(good, "");
  CHECK(contains(refusal(good), "neither committed nor abandoned"));
  writer.append(std::span(payload).first(15));
  CHECK(contains(trouble_of([&] { writer.commit(); }), "fewer bytes"));
  CHECK(contains(trouble_of([&] { writer.append(payload); }), "more bytes"));
  writer.append(std::span(payload).last(1));
  writer.commit();
  CHECK(contains(trouble_of([&] { writer.commit(); }), "no record was begun"));

  bad = record_of("it12/param/x/value", DType::float32, {5});
  bad.alias_of = 0;
  CHECK(contains(refusal(bad), "another size"));
  writer.close(true);
  CHECK(contains(refusal(good), "closed"));
  CHECK(SegmentReader(folder / "s.h5").records().size() == 1);
}

TEST_CASE("a folder that cannot be written is trouble with the system's reason") {
  const std::string trouble =
      trouble_of([] { SegmentWriter writer("/nonexistent/it000000.h5", kInfo); });
  CHECK(contains(trouble, "/nonexistent/it000000.h5.part"));
  CHECK(contains(trouble, "No such file or directory"));
}

TEST_CASE("twenty thousand small records") {
  constexpr std::uint64_t kCount = 20000;
  ScratchFolder folder;
  const auto value = [](std::uint64_t i) {
    return random_payload(DType::bfloat16, {1 + i % 50}, static_cast<unsigned>(i));
  };
  {
    SegmentWriter writer(folder / "s.h5", kInfo);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      Record record = record_of("it12/mb0/forward/m/output.0", DType::bfloat16, {1 + i % 50});
      record.key.module = "decoder.layers." + std::to_string(i / 10) + ".mlp";
      record.key.slot = "output." + std::to_string(i % 10);
      write(writer, record, value(i));
    }
    writer.close(true);
  }

  const SegmentReader reader(folder / "s.h5");

  REQUIRE(reader.records().size() == kCount);
  std::uint64_t wrong = 0;
  for (const Record& record : reader.records()) {
    wrong += !equal(reader.bytes(record), value(record.sequence));
    reader.release(reader.bytes(record));
  }
  CHECK(wrong == 0);
  const Record& last = reader.records().back();  // still there after its page was let go
  CHECK(equal(reader.bytes(last), value(last.sequence)));
}
