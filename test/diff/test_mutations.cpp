// SPDX-License-Identifier: Apache-2.0
// Each layout of the field, healthy and then broken at random: what is wrong must be told, by the
// proof of merging or by the comparison with the reference, unless the merged tensors are equal to
// the known ones bit for bit, which is checked element by element here.
#include <cstdlib>
#include <cstring>

#include "diff/compare.hpp"
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"
#include "test/diff/mutations.hpp"
#include "tolerance/bound.hpp"
#include "tools/merge_proof.hpp"

namespace ttrace::testing {
namespace {

// Of each layout, with each kind of declaration; more are TTRACE_MUTATIONS=N.
const std::uint64_t mutations_of_layout = [] {
  const char* const asked = std::getenv("TTRACE_MUTATIONS");
  return asked == nullptr ? 24 : std::strtoull(asked, nullptr, 10);
}();

// Thousands of small files: in memory where there is such a folder.
const bool in_memory = [] {
  return std::filesystem::is_directory("/dev/shm") && setenv("TMPDIR", "/dev/shm", 0) == 0;
}();

// What is known of a tensor, as bytes.
std::vector<std::byte> bytes_of(const Key& key, const Tensor& tensor) {
  std::vector<std::byte> bytes;
  const auto append = [&bytes](auto value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  };
  for (const float value : tensor.values) {
    if (is_whole_numbers(key)) {
      append(static_cast<std::int64_t>(value));
    } else {
      append(value);
    }
  }
  return bytes;
}

// The first tensor that is not the known one; "" when all are, and there are no others.
std::string first_difference(const HealthyRun& healthy, const LogicalTensors& merged) {
  for (const auto& [key, tensor] : merged) {
    if (healthy.logical().count(key) == 0) return to_string(key) + " is not known";
  }
  for (const auto& [key, known] : healthy.logical()) {
    const auto found = merged.find(key);
    if (found == merged.end()) return to_string(key) + " is missing";
    const LogicalTensor& tensor = found->second;
    if (!tensor.proved()) return to_string(key) + ": " + tensor.problems.front().message;
    const DType type = field_of(key).dtype;
    if (tensor.dtype != type) return to_string(key) + " has another type";
    if (tensor.shape != known.shape) return to_string(key) + " has another shape";
    const std::vector<std::byte> truth = bytes_of(key, known);
    std::vector<std::byte> bytes(truth.size());
    try {
      read_box(tensor, {Shape(known.shape.size(), 0), known.shape}, bytes.data());
    } catch (const Trouble& trouble) {
      return trouble.what();
    }
    if (bytes != truth) return to_string(key) + " has other values";
  }
  return "";
}

bool has_bytes(const LogicalTensor& tensor) {
  return std::all_of(tensor.shards.begin(), tensor.shards.end(), [](const PlacedShard& placed) {
    return placed.copy || placed.shard.record->kind == RecordKind::full;
  });
}

struct Answer {
  std::string told;        // the first thing that is said against the trace, "" when nothing is
  std::string difference;  // of the merged tensors, when nothing is told
};

Answer merge(const HealthyRun& healthy, const std::filesystem::path& path, const Trace* like) {
  try {
    const Trace trace = Trace::open(path);
    const std::vector<Finding> missing = missing_ranks(trace);
    if (!missing.empty()) return {missing.front().message, ""};
    const MergedIteration merged = merge_iteration(trace, like, 0, {});
    if (!merged.problems.empty()) return {merged.problems.front().message, ""};
    for (const auto& [key, tensor] : merged.tensors) {
      if (!has_bytes(tensor)) return {to_string(key) + " was kept without bytes", ""};
    }
    return {"", first_difference(healthy, merged.tensors)};
  } catch (const Trouble& trouble) {
    return {trouble.what(), ""};
  }
}

std::string compare_with(const Trace& reference, const std::filesystem::path& path) {
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt);
  };
  try {
    const Report report = compare(reference, Trace::open(path), *make_cpu_backend(), options);
    if (report.same()) return "";
    return report.findings.empty() ? report.untested() : report.findings.front().finding.message;
  } catch (const Trouble& trouble) {
    return trouble.what();
  }
}

struct Tally {
  std::uint64_t proved = 0;    // told by the proof
  std::uint64_t compared = 0;  // told by the comparison only
  std::uint64_t equal = 0;     // nothing is told, and nothing is wrong
};

// Without declarations and without a reference only copies are known as such, so that the proof
// alone is not asked then.
void check(HealthyRun& healthy, const Trace& reference, const RunOfRanks& changed,
           Declared declared, Expected expected, Tally& tally) {
  const std::filesystem::path path = healthy.write(changed);
  const Answer proof = merge(healthy, path, nullptr);
  const std::string comparison = compare_with(reference, path);
  CAPTURE(path, proof.told, proof.difference, comparison);
  if (declared != Declared::nothing) {
    if (expected == Expected::told) CHECK(proof.told != "");
    if (proof.told.empty() && comparison.empty()) CHECK(proof.difference == "");
  }
  if (comparison.empty()) {
    const Answer like = merge(healthy, path, &reference);
    CAPTURE(like.told);
    CHECK(like.difference == "");
  }
  (!proof.told.empty() ? tally.proved : !comparison.empty() ? tally.compared : tally.equal) += 1;
  std::filesystem::remove_all(path);
}

void check_healthy(HealthyRun& healthy, const Trace& reference, Declared declared) {
  const std::filesystem::path path = healthy.write(healthy.run());
  if (declared != Declared::nothing) {
    const Answer proof = merge(healthy, path, nullptr);
    CHECK(proof.told == "");
    CHECK(proof.difference == "");
  }
  const Answer like = merge(healthy, path, &reference);
  CHECK(like.told == "");
  CHECK(like.difference == "");
  REQUIRE(compare_with(reference, path) == "");
}

void mutate(const KnownLayout& layout, Declared declared, unsigned seed) {
  HealthyRun healthy(layout, declared, seed);
  const Trace reference = healthy.reference();
  check_healthy(healthy, reference, declared);
  std::mt19937_64 random(seed);
  const std::vector<Mutation> all = mutations();
  Tally tally;
  for (std::uint64_t tried = 0; tried < mutations_of_layout;) {
    RunOfRanks changed = healthy.run();
    const Mutation& mutation = all[random() % all.size()];
    const Expected expected = mutation.apply(changed, random);
    if (expected == Expected::not_applicable) continue;
    ++tried;
    CAPTURE(layout.name, mutation.name, seed, tried);
    check(healthy, reference, changed, declared, expected, tally);
  }
  CHECK(tally.proved + tally.compared > 0);
  if (std::getenv("TTRACE_SHOW") == nullptr) return;
  std::printf("%s: %llu told by the proof, %llu by the comparison only, %llu equal\n",
              layout.name.c_str(), static_cast<unsigned long long>(tally.proved),
              static_cast<unsigned long long>(tally.compared),
              static_cast<unsigned long long>(tally.equal));
}

TEST_CASE("what is wrong with a trace is told, or its tensors are equal bit for bit") {
  unsigned seed = 0;
  for (const KnownLayout& layout : known_layouts()) {
    seed += 3;
    DYNAMIC_SECTION(layout.name) {
      mutate(layout, Declared::dims_and_shape, seed);
      mutate(layout, Declared::dims, seed + 1);
      mutate(layout, Declared::nothing, seed + 2);
    }
  }
}

}  // namespace
}  // namespace ttrace::testing
