// SPDX-License-Identifier: Apache-2.0
// Random pairs through every loop of the comparison: the functor one by one, each instruction set
// that this processor has, and a device thread's share, run here; and random arrays through those
// of the statistics. Aborts at the first disagreement with the line that repeats it.
//   fuzz_backends [--seconds 60] [--seed 1] | --case NUMBER
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "test/diff/fuzz_noise.hpp"
#include "test/diff/random_pairs.hpp"

namespace ttrace {
namespace {

// "" or the name of what is not equal.
std::string unequal_counts(const Metrics& left, const Metrics& right) {
  if (left.count != right.count) return "count";
  if (left.unequal != right.unequal) return "unequal";
  if (left.zero_reference != right.zero_reference) return "zero_reference";
  if (left.reference_nan != right.reference_nan) return "reference_nan";
  if (left.reference_inf != right.reference_inf) return "reference_inf";
  if (left.candidate_nan != right.candidate_nan) return "candidate_nan";
  if (left.candidate_inf != right.candidate_inf) return "candidate_inf";
  if (left.nonfinite_mismatch != right.nonfinite_mismatch) return "nonfinite_mismatch";
  if (left.first_unequal != right.first_unequal) return "first_unequal";
  if (left.worst != right.worst) return "worst";
  if (!same_bits(left.max_error, right.max_error)) return "max_error";
  if (!same_bits(left.max_relative, right.max_relative)) return "max_relative";
  for (int bucket = 0; bucket < kUlpBuckets; ++bucket) {
    if (left.ulp[bucket] != right.ulp[bucket]) return "ulp[" + std::to_string(bucket) + "]";
  }
  return {};
}

std::string unequal_sums(const Sums& left, const Sums& right) {
  if (!same_bits(left.error_squares, right.error_squares)) return "error_squares";
  if (!same_bits(left.reference_squares, right.reference_squares)) return "reference_squares";
  if (!same_bits(left.candidate_squares, right.candidate_squares)) return "candidate_squares";
  if (!same_bits(left.error_products, right.error_products)) return "error_products";
  if (!same_bits(left.errors, right.errors)) return "errors";
  return {};
}

// Exact for int64, too, whose doubles may be equal where they are not.
double error_of(const RandomPairs& pairs, std::uint64_t i, double reference, double candidate) {
  if (pairs.type != DType::int64) return candidate - reference;
  std::int64_t r, c;
  std::memcpy(&r, pairs.reference() + i * sizeof r, sizeof r);
  std::memcpy(&c, pairs.candidate() + i * sizeof c, sizeof c);
  return static_cast<double>(static_cast<long double>(c) - static_cast<long double>(r));
}

// What the terms of each sum add up to without their signs: the scale of its rounding.
Sums sizes_of_terms(const RandomPairs& pairs) {
  Sums sizes;
  const double scale = is_floating(pairs.type) ? pairs.scale : 1;
  for (std::uint64_t i = 0; i < pairs.count; ++i) {
    const double r = decode(pairs.type, pairs.reference(), i);
    const double c = decode(pairs.type, pairs.candidate(), i) * scale;
    if (!is_finite(r) || !is_finite(c)) continue;
    const double error = std::fabs(error_of(pairs, i, r, c));
    sizes.error_squares += error * error;
    sizes.reference_squares += r * r;
    sizes.candidate_squares += c * c;
    sizes.error_products += error * std::fabs(r);
    sizes.errors += error;
  }
  return sizes;
}

// The device adds in another order.
std::string far_sums(const Sums& device, const Sums& host, const Sums& sizes) {
  const auto far = [](double left, double right, double size) {
    if (!std::isfinite(size)) return false;
    return !(std::fabs(left - right) <= 1e-12 * size + 1e-318);
  };
  if (far(device.error_squares, host.error_squares, sizes.error_squares)) return "error_squares";
  if (far(device.reference_squares, host.reference_squares, sizes.reference_squares)) {
    return "reference_squares";
  }
  if (far(device.candidate_squares, host.candidate_squares, sizes.candidate_squares)) {
    return "candidate_squares";
  }
  if (far(device.error_products, host.error_products, sizes.error_products)) {
    return "error_products";
  }
  if (far(device.errors, host.errors, sizes.errors)) return "errors";
  return {};
}

void fail(std::uint64_t number, const RandomPairs& pairs, std::string_view loop,
          const std::string& what) {
  std::fprintf(stderr,
               "%s of %s x %llu (scale %g, %zu runs): %.*s is not what the scalar loop says\n"
               "repeat with: fuzz_backends --case %llu\n",
               what.c_str(), std::string(name_of(pairs.type)).c_str(),
               static_cast<unsigned long long>(pairs.count), pairs.scale, pairs.runs.size(),
               static_cast<int>(loop.size()), loop.data(), static_cast<unsigned long long>(number));
  std::abort();
}

class Fuzzer {
 public:
  void run_case(std::uint64_t number) {
    const RandomPairs pairs = PairMaker(number).make();
    const Metrics expected = measure_on(*backends_.back(), pairs);
    for (const auto& backend : backends_) {
      const std::vector<Metrics> measured = measure_in_threads(*backend, pairs, 1 + number % 3);
      for (const Metrics& metrics : measured) {
        std::string what = unequal_counts(metrics, expected);
        if (what.empty()) what = unequal_sums(metrics.sums, expected.sums);
        if (!what.empty()) fail(number, pairs, backend->name(), what);
      }
    }
    const Metrics device = measure_as_device(pairs);
    std::string what = unequal_counts(device, expected);
    if (what.empty()) what = far_sums(device.sums, expected.sums, sizes_of_terms(pairs));
    if (!what.empty()) fail(number, pairs, "device", what);
    elements_ += pairs.count;
    run_noise(number);
  }
  [[nodiscard]] std::uint64_t elements() const { return elements_; }
  [[nodiscard]] std::size_t loops() const { return backends_.size() + 1; }

