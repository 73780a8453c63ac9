// SPDX-License-Identifier: Apache-2.0
// Limits as a file (limits.json, docs/tolerance.md): how far runs of the reference's program that
// were perturbed by single units in the last place came from the reference, tensor by tensor, and
// how much wider than usual the statistics' limits must be for the runs that were calibrated on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diff/align.hpp"
#include "diff/flow.hpp"
#include "diff/limits.hpp"
#include "diff/statistics_limits.hpp"

namespace ttrace {

struct NoiseEntry {
  double error = 0;   // RMS over the runs of |perturbed - reference| / |reference| (or absolute)
  double factor = 0;  // RMS over the runs of the factor's deviation from 1
};

struct PerturbedRun {
  std::string path;
  std::string run_id;
  std::optional<std::uint64_t> seed;
};

struct LimitsTable {
  std::string reference;         // path
  std::string reference_run_id;  // "": the table has no noise, only widened statistics
  std::vector<PerturbedRun> runs;
  std::map<std::string, NoiseEntry> tensors;  // by printed key
  std::vector<HealthyScore> healthy;          // largest scores of runs that were calibrated on
  std::vector<std::string> calibrated_on;
};

// Throw Trouble that names the file.
[[nodiscard]] LimitsTable read_limits(const std::filesystem::path& path);
void write_limits(const LimitsTable& table, const std::filesystem::path& path);

// Adds what one perturbed run shows; call finish_noise after the last.
void add_noise(LimitsTable& table, const Trace& reference, const Trace& perturbed);
void finish_noise(LimitsTable& table);

// Limits of an end-to-end comparison under measured noise: three times it.
[[nodiscard]] Limits envelope_limits(const Alignment& alignment, const Flow& flow,
                                     const LimitsTable& table);

}  // namespace ttrace
