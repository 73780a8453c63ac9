// SPDX-License-Identifier: Apache-2.0
// See table.hpp.
#include "tolerance/table.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "diff/backend.hpp"
#include "diff/noise.hpp"
#include "diff/prepared.hpp"
#include "diff/stream.hpp"
#include "libttrace/core/trouble.hpp"
#include "tolerance/bound.hpp"

namespace ttrace {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "ttrace-limits";
constexpr int kVersion = 1;
constexpr double kNormFactor = 3;       // times the noise
constexpr double kScalarFactor = 6;     // a single number may be near in some runs by chance
constexpr double kLeastEpsilons = 0.1;  // noise is never taken for less than this
constexpr double kLossEpsilons = 16;
constexpr double kFloat32Epsilon = 0x1p-23;
constexpr std::uint64_t kFewElements = 64;

Trouble unreadable(const std::filesystem::path& path, const std::string& why) {
  return {"--limits", path.string(), why + "; ttrace-tolerance writes such files"};
}

std::vector<HealthyScore> healthy_from(const json& list) {
  std::vector<HealthyScore> healthy;
  for (std::size_t kind = 0; kind < kStatisticKinds; ++kind) {
    const auto name = std::string(name_of(static_cast<StatisticKind>(kind)));
    if (list.contains(name)) {
      healthy.push_back({static_cast<StatisticKind>(kind), list.at(name).get<double>()});
    }
  }
  return healthy;
}

}  // namespace

LimitsTable read_limits(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw unreadable(path, "cannot be read");
  const json document = json::parse(file, nullptr, false);
  if (document.is_discarded())
    throw unreadable(path, "is no JSON: give what ttrace-tolerance -o wrote");
  try {
    if (document.at("format") != kFormat) throw unreadable(path, "is no file of limits");
    if (document.at("version") != kVersion) throw unreadable(path, "is of another version");
    LimitsTable table;
    table.reference = document.at("reference").at("trace").get<std::string>();
    table.reference_run_id = document.at("reference").at("run_id").get<std::string>();
    for (const json& run : document.at("perturbed")) {
      table.runs.push_back(
          {run.at("trace").get<std::string>(), run.at("run_id").get<std::string>(), std::nullopt});
      if (!run.at("seed").is_null()) table.runs.back().seed = run.at("seed").get<std::uint64_t>();
    }
    for (const auto& [key, entry] : document.at("tensors").items()) {
      table.tensors[key] = {entry.at("error").get<double>(), entry.at("factor").get<double>()};
    }
    table.healthy = healthy_from(document.at("healthy"));
    table.calibrated_on = document.at("calibrated_on").get<std::vector<std::string>>();
    return table;
  } catch (const json::exception& error) {
    throw unreadable(path, error.what());
  }
}

void write_limits(const LimitsTable& table, const std::filesystem::path& path) {
  json document = {{"format", kFormat},
                   {"version", kVersion},
                   {"reference", {{"trace", table.reference}, {"run_id", table.reference_run_id}}},
                   {"perturbed", json::array()},
                   {"tensors", json::object()},
                   {"healthy", json::object()},
                   {"calibrated_on", table.calibrated_on}};
  for (const PerturbedRun& run : table.runs) {
    document["perturbed"].push_back({{"trace", run.path},
                                     {"run_id", run.run_id},
                                     {"seed", run.seed ? json(*run.seed) : json(nullptr)}});
  }
  for (const auto& [key, entry] : table.tensors) {
    document["tensors"][key] = {{"error", entry.error}, {"factor", entry.factor}};
  }
  for (const HealthyScore& score : table.healthy) {
    document["healthy"][std::string(name_of(score.kind))] = score.score;
  }
  std::ofstream file(path, std::ios::binary);
  file << document.dump(1) << '\n';
  file.close();
  if (!file) throw Trouble("write", path.string(), "failed; is there such a folder, and space?");
}

void add_noise(LimitsTable& table, const Trace& reference, const Trace& perturbed) {
  const auto backend = make_cpu_backend();
  std::size_t common = 0;
  const std::vector<std::int64_t> theirs = perturbed.iterations();
  for (const std::int64_t iteration : reference.iterations()) {
    if (std::count(theirs.begin(), theirs.end(), iteration) == 0) continue;
    Prepared prepared;
    prepare(prepared, reference, perturbed, iteration, {}, "");
    for (const Pair& pair : prepared.alignment.pairs) {
      if (!is_floating(pair.reference->dtype)) continue;
      const PairMetrics metrics = measure(*pair.reference, *pair.candidate, *backend);
      if (metrics.evidence == Evidence::nothing || metrics.evidence == Evidence::norms) continue;
      const Sums& sums = metrics.total.sums;
      const double squares = sums.reference_squares > 0 ? sums.reference_squares : 1;
      NoiseEntry& entry = table.tensors[to_string(pair.key)];
      entry.error += sums.error_squares / squares;
      entry.factor += std::pow(sums.error_products / squares, 2);
      ++common;
    }
  }
  if (common == 0) {
    throw Trouble("compare", perturbed.path().string(),
                  "has no tensor in common with " + reference.path().string());
  }
}

void finish_noise(LimitsTable& table) {
  const double runs = static_cast<double>(table.runs.size());
  for (auto& [key, entry] : table.tensors) {
    entry.error = std::sqrt(entry.error / runs);
    entry.factor = std::sqrt(entry.factor / runs);
  }
}

Limits envelope_limits(const Alignment& alignment, const Flow& flow, const LimitsTable& table) {
  Limits limits = bound_limits(alignment, flow, std::nullopt);
  limits.mode = "envelope";
  limits.weak = false;
  for (std::size_t i = 0; i < alignment.pairs.size(); ++i) {
    const Pair& pair = alignment.pairs[i];
    TensorLimit& limit = limits.tensors[i];
    if (!is_floating(pair.reference->dtype)) continue;
    if (pair.key.phase == Phase::param && pair.key.iteration == 0) continue;  // equal
    // An update is judged relative to itself, which is as uncertain as its gradient.
    Key noisy = pair.key;
    if (limit.rule == Rule::update) {
      noisy.phase = Phase::grad;
      noisy.slot = "reduced";
    }
    const auto entry = table.tensors.find(to_string(noisy));
    if (entry == table.tensors.end()) continue;  // the bound is all that is known
    if (limit.rule == Rule::equal) limit.rule = Rule::relative;
    const std::uint64_t count = element_count(pair.reference->shape);
    const double least = (count < kFewElements ? 1 : kLeastEpsilons) * limit.own_epsilon;
    limit.relative = kNormFactor * std::max(entry->second.error, least);
    if (count == 1) {
      limit.relative = std::max(kScalarFactor * entry->second.error,
                                kLossEpsilons * std::min(limit.own_epsilon, kFloat32Epsilon));
    }
  }
  return limits;
}

}  // namespace ttrace
