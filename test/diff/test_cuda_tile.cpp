// SPDX-License-Identifier: Apache-2.0
// The device code's share of a tile, run thread by thread on the host, against the CPU backend: all
// types, odd sizes, several runs. On a GPU machine test/gpu runs the kernels themselves.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "diff/backend.hpp"
#include "diff/cuda_tile.hpp"
#include "test/catch.hpp"

namespace ttrace {
namespace {

// Random bytes are all codes of a type, NaN and Inf included; most candidates equal the reference.
struct Bytes {
  std::vector<std::byte> reference;
  std::vector<std::byte> candidate;
};
Bytes random_bytes(DType type, std::uint64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes{std::vector<std::byte>(count * size_of(type)), {}};
  for (std::byte& byte : bytes.reference) byte = static_cast<std::byte>(random() & 0xffu);
  if (type == DType::boolean) {
    for (std::byte& byte : bytes.reference) byte = static_cast<std::byte>(random() & 1u);
  }
  bytes.candidate = bytes.reference;
  for (std::byte& byte : bytes.candidate) {
    if (random() % 16 == 0) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) ^ 1u);
  }
  return bytes;
}

template <class T>
Metrics measure_as_device(const Bytes& bytes, const std::vector<PackedRun>& runs,
                          std::uint64_t count, bool aligned) {
  // At a multiple of kLoadBytes, or one element further on.
  struct alignas(kLoadBytes) Load {
    std::byte bytes[kLoadBytes];
  };
  std::vector<Load> reference(bytes.reference.size() / kLoadBytes + 2), candidate = reference;
  const std::size_t begin = aligned ? 0 : sizeof(T);
  std::memcpy(reference.data()->bytes + begin, bytes.reference.data(), bytes.reference.size());
  std::memcpy(candidate.data()->bytes + begin, bytes.candidate.data(), bytes.candidate.size());
  PackedPairs<T> pairs;
  pairs.reference = reinterpret_cast<const T*>(reference.data()->bytes + begin);
  pairs.candidate = reinterpret_cast<const T*>(candidate.data()->bytes + begin);
  CHECK(pairs.aligned() == aligned);
  pairs.count = count;
  pairs.runs = runs.data();
  pairs.run_count = runs.size();
  Metrics total;
  for (std::uint64_t tile = 0; tile * kBlockElements < count; ++tile) {
    add_record(total, measure_tile_on_host(pairs, tile));
  }
  return total;
}

void check_sum(double device, double host, double scale) {
  INFO("device " << device << " host " << host);
  if (std::isfinite(host)) {
    CHECK(std::fabs(device - host) <= 1e-12 * std::max(std::fabs(host), scale));
  } else {  // huge float64 codes overflow on both sides
    CHECK_FALSE(std::isfinite(device));
  }
}

}  // namespace

TEST_CASE("a device thread's share adds up to what the CPU backend measures") {
  const auto backend = make_cpu_backend();
  const bool aligned = GENERATE(true, false);
  for (std::uint8_t code = 0; code < kDTypeCount; ++code) {
    const DType type = static_cast<DType>(code);
    for (const std::uint64_t count : {1u, 7u, 255u, 16384u, 16385u, 50001u}) {
      INFO(name_of(type) << " x " << count);
      const Bytes bytes = random_bytes(type, count, 17u * code + static_cast<unsigned>(count));
      // Two runs whose logical positions lie apart.
      const std::uint64_t half = count / 2;
      std::vector<PackedRun> packed{{0, 100}};
      if (half != 0) packed.push_back({half, 1000000});
      const std::size_t size = size_of(type);
      std::vector<RunPair> runs;
      if (half != 0) runs.push_back({bytes.reference.data(), bytes.candidate.data(), half, 100});
      runs.push_back({bytes.reference.data() + half * size, bytes.candidate.data() + half * size,
                      count - half, half != 0 ? 1000000u : 100u});
      Metrics host;
      backend->measure(type, 1, runs, host);
      const Metrics device = visit_dtype(type, [&](auto sample) {
        return measure_as_device<TileStorage<decltype(sample)>>(bytes, packed, count, aligned);
      });

      CHECK(device.count == count);
      CHECK(device.count == host.count);
      CHECK(device.unequal == host.unequal);
      CHECK(device.zero_reference == host.zero_reference);
      CHECK(device.nonfinite_mismatch == host.nonfinite_mismatch);
      CHECK(device.reference_nan == host.reference_nan);
      CHECK(device.candidate_inf == host.candidate_inf);
      CHECK(device.first_unequal == host.first_unequal);
      CHECK(device.worst == host.worst);
      CHECK(device.max_error == host.max_error);
      CHECK(device.max_relative == host.max_relative);
      CHECK(std::memcmp(device.ulp, host.ulp, sizeof host.ulp) == 0);
      check_sum(device.sums.error_squares, host.sums.error_squares, 0);
      check_sum(device.sums.reference_squares, host.sums.reference_squares, 0);
      check_sum(device.sums.candidate_squares, host.sums.candidate_squares, 0);
      const double size_of_sum =
          std::sqrt(host.sums.error_squares) * std::sqrt(host.sums.reference_squares);
      if (std::isfinite(size_of_sum)) {
        check_sum(device.sums.error_products, host.sums.error_products, size_of_sum);
      }
    }
  }
}

}  // namespace ttrace
