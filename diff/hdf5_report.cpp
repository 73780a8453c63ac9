// SPDX-License-Identifier: Apache-2.0
// See hdf5_report.hpp; docs/report.md describes the documents.
#include "diff/hdf5_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "diff/judge.hpp"
#include "libttrace/junit.hpp"
#include "libttrace/words.hpp"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

std::string colored(const std::string& text, const char* code, const TextOptions& options) {
  return options.color ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
}

// Names and texts may have control characters, which a terminal would obey.
std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool high = byte == 0xc2 && at + 1 < text.size() &&  // U+0080 to U+009f
                      (static_cast<unsigned char>(text[at + 1]) & 0xe0u) == 0x80u;
    if (byte >= 0x20 && byte != 0x7f && !high) {
      out += text[at];
      continue;
    }
    const unsigned code = high ? static_cast<unsigned char>(text[++at]) : byte;
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, code == '\n' ? "\\n" : "\\x%02x", code);
    out += escaped;
  }
  return out;
}

std::string name_of(const Hdf5Finding& finding) {
  return finding.path + (finding.attribute.empty() ? "" : " @" + finding.attribute);
}

// "1: 3, 2: 17": how many elements are off by how many spacings of their type.
std::string ulp_text(const DatasetLine& line) {
  std::string text;
  for (int bucket = 1; bucket < kUlpBuckets; ++bucket) {
    const std::uint64_t count = line.numbers.total.ulp[bucket];
    if (count == 0) continue;
    const std::uint64_t from = std::uint64_t{1} << (bucket - 1);
    text += (text.empty() ? "" : ", ") + grouped(count) + " by " +
            (bucket == 1 ? "1" : std::to_string(from)) +
            (bucket == kUlpBuckets - 1 ? " or more"
             : bucket == 1             ? ""
                                       : ".." + std::to_string(2 * from - 1));
  }
  if (text.empty()) return text;
  return text + (is_floating(*line.compared_as) ? " spacings" : "");
}

std::string contents(const Hdf5Report& report) {
  return plural(report.datasets.size(), "dataset") + ", " + plural(report.groups, "group") + ", " +
         plural(report.attributes, "attribute");
}

// Within limits much can hide, so it is said.
std::string unequal_text(const Hdf5Report& report) {
  std::uint64_t unequal = 0;
  const DatasetLine* furthest = nullptr;
  for (const DatasetLine& line : report.datasets) {
    if (line.numbers.total.unequal == 0) continue;
    ++unequal;
    if (furthest == nullptr || line.relative_error > furthest->relative_error) furthest = &line;
  }
  if (furthest == nullptr) return "  all datasets are equal";
  const Metrics& total = furthest->numbers.total;
  return "  " + plural(unequal, "dataset") + " not equal, the furthest " +
         printable(furthest->path) + ": " + grouped(total.unequal) + " of " + grouped(total.count) +
         " elements, relative error " + short_number(furthest->relative_error) +
         ", largest error " + short_number(total.max_error) + " (" + furthest->worst_values + ")";
}

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json dataset_json(const DatasetLine& line) {
  const Metrics& total = line.numbers.total;
  Json json = {{"path", line.path},
               {"differs", line.differs},
               {"reference_type", *line.reference_type},
               {"candidate_type", *line.candidate_type},
               {"shape", line.extent.null ? Json(nullptr) : Json(line.extent.shape)},
               {"elements", total.count},
               {"unequal", total.unequal}};
  json["compared_as"] = line.compared_as ? Json(ttrace::name_of(*line.compared_as)) : Json(nullptr);
  if (line.numbers.bits_only > 0) json["other_bits"] = line.numbers.bits_only;
  if (total.unequal == 0) return json;
  json["first"] = {{"index", index_text(total.first_unequal, line.extent.shape)},
                   {"values", line.first_values}};
  if (!line.compared_as) return json;
  const bool finite = std::isfinite(line.relative_error);
  json["relative_error"] = finite ? Json(line.relative_error) : Json(nullptr);
  json["largest_error"] = total.max_error;
  if (total.worst != kNoIndex) {
    json["largest"] = {{"index", index_text(total.worst, line.extent.shape)},
                       {"values", line.worst_values}};
  }
  json["largest_relative"] = total.max_relative;
  json["zero_references"] = total.zero_reference;
  json["nonfinite_mismatch"] = total.nonfinite_mismatch;
  json["ulp_histogram"] = Json(total.ulp);
  return json;
}

Json findings_json(const std::vector<Hdf5Finding>& findings) {
  Json json = Json::array();
  for (const Hdf5Finding& finding : findings) {
    json.push_back(
        {{"kind", finding.kind},
         {"path", finding.path},
         {"attribute", finding.attribute.empty() ? Json(nullptr) : Json(finding.attribute)},
         {"message", finding.message}});
  }
  return json;
}

std::string dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string group_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

