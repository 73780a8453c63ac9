// SPDX-License-Identifier: Apache-2.0
// Writes the traces that bench/diff.sh compares: float32 outputs of layers, which follow a formula
// and are off by up to one spacing each, other ones in each run but `high`.
//   diff_trace OUT ROLE TENSORS ROWS COLUMNS
// ROLE is base, candidate, one (base, but one element of each tensor), own or high (the candidate's
// replays), or the seed of a perturbed base.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "libttrace/segment.hpp"
#include "libttrace/trace.hpp"
#include "libttrace/trace_files.hpp"

using namespace ttrace;

namespace {

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

struct Run {
  std::string role;
  std::uint64_t noise = 0;  // 0: none
  std::string options;      // of trace.json
};

Run run_of(const std::string& role) {
  const std::string replay = R"({"replay":{"run_id":"candidate"}})";
  if (role == "base" || role == "one") return {role, 1, "{}"};
  if (role == "candidate") return {role, 2, "{}"};
  if (role == "own") return {role, 1, replay};
  if (role == "high") return {role, 0, replay};
  const std::uint64_t seed = std::strtoull(role.c_str(), nullptr, 10);
  return {role, 2 + seed, R"({"perturb":)" + std::to_string(seed) + "}"};
}

std::vector<std::uint32_t> values_of(const Run& run, std::uint64_t tensor, std::uint64_t count) {
  std::vector<std::uint32_t> bits(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t place = tensor << 40 | i;
    const float value = static_cast<float>(mix(place) >> 40) * 0x1p-24f - 0.5f;
    std::memcpy(&bits[i], &value, sizeof value);
    if (run.noise == 0 || value == 0) continue;
    bits[i] += static_cast<std::uint32_t>(mix(place ^ run.noise << 56) % 3) - 1;
  }
  if (run.role == "one") bits[count / 3] += 256;
  return bits;
}

void write_documents(const std::filesystem::path& out, const Run& run) {
  const std::filesystem::path folder = segment_path(out, 0, 0).parent_path();
  std::filesystem::create_directories(folder);
  const std::string id = R"(,"version":1,"run_id":")" + run.role + '"';
  std::ofstream(folder / "rank.json")
      << R"({"format":"ttrace-rank","rank":0,"world_size":1,"fed":1)" << id << "}";
  std::ofstream(out / "trace.json")
      << R"({"format":"ttrace-trace","options":)" << run.options << id << "}";
}

void write(const std::filesystem::path& out, const Run& run, std::uint64_t tensors,
           const Shape& shape) {
  write_documents(out, run);
  SegmentWriter segment(segment_path(out, 0, 0), {run.role, 0, 0, true});
  for (std::uint64_t i = 0; i < tensors; ++i) {
    const std::vector<std::uint32_t> values = values_of(run, i, element_count(shape));
    Record record;
    record.key = {0, 0, Phase::forward, "layers." + std::to_string(i), 0, "output.0"};
    record.shape = shape;
    record.bytes = values.size() * sizeof values[0];
    segment.begin(record, "");
    segment.append(std::as_bytes(std::span(values)));
    segment.commit();
  }
  segment.close(true);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: diff_trace OUT ROLE TENSORS ROWS COLUMNS\n", stderr);
    return 2;
  }
  const auto number = [argv](int at) { return std::strtoull(argv[at], nullptr, 10); };
  write(argv[1], run_of(argv[2]), number(3), {number(4), number(5)});
  return 0;
}
