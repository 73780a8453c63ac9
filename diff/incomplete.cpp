// SPDX-License-Identifier: Apache-2.0
// What is wrong with a trace as a whole. See compare.hpp.
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "diff/compare.hpp"

namespace ttrace {
namespace {

// Whether the capture was told to leave ranks out: then their absence is no defect.
bool ranks_were_chosen(const Trace& trace) {
  const auto json = nlohmann::json::parse(trace.json(), nullptr, false);
  if (!json.is_object() || !json.contains("options")) return false;
  const auto& options = json["options"];
  if (!options.is_object() || !options.contains("ranks")) return false;
  const auto& ranks = options["ranks"];
  return !(ranks.is_null() || (ranks.is_string() && ranks == "") ||
           (ranks.is_string() && ranks == "all") || (ranks.is_array() && ranks.empty()));
}

std::string list(const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

class Examination {
 public:
  Examination(const Trace& trace, const std::string& side, std::int64_t iteration)
      : trace_(trace), side_(side), iteration_(iteration) {}

  std::vector<Finding> run() {
    absent_ranks();
    std::vector<std::int32_t> without, died;
    for (const RankInfo& rank : trace_.ranks()) {
      const SegmentReader* segment = trace_.segment(rank.rank, iteration_);
      if (segment == nullptr) {
        without.push_back(rank.rank);
      } else if (!segment->info().complete) {
        died.push_back(rank.rank);
      }
      if (rank.degraded) degraded(rank);
      for (const Event& event : rank.events) {
        if (event.what != "exception") continue;
        if (event.where != "iteration " + std::to_string(iteration_)) continue;
        add({rank.rank}, "ended in iteration " + std::to_string(iteration_) + " by " + event.why);
      }
    }
    add(without, "have no segment of iteration " + std::to_string(iteration_));
    add(died, "ended before iteration " + std::to_string(iteration_) + " did");
    return std::move(findings_);
  }

 private:
  void absent_ranks() {
    if (ranks_were_chosen(trace_)) return;
    std::set<std::int32_t> present;
    for (const RankInfo& rank : trace_.ranks()) present.insert(rank.rank);
    std::vector<std::int32_t> absent;
    for (std::int32_t rank = 0; rank < trace_.world_size(); ++rank) {
      if (present.count(rank) == 0) absent.push_back(rank);
    }
    add(absent, "of " + std::to_string(trace_.world_size()) +
                    (absent.size() == 1 ? " is not in the trace" : " are not in the trace"));
  }

  void degraded(const RankInfo& rank) {
    add({rank.rank}, "was degraded while it was captured");
    for (const Event& event : rank.events) {
      findings_.back().evidence.emplace_back(event.what, event.where + ": " + event.why);
    }
  }

  void add(const std::vector<std::int32_t>& ranks, const std::string& what) {
    if (ranks.empty()) return;
    Finding finding;
    finding.kind = FindingKind::incomplete_trace;
    finding.key.iteration = iteration_;
    finding.message = "the " + side_ + " is incomplete: " + list(ranks) + " " + what;
    finding.ranks = ranks;
    finding.evidence = {{"trace", trace_.path().string()}};
    findings_.push_back(std::move(finding));
  }

  const Trace& trace_;
  std::string side_;
  std::int64_t iteration_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> circumstances(const Trace& trace) {
  std::vector<std::pair<std::string, std::string>> found;
  const auto json = nlohmann::json::parse(trace.json(), nullptr, false);
  if (!json.is_object()) return found;
  const auto code = json.find("exit_code");
  if (code != json.end() && code->is_number_integer() && *code != 0) {
    found.emplace_back("its command", "ended with exit code " + code->dump());
  }
  const auto filters = nlohmann::json::json_pointer("/options/filters");
  if (json.contains(filters) && json.at(filters).is_array() && !json.at(filters).empty()) {
    found.emplace_back("captured with", "--filter " + json.at(filters).dump());
  }
  return found;
}

std::string unrecorded_update(const Trace& trace, const std::string& side) {
  for (const RankInfo& rank : trace.ranks()) {
    for (const Event& event : rank.events) {
      if (event.where != "optimizer") continue;
      return "the optimizer of rank " + std::to_string(rank.rank) + " of the " + side + ": " +
             event.why;
    }
  }
  return "";
}

std::vector<Finding> trace_findings(const Trace& trace, const std::string& side,
                                    std::int64_t iteration) {
  return Examination(trace, side, iteration).run();
}

}  // namespace ttrace
