// SPDX-License-Identifier: Apache-2.0
// The report for programs: docs/report.md is its schema and changes with it.
#include <array>
#include <nlohmann/json.hpp>

#include "diff/judge.hpp"
#include "diff/report.hpp"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportVersion = 1;

Json document(const char* verdict) {
  return {{"format", "ttrace-report"}, {"version", kReportVersion}, {"verdict", verdict}};
}

// Members that say where in the trace something is; all of the trace when there is no module.
Json place_of(const Key& key) {
  const bool whole = key.module.empty();
  return {{"key", whole ? Json(nullptr) : Json(to_string(key))},
          {"module", key.module},
          {"phase", whole ? "" : name_of(key.phase)},
          {"slot", key.slot}};
}

Json maker_json(const OrderedFinding& entry) {
  if (!entry.maker) return nullptr;
  const Maker& maker = *entry.maker;
  Json json = {{"modules", maker.modules}, {"recorded", maker.recorded}};
  json["agrees"] = maker.agrees ? Json(to_string(*maker.agrees)) : Json(nullptr);
  return json;
}

Json finding_json(const OrderedFinding& entry) {
  const Finding& finding = entry.finding;
  Json json = {{"kind", name_of(finding.kind)}};
  json.update(place_of(finding.key));
  json["score"] = finding.score;
  json["message"] = finding.message;
  json["ranks"] = finding.ranks;
  json["evidence"] = Json::object();
  for (const auto& [name, value] : finding.evidence) json["evidence"][name] = value;
  json["causes"] = Json::array();
  for (const Cause& cause : entry.causes) {
    json["causes"].push_back(
        {{"what", cause.what}, {"evidence", cause.evidence}, {"guess", cause.guess}});
  }
  json["inherited"] = entry.inherited;
  json["computed_by"] = maker_json(entry);
  return json;
}

Json first_json(const Report& report) {
  if (report.findings.empty()) return nullptr;
  const Finding& finding = report.findings.front().finding;
  Json json = place_of(finding.key);
  json["score"] = finding.score;
  json["kind"] = name_of(finding.kind);
  json["message"] = finding.message;
  json["computed_by"] = maker_json(report.findings.front());
  for (const std::string& module : {finding.key.module, module_of(finding.key)}) {
    const auto source = report.sources.find(module);
    if (source == report.sources.end()) continue;
    json["class"] = source->second.class_name;
    json["location"] = source->second.location;
    break;
  }
  return json;
}

Json coverage_json(const Report& report) {
  Json json = {{"compared", report.compared()}, {"expected", report.expected()}};
  json["phases"] = Json::object();
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    const PhaseReport& phase = report.phases[i];
    if (phase.expected == 0) continue;
    Json entry = {{"compared", phase.compared},
                  {"expected", phase.expected},
                  {"bit_equal", phase.equal},
                  {"smallest_limit", phase.smallest_limit},
                  {"largest_limit", phase.largest_limit},
                  {"largest_score", phase.largest_score}};
    entry["closest"] = phase.closest ? Json(to_string(*phase.closest)) : Json(nullptr);
    json["phases"][std::string(name_of(static_cast<Phase>(i)))] = std::move(entry);
  }
  json["not_captured"] = Json::array();
  for (const NotCaptured& entry : report.not_captured) {
    json["not_captured"].push_back({{"phase", name_of(entry.key.phase)},
                                    {"module", entry.key.module},
                                    {"slot", entry.key.slot},
                                    {"reason", entry.reason}});
  }
  return json;
}

Json seeds_json(const Report& report) {
  Json json = Json::array();
  for (const auto& [microbatch, seed] : report.seeds) {
    json.push_back({{"microbatch", microbatch},
                    {"factor", seed.factor},
                    {"measured", seed.measured},
                    {"explained", seed.explained},
                    {"meaning", seed.meaning},
                    {"tensors", seed.tensors}});
  }
  return json;
}

