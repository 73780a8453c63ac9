// SPDX-License-Identifier: Apache-2.0
// Writes a trace from a description on stdin, for tests in Python that have no library for it:
//   {"path": "x.trace", "ranks": [{"rank": 0, "rank_json": {...}, "segments": [{"iteration": 0,
//    "complete": true, "records": [{"key": "it0/mb0/forward/a/output.0", "dtype": "float32",
//    "shape": [2, 2], "values": [1, 2, 3, "nan"]}]}]}]}
// A segment may have "collectives": [{"function": "all_reduce", "reduction": "sum", "group": "dp",
// "sequence": 0, "member": 0, "size": 2, "input": 3, "output": 4}], with the other members of a
// Collective where they are not the default; "position" is that of the input, or the end.
// A record may also have "kind" (full), "flags" (0), "layout" ("") and "alias_of" (-1). Instead of
// "values" it may have "zeros": true, however large its shape is.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "libttrace/segment.hpp"
#include "libttrace/trace.hpp"

namespace {

using namespace ttrace;
using Json = nlohmann::json;

double number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  return std::strtod(value.get<std::string>().c_str(), nullptr);
}

// Nearest, ties to even.
std::uint16_t bfloat16_bits(double value) {
  const float single = static_cast<float>(value);
  const auto bits = __builtin_bit_cast(std::uint32_t, single);
  if (std::isnan(single)) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

void append_value(std::vector<std::byte>& bytes, DType type, const Json& value) {
  switch (type) {
    case DType::float64:
      return append(bytes, number_of(value));
    case DType::float32:
      return append(bytes, static_cast<float>(number_of(value)));
    case DType::bfloat16:
      return append(bytes, bfloat16_bits(number_of(value)));
    case DType::uint8:
      return append(bytes, value.get<std::uint8_t>());
    case DType::int32:
      return append(bytes, static_cast<std::int32_t>(value.get<std::int64_t>()));
    case DType::int64:
      return append(bytes, value.get<std::int64_t>());
    case DType::boolean:
      return append(bytes, static_cast<std::uint8_t>(value.get<int>()));
    default: {
      if (!is_floating(type)) throw std::runtime_error("make_trace: no such dtype");
      bytes.resize(bytes.size() + size_of(type));
      return encode(type, number_of(value), bytes.data() + bytes.size() - size_of(type), 0);
    }
  }
}

RecordKind kind_of(const std::string& name) {
  return name == "hash" ? RecordKind::hash : name == "stats" ? RecordKind::stats : RecordKind::full;
}

void write_zeros(SegmentWriter& writer, std::uint64_t bytes) {
  const std::vector<std::byte> zeros(1 << 20);
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t count = std::min<std::uint64_t>(zeros.size(), bytes - done);
    writer.append(std::span(zeros).first(count));
    done += count;
  }
}

void write_record(SegmentWriter& writer, const Json& json) {
  Record record;
  const auto key = parse_key(json.at("key").get<std::string>());
  if (!key) throw std::runtime_error("make_trace: bad key " + json.at("key").dump());
  record.key = *key;
  record.dtype = dtype_from_name(json.value("dtype", "float32")).value();
  record.kind = kind_of(json.value("kind", "full"));
  record.shape = json.at("shape").get<Shape>();
  record.flags = json.value("flags", 0u);
  record.alias_of = json.value("alias_of", kNotAlias);
  record.bytes = element_count(record.shape) * size_of(record.dtype);
  std::vector<std::byte> bytes;
  if (json.contains("values")) {
    for (const Json& value : json["values"]) append_value(bytes, record.dtype, value);
  }
  writer.begin(record, json.value("layout", ""));
  if (json.value("zeros", false)) {
    write_zeros(writer, record.bytes);
  } else if (record.alias_of == kNotAlias) {
    writer.append(bytes);
  }
  writer.commit();
}

Collective collective_of(const Json& json, std::uint64_t records) {
  Collective call;
  call.function = json.at("function").get<std::string>();
  call.reduction = json.value("reduction", "");
  call.group = json.at("group").get<std::string>();
  call.module = json.value("module", "");
  call.input_splits = json.value("input_splits", "");
  call.output_splits = json.value("output_splits", "");
  call.sequence = json.at("sequence").get<std::uint64_t>();
  call.count = json.value("count", std::uint64_t{0});
  call.factor = json.value("factor", 1.0);
  call.member = json.at("member").get<std::int32_t>();
  call.size = json.at("size").get<std::int32_t>();
  call.peer = json.value("peer", -1);
  call.microbatch = json.value("microbatch", -1);
  call.flags = json.value("flags", 0u);
  call.dtype = dtype_from_name(json.value("dtype", "float32")).value();
  call.input = json.value("input", kNotRecorded);
  call.output = json.value("output", kNotRecorded);
  call.position =
      json.value("position", call.input >= 0 ? static_cast<std::uint64_t>(call.input) : records);
  return call;
}

void write_rank(const std::filesystem::path& root, const Json& rank) {
  const auto number = rank.at("rank").get<std::int32_t>();
  for (const Json& segment : rank.value("segments", Json::array())) {
    const auto iteration = segment.at("iteration").get<std::int64_t>();
    const std::filesystem::path path = segment_path(root, number, iteration);
    std::filesystem::create_directories(path.parent_path());
    SegmentWriter writer(path, {"run", number, iteration, true});
    for (const Json& record : segment.at("records")) write_record(writer, record);
    for (const Json& call : segment.value("collectives", Json::array())) {
      writer.add_collective(collective_of(call, segment.at("records").size()));
    }
    writer.close(segment.value("complete", true));
  }
  const std::filesystem::path folder = segment_path(root, number, 0).parent_path();
  std::filesystem::create_directories(folder);
  Json json = {{"format", "ttrace-rank"}, {"version", 1}, {"run_id", "run"}, {"rank", number}};
  json.update(rank.value("rank_json", Json::object()));
  std::ofstream(folder / "rank.json") << json.dump();
}

}  // namespace

int main() {
  try {
    const Json json = Json::parse(std::cin);
    const std::filesystem::path root = json.at("path").get<std::string>();
    std::filesystem::create_directories(root);
    Json trace = {{"format", "ttrace-trace"}, {"version", 1}, {"run_id", "run"}};
    trace.update(json.value("trace_json", Json::object()));
    std::ofstream(root / "trace.json") << trace.dump();
    for (const Json& rank : json.at("ranks")) write_rank(root, rank);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