std::string failures(const std::vector<const Hdf5Finding*>& findings) {
  std::string text;
  for (const Hdf5Finding* finding : findings) {
    const std::string message = finding->attribute.empty()
                                    ? finding->message
                                    : "attribute " + finding->attribute + ": " + finding->message;
    text += junit::tag("failure", {{"type", finding->kind}, {"message", message}}, "/>\n");
  }
  return text;
}

}  // namespace

std::string hdf5_report_as_text(const Hdf5Report& report, const TextOptions& options) {
  std::string text;
  const auto line = [&text](const std::string& words) { text += words + "\n"; };
  if (report.same()) {
    line(colored("same", "1;32", options) +
         (report.limits.any() ? ", within " + limits_text(report.limits) + ": " : ": ") +
         contents(report));
    if (report.limits.any()) line(unequal_text(report));
  } else {
    line(colored("differs", "1;31", options) + ": " + plural(report.findings.size(), "difference") +
         " in " + contents(report));
  }
  std::map<std::string, const DatasetLine*> lines;
  for (const DatasetLine& entry : report.datasets) lines[entry.path] = &entry;
  const std::size_t top = options.verbose ? report.findings.size() : options.top;
  for (std::size_t i = 0; i < report.findings.size() && i < top; ++i) {
    const Hdf5Finding& finding = report.findings[i];
    line("  " + printable(name_of(finding) + ": " + finding.message));
    const auto of = lines.find(finding.path);
    if (of == lines.end() || !finding.attribute.empty() || !of->second->compared_as) continue;
    const std::string ulp = ulp_text(*of->second);
    if (!ulp.empty()) line("      off: " + ulp);
  }
  if (report.findings.size() > top) {
    line("  and " + grouped(report.findings.size() - top) + " more (--top, --json)");
  }
  for (std::size_t i = 0; i < report.notes.size(); ++i) {
    if (i == options.top && !options.verbose) {
      line("  and " + plural(report.notes.size() - i, "more note") + " (-v, --json)");
      break;
    }
    line("note: " + printable(name_of(report.notes[i]) + ": " + report.notes[i].message));
  }
  if (!options.verbose) return text;
  for (const DatasetLine& entry : report.datasets) {
    line((entry.differs                     ? "differs  "
          : entry.numbers.total.unequal > 0 ? "within   "
                                            : "equal    ") +
         printable(entry.path) + "  " + printable(*entry.reference_type) +
         (entry.numbers.total.unequal > 0 && entry.compared_as
              ? "  relative error " + short_number(entry.relative_error)
              : ""));
  }
  return text;
}

std::string hdf5_report_as_json(const Hdf5Report& report) {
  Json json = {{"format", "ttrace-hdf5-report"},
               {"version", kVersion},
               {"verdict", report.same() ? "same" : "differs"},
               {"reference", report.reference},
               {"candidate", report.candidate}};
  json["limit"] = number_or_null(report.limits.norm);
  json["element_relative_limit"] = number_or_null(report.limits.element_relative);
  json["element_absolute_limit"] = number_or_null(report.limits.element_absolute);
  json["filter"] = report.filter.empty() ? Json(nullptr) : Json(report.filter);
  json["backend"] = report.backend;
  json["compared"] = {{"datasets", report.datasets.size()},
                      {"groups", report.groups},
                      {"attributes", report.attributes},
                      {"types", report.types},
                      {"links", report.links},
                      {"bytes", report.bytes}};
  json["findings"] = findings_json(report.findings);
  json["notes"] = findings_json(report.notes);
  json["datasets"] = Json::array();
  for (const DatasetLine& line : report.datasets) json["datasets"].push_back(dataset_json(line));
  return dump(json);
}

std::string hdf5_trouble_as_json(const std::string& message) {
  return dump({{"format", "ttrace-hdf5-report"},
               {"version", kVersion},
               {"verdict", "trouble"},
               {"message", message},
               {"findings", Json::array()}});
}

std::string hdf5_report_as_junit(const Hdf5Report& report) {
  std::map<std::string, std::vector<const Hdf5Finding*>> by_path;
  for (const Hdf5Finding& finding : report.findings) by_path[finding.path].push_back(&finding);
  junit::Suite suite{"hdf5",
                     {{"reference", report.reference},
                      {"candidate", report.candidate},
                      {"limit", report.limits.any() ? limits_text(report.limits) : "equal values"},
                      {"filter", report.filter},
                      {"backend", report.backend}},
                     {}};
  for (const DatasetLine& line : report.datasets) {
    junit::Testcase testcase{group_of(line.path), line.path};
    const auto found = by_path.find(line.path);
    if (found != by_path.end()) {
      testcase.result = junit::Result::failed;
      testcase.body = failures(found->second);
      by_path.erase(found);
    }
    suite.cases.push_back(std::move(testcase));
  }
  for (const auto& [path, findings] : by_path) {
    suite.cases.push_back({group_of(path), path, junit::Result::failed, failures(findings)});
  }
  if (suite.cases.empty()) suite.cases.push_back({"/", "attributes"});
  return junit::print({suite});
}

}  // namespace ttrace
