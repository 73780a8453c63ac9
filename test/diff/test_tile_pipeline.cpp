// SPDX-License-Identifier: Apache-2.0
// Everything between runs in host memory and a device's kernel, with a device that is made of host
// memory: it works on its own copy, late, and spoils a slot that is written too early.
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "diff/comparison.hpp"
#include "diff/tile_pipeline.hpp"
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"

namespace ttrace {
namespace {

struct Usage {
  std::vector<std::uint64_t> elements;  // of each start()
  std::size_t most_runs = 0;
};

// Copies from a slot only when it is waited for: what is written into a slot that the device still
// needs shows in the result.
class LateDevice final : public TileDevice {
 public:
  explicit LateDevice(Usage& usage) : usage_(usage) {}
  [[nodiscard]] std::string_view name() const override { return "late"; }
  [[nodiscard]] std::byte* slot(unsigned number) override {
    CHECK(!started_[number]);
    if (memory_[number].empty()) memory_[number].resize(kSlotBytes / sizeof(Chunk));
    return memory_[number].front().bytes;
  }
  void start(unsigned number, const SlotContents& contents) override {
    REQUIRE(contents.bytes() <= kSlotBytes);
    REQUIRE(contents.candidate_at % kLoadBytes == 0);
    REQUIRE(contents.runs_at % kLoadBytes == 0);
    started_[number] = contents;
    usage_.elements.push_back(contents.count);
    usage_.most_runs = std::max(usage_.most_runs, static_cast<std::size_t>(contents.run_count));
  }
  [[nodiscard]] std::vector<TileRecord> wait(unsigned number) override {
    const SlotContents contents = started_[number].value();
    started_[number].reset();
    return visit_dtype(contents.type, [&](auto sample) {
      using T = TileStorage<decltype(sample)>;
      const auto pairs = pairs_of<T>(memory_[number].front().bytes, contents);
      std::vector<TileRecord> records;
      for (std::uint64_t tile = 0; tile < contents.tiles(); ++tile) {
        records.push_back(measure_tile_on_host(pairs, tile));
      }
      return records;
    });
  }

 private:
  struct alignas(kLoadBytes) Chunk {
    std::byte bytes[kLoadBytes];
  };
  Usage& usage_;
  std::vector<Chunk> memory_[kSlots];
  std::optional<SlotContents> started_[kSlots];
};

struct Sides {
  std::vector<float> reference, candidate;
};

Sides random_sides(std::uint64_t count) {
  std::mt19937 random(7);
  Sides sides;
  for (std::uint64_t i = 0; i < count; ++i) {
    sides.reference.push_back(static_cast<float>(random() % 4096) - 2048);
    sides.candidate.push_back(sides.reference.back() + static_cast<float>(random() % 3) * 0x1p-4f);
  }
  return sides;
}

// Runs of `length`, each `gap` further in the logical tensor than the end of the one before.
std::vector<RunPair> runs_of_length(const Sides& sides, std::uint64_t length, std::uint64_t gap) {
  std::vector<RunPair> runs;
  for (std::uint64_t at = 0; at < sides.reference.size(); at += length) {
    const std::uint64_t count = std::min(length, sides.reference.size() - at);
    runs.push_back({reinterpret_cast<const std::byte*>(sides.reference.data() + at),
                    reinterpret_cast<const std::byte*>(sides.candidate.data() + at), count,
                    at + at / length * gap});
  }
  return runs;
}

void check_equal(const Metrics& device, const Metrics& host) {
  CHECK(device.count == host.count);
  CHECK(device.unequal == host.unequal);
  CHECK(device.worst == host.worst);
  CHECK(device.first_unequal == host.first_unequal);
  CHECK(device.max_error == host.max_error);
  CHECK(device.max_relative == host.max_relative);
  CHECK(device.zero_reference == host.zero_reference);
  CHECK(std::memcmp(device.ulp, host.ulp, sizeof host.ulp) == 0);
  // Sums of small multiples of powers of 2 are exact in any order.
  CHECK(device.sums.error_squares == host.sums.error_squares);
  CHECK(device.sums.reference_squares == host.sums.reference_squares);
  CHECK(device.sums.errors == host.sums.errors);
}

}  // namespace

TEST_CASE("slots are filled, measured and used again, whatever the runs are") {
  Usage usage;
  const auto backend = make_tile_backend(std::make_unique<LateDevice>(usage));
  const auto host = make_cpu_backend();
  // One element, a slot, more slots than there are; long runs, short ones, ones that end nowhere.
  const std::uint64_t count = GENERATE(1u, 20000u, 40000000u);
  const Sides sides = random_sides(count);
  for (const std::uint64_t length : {std::uint64_t{count > 30000000 ? 100u : 1u},
                                     std::uint64_t{100}, std::uint64_t{16385}, count}) {
    const std::vector<RunPair> runs = runs_of_length(sides, length, 11);
    Metrics device, expected;
    usage = {};
    backend->measure(DType::float32, 1, runs, device);
    host->measure(DType::float32, 1, runs, expected);
    check_equal(device, expected);
    std::uint64_t all = 0;
    for (const std::uint64_t elements : usage.elements) all += elements;
    CHECK(all == count);
    CHECK(usage.most_runs <= kSlotRuns + kBlockElements);
    if (count > 30000000) CHECK(usage.elements.size() > kSlots);
  }
}

TEST_CASE("no runs are no work") {
  Usage usage;
  const auto backend = make_tile_backend(std::make_unique<LateDevice>(usage));
  Metrics total;
  backend->measure(DType::bfloat16, 1, {}, total);
  CHECK(total.count == 0);
  CHECK(usage.elements.empty());
}

TEST_CASE("a comparison on a device says what is wrong, and fills in what it found") {
  ttrace_comparison result{};
  result.struct_size = sizeof result;
  char why[64] = "";
  const float one = 1;
  const auto measure = [](DType type) {
    CHECK(type == DType::float32);
    Metrics metrics;
    metrics.count = 4;
    metrics.sums.error_squares = 9;
    metrics.sums.reference_squares = 36;
    metrics.ulp[3] = 2;
    return metrics;
  };
  const ComparisonRequest good{&one, &one, 4, "float32", &result};
  REQUIRE(run_comparison(good, why, sizeof why, measure) == TTRACE_COMPARED);
  CHECK(result.count == 4);
  CHECK(result.relative == 0.5);
  CHECK(result.ulp[3] == 2);
  CHECK(result.worst == UINT64_MAX);

  for (int which = 0; which < 5; ++which) {
    ComparisonRequest bad = good;
    ttrace_comparison small{};
    if (which == 0) bad.dtype = "float12";
    if (which == 1) bad.dtype = nullptr;
    if (which == 2) bad.candidate = nullptr;
    if (which == 3) bad.result = nullptr;
    if (which == 4) bad.result = &small;
    CHECK(run_comparison(bad, why, sizeof why, measure) == TTRACE_COMPARE_USAGE);
    CHECK(std::strlen(why) > 0);
  }
  const ComparisonRequest empty{nullptr, nullptr, 0, "float32", &result};
  CHECK(run_comparison(empty, nullptr, 0, measure) == TTRACE_COMPARED);
  CHECK(result.count == 0);
  const auto failing = [](DType) -> Metrics { throw Trouble("cuda", "launch", "no device"); };
  CHECK(run_comparison(good, why, sizeof why, failing) == TTRACE_COMPARE_DEVICE);
  CHECK(std::string(why).find("no device") != std::string::npos);
}

}  // namespace ttrace