Json layouts_json(const Report& report) {
  Json json = Json::array();
  for (const LayoutLine& line : report.layouts) {
    json.push_back({{"tensors", line.name},
                    {"layout", line.layout},
                    {"reason", line.reason},
                    {"count", line.tensors},
                    {"assumed", line.assumed}});
  }
  return json;
}

// Where only the norm is judged, a single element must carry all of an error that would be seen.
Json resolution_json(const TensorLine& line) {
  if (!line.compared) return nullptr;
  if (!line.resolution) return {{"norm", line.limit}};
  const Resolution& resolution = *line.resolution;
  Json json = {{"norm", resolution.norm}, {"element", resolution.element}};
  if (resolution.factor) json["factor"] = *resolution.factor;
  if (resolution.shard) json["shard"] = *resolution.shard;
  return json;
}

Json tensors_json(const Report& report) {
  Json json = Json::array();
  for (const TensorLine& line : report.tensors) {
    json.push_back({{"key", to_string(line.key)},
                    {"compared", line.compared},
                    {"bit_equal", line.equal},
                    {"error", line.error},
                    {"limit", line.limit},
                    {"score", line.score},
                    {"statistic", line.statistic.empty() ? "norm" : line.statistic},
                    {"resolution", resolution_json(line)},
                    {"note", line.note}});
  }
  return json;
}

Json jump_json(const LaterIteration::Jump& jump) {
  Json json = place_of(jump.key);
  json["error"] = jump.error;
  json["score"] = jump.score;
  json["before"] = {{"tensors", jump.before},
                    {"largest_error", jump.largest_before},
                    {"of", jump.largest_before_name}};
  return json;
}

Json later_json(const Report& report) {
  Json json = Json::array();
  for (const LaterIteration& later : report.later) {
    Json entry = {{"iteration", later.iteration}, {"largest_errors", Json::object()}};
    for (const auto& [phase, largest] : later.largest) {
      entry["largest_errors"][std::string(name_of(phase))] = {{"error", largest.error},
                                                              {"key", largest.key}};
    }
    entry["suspicious"] = later.jump ? jump_json(*later.jump) : Json(nullptr);
    json.push_back(std::move(entry));
  }
  return json;
}

// Names of modules come from programs and need not be UTF-8.
std::string dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string report_as_json(const Report& report) {
  constexpr std::array kVerdicts = {"same", "differs", "trouble"};
  Json json = document(kVerdicts[static_cast<std::size_t>(report.verdict())]);
  if (report.verdict() == Verdict::trouble) json["message"] = report.untested();
  json["reference"] = report.reference;
  json["candidate"] = report.candidate;
  json["iteration"] = report.iteration;
  json["iterations"] = report.iterations;
  json["mode"] = report.mode;
  json["weak"] = report.weak;
  json["backend"] = report.backend;
  json["first"] = first_json(report);
  json["coverage"] = coverage_json(report);
  json["findings"] = Json::array();
  for (const OrderedFinding& entry : report.findings)
    json["findings"].push_back(finding_json(entry));
  json["inherited"] = report.inherited();
  if (report.drift > 0) json["drift"] = report.drift;
  json["gradient_seeds"] = seeds_json(report);
  json["layouts"] = layouts_json(report);
  json["microbatches_by_content"] = report.by_content;
  json["counts"] = {{"data_flow_edges", report.edges},
                    {"collectives_skipped", report.skipped},
                    {"update_elements_left_out", report.excluded},
                    {"nan_on_both_sides", report.nan_on_both}};
  json["later_iterations"] = later_json(report);
  json["tensors"] = tensors_json(report);
  return dump(json);
}

std::string trouble_as_json(const std::string& message) {
  Json json = document("trouble");
  json["message"] = message;
  json["first"] = nullptr;
  json["coverage"] = {{"compared", 0},
                      {"expected", 0},
                      {"phases", Json::object()},
                      {"not_captured", Json::array()}};
  json["findings"] = Json::array();
  return dump(json);
}

}  // namespace ttrace
