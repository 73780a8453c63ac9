// SPDX-License-Identifier: Apache-2.0
// How fast pairs of tensors in memory are compared, as a share of how fast they can be read: every
// loop of the CPU backend, types and kinds of pairs, one thread and all (the fastest loop only).
// Prints a Markdown table.
//   diff_kernel [--kib 65536] [--rounds 9] [--type NAME]... [--loop NAME]... [--pair NAME]...
// Times are CPU times of threads (the longest of several), so that other jobs disturb less; each
// figure is the median of its rounds, and in a round everything is measured once.
#include <pthread.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "diff/backend.hpp"

namespace ttrace {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Tensors begin at a cache line, as they do in our files and in PyTorch's memory.
struct alignas(64) Line {
  std::uint64_t words[8];
};

struct Pairs {
  DType type;
  std::uint64_t count;
  std::vector<Line> reference, candidate;

  Pairs(DType type_in, std::uint64_t bytes)
      : type(type_in), count(bytes / size_of(type)), reference(bytes / 64), candidate(bytes / 64) {}
  [[nodiscard]] const std::byte* left() const {
    return reinterpret_cast<const std::byte*>(reference.data());
  }
  [[nodiscard]] const std::byte* right() const {
    return reinterpret_cast<const std::byte*>(candidate.data());
  }
  [[nodiscard]] std::byte* candidate_bytes() {
    return reinterpret_cast<std::byte*>(candidate.data());
  }
};

// Moves an element by a few codes, so that it stays a number near by.
void nudge(Pairs& pairs, std::uint64_t i, std::uint64_t step) {
  const std::size_t size = size_of(pairs.type);
  std::byte* at = pairs.candidate_bytes() + i * size;
  std::uint64_t code = 0;
  std::memcpy(&code, at, size);
  code += step;
  std::memcpy(at, &code, size);
}

enum class Kind { equal, one, all, nan };
constexpr std::pair<Kind, const char*> kKinds[] = {{Kind::equal, "equal"},
                                                   {Kind::one, "one differs"},
                                                   {Kind::all, "all differ"},
                                                   {Kind::nan, "all NaN"}};

Pairs make_pairs(DType type, std::uint64_t bytes, Kind kind) {
  Pairs pairs(type, bytes);
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  // A period of ordinary numbers, repeated; not a power of two long.
  constexpr std::uint64_t kPeriod = 1000003;
  const std::size_t size = size_of(type);
  auto* reference = reinterpret_cast<std::byte*>(pairs.reference.data());
  for (std::uint64_t i = 0; i < std::min(kPeriod, pairs.count); ++i) {
    encode(type, kind == Kind::nan ? std::nan("") : normal(random), reference, i);
  }
  for (std::uint64_t i = kPeriod; i < pairs.count; i += kPeriod) {
    std::memcpy(reference + i * size, reference, std::min(kPeriod, pairs.count - i) * size);
  }
  pairs.candidate = pairs.reference;
  if (kind == Kind::one) nudge(pairs, pairs.count / 2, 1);
  const std::uint64_t steps = size >= 4 ? 16 : (size == 2 ? 3 : 1);
  for (std::uint64_t i = 0; kind == Kind::all && i < pairs.count; ++i) {
    nudge(pairs, i, 1 + random() % steps);
  }
  return pairs;
}

// What reading alone costs: both sides in turn, 64 KiB of each, as the comparison meets them.
void read_words(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t words) {
  constexpr std::uint64_t kLanes64 = 32;
  std::uint64_t lanes[kLanes64] = {};
  for (std::uint64_t i = 0; i + kLanes64 <= words; i += kLanes64) {
    for (std::uint64_t lane = 0; lane < kLanes64; ++lane) {
      lanes[lane] |= left[i + lane] ^ right[i + lane];
    }
  }
  volatile std::uint64_t sink = 0;
  for (const std::uint64_t lane : lanes) sink = sink | lane;
}

// use(first block, blocks) of each thread; the longest thread's CPU seconds.
template <class Use>
double time_threads(std::uint64_t blocks, unsigned count, Use use) {
  std::vector<double> seconds(count);
  std::atomic<unsigned> ready{0};
  const auto work = [&](unsigned thread) {
    ++ready;
    while (ready < count) std::this_thread::yield();
    const std::uint64_t begin = blocks * thread / count, end = blocks * (thread + 1) / count;
    const double start = thread_seconds();
    use(begin, end - begin);
    seconds[thread] = thread_seconds() - start;
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < count; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

double time_reading(const Pairs& pairs, unsigned threads) {
  const std::uint64_t words = kBlockElements * size_of(pairs.type) / 8;
  return time_threads(pairs.count / kBlockElements, threads,
                      [&](std::uint64_t begin, std::uint64_t count) {
                        read_words(pairs.reference.data()->words + begin * words,
                                   pairs.candidate.data()->words + begin * words, count * words);
                      });
}

double time_backend(const Backend& backend, const Pairs& pairs, unsigned threads) {
  const std::size_t size = size_of(pairs.type);
  return time_threads(pairs.count / kBlockElements, threads,
                      [&](std::uint64_t begin, std::uint64_t count) {
                        const std::uint64_t first = begin * kBlockElements;
                        const RunPair run{pairs.left() + first * size, pairs.right() + first * size,
                                          count * kBlockElements, first};
                        Metrics total;
                        backend.measure(pairs.type, 1, {&run, 1}, total);
                      });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Options {
  std::uint64_t kib = 65536;
  unsigned rounds = 9;
  std::vector<std::string> types = {"float32",       "bfloat16",    "float16",
                                    "float8_e4m3fn", "float8_e5m2", "float64"};
  std::vector<std::string> loops, pairs;
};

bool wanted(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), backends_(make_cpu_backends()) {
    std::erase_if(backends_,
                  [&](const auto& backend) { return !wanted(options.loops, backend->name()); });
  }

  void run() {
    std::printf("| type | pair | threads | reading, GB/s |");
    for (const auto& backend : backends_)
      std::printf(" %s |", std::string(backend->name()).c_str());
    std::printf("\n|---|---|---|---|");
    for (std::size_t i = 0; i < backends_.size(); ++i) std::printf("---|");
    std::printf("\n");
    for (const std::string& name : options_.types) {
      const std::optional<DType> type = dtype_from_name(name);
      if (!type) throw CLI::ValidationError("--type", name + " is no type");
      for (const auto& [kind, label] : kKinds) {
        if (wanted(options_.pairs, label)) run_kind(*type, kind, name + " | " + label);
      }
    }
  }

 private:
  void run_kind(DType type, Kind kind, const std::string& label) {
    const Pairs pairs = make_pairs(type, options_.kib << 10, kind);
    const unsigned all = std::max(1u, std::thread::hardware_concurrency());
    std::map<std::pair<std::size_t, unsigned>, std::vector<double>> seconds;
    std::map<unsigned, std::vector<double>> reading;
    for (unsigned round = 0; round < options_.rounds; ++round) {
      for (const unsigned threads : {1u, all}) {
        reading[threads].push_back(time_reading(pairs, threads));
        for (std::size_t i = 0; i < backends_.size(); ++i) {
          if (threads > 1 && i > 0) continue;  // all threads: the fastest loop
          seconds[{i, threads}].push_back(time_backend(*backends_[i], pairs, threads));
        }
      }
    }
    const double bytes = 2 * static_cast<double>(options_.kib << 10) * 1e-9;
    for (const auto& [threads, times] : reading) {
      const double limit = median(times);
      std::printf("| %s | %u | %.1f |", label.c_str(), threads, bytes / limit);
      for (std::size_t i = 0; i < backends_.size(); ++i) {
        const auto measured = seconds.find({i, threads});
        if (measured == seconds.end()) {
          std::printf(" |");
        } else {
          std::printf(" %.2f |", limit / median(measured->second));
        }
      }
      std::printf("\n");
    }
    std::fflush(stdout);
  }

  Options options_;
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace
}  // namespace ttrace

int main(int argc, char** argv) {
  ttrace::Options options;
  CLI::App app("speed of the comparison of tensors in memory");
  app.add_option("--kib", options.kib, "KiB of a side (65536)");
  app.add_option("--rounds", options.rounds, "measurements of each (9)");
  app.add_option("--type", options.types, "only these types");
  app.add_option("--loop", options.loops, "only these loops: cpu-AVX3, cpu-AVX2, cpu-SSE4, scalar");
  app.add_option("--pair", options.pairs, "only these pairs: equal, \"one differs\", ...");
  CLI11_PARSE(app, argc, argv);
  ttrace::Bench(options).run();
  return 0;
}