 private:
  static void run_noise(std::uint64_t number) {
    const NoiseCase made(number);
    const NoiseResult expected = made.run(kScalarNoiseLoops);
    for (const NoiseLoops* loops : noise_loops()) {
      const std::string what = NoiseCase::unequal(made.run(*loops), expected);
      if (what.empty()) continue;
      std::fprintf(stderr,
                   "%s of %llu elements: %s is not what the plain loops of the statistics say\n"
                   "repeat with: fuzz_backends --case %llu\n",
                   what.c_str(), static_cast<unsigned long long>(made.count()), loops->target,
                   static_cast<unsigned long long>(number));
      std::abort();
    }
  }

  // The same backend from several threads at once, as the program uses it.
  static std::vector<Metrics> measure_in_threads(const Backend& backend, const RandomPairs& pairs,
                                                 std::size_t count) {
    std::vector<Metrics> measured(count);
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < count; ++i) {
      threads.emplace_back([&, i] { measured[i] = measure_on(backend, pairs); });
    }
    measured[0] = measure_on(backend, pairs);
    for (std::thread& thread : threads) thread.join();
    return measured;
  }

  std::vector<std::unique_ptr<Backend>> backends_ = make_cpu_backends();
  std::uint64_t elements_ = 0;
};

int run(int argc, char** argv) {
  double seconds = 60;
  std::uint64_t seed = 1;
  Fuzzer fuzzer;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--seconds") seconds = std::strtod(argv[i + 1], nullptr);
    if (option == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--case") {
      fuzzer.run_case(std::strtoull(argv[i + 1], nullptr, 10));
      return 0;
    }
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::mt19937_64 numbers(seed);
  std::uint64_t cases = 0;
  for (; std::chrono::steady_clock::now() < end; ++cases) fuzzer.run_case(numbers());
  std::printf("%llu cases, %llu pairs of elements, %zu loops agree\n",
              static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(fuzzer.elements()), fuzzer.loops());
  return 0;
}

}  // namespace
}  // namespace ttrace

int main(int argc, char** argv) { return ttrace::run(argc, argv); }
