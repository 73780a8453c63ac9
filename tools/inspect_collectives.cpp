// SPDX-License-Identifier: Apache-2.0
// See inspect_collectives.hpp.
#include "tools/inspect_collectives.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "libttrace/segment.hpp"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json flags_json(std::uint32_t flags) {
  Json list = Json::array();
  if ((flags & kCollectiveInPlace) != 0) list.push_back("in place");
  if ((flags & kCollectiveAsynchronous) != 0) list.push_back("asynchronous");
  if ((flags & kCollectiveInGroup) != 0) list.push_back("in a group call");
  if ((flags & kCollectiveFailed) != 0) list.push_back("failed");
  if ((flags & kCollectiveBegun) != 0) list.push_back("not ended");
  return list;
}

Json key_json(const SegmentReader& segment, std::int64_t row) {
  if (row == kNotRecorded) return {};
  return to_string(segment.records()[static_cast<std::size_t>(row)].key);
}

Json call_json(const SegmentReader& segment, const Collective& call) {
  return {{"function", call.function},
          {"reduction", text_or_null(call.reduction)},
          {"factor", call.factor},
          {"group", call.group},
          {"sequence", call.sequence},
          {"member", call.member},
          {"size", call.size},
          {"peer", call.peer < 0 ? Json() : Json(call.peer)},
          {"dtype", name_of(call.dtype)},
          {"count", call.count},
          {"input_splits", text_or_null(call.input_splits)},
          {"output_splits", text_or_null(call.output_splits)},
          {"module", text_or_null(call.module)},
          {"microbatch", call.microbatch < 0 ? Json() : Json(call.microbatch)},
          {"flags", flags_json(call.flags)},
          {"position", call.position},
          {"input", key_json(segment, call.input)},
          {"output", key_json(segment, call.output)}};
}

Json calls_of(const Trace& trace, const InspectFilter& filter) {
  Json calls = Json::array();
  for (const std::int64_t iteration : trace.iterations()) {
    if (filter.iteration && *filter.iteration != iteration) continue;
    for (const RankInfo& rank : trace.ranks()) {
      if (filter.rank && *filter.rank != rank.rank) continue;
      const SegmentReader* segment = trace.segment(rank.rank, iteration);
      if (segment == nullptr) continue;
      for (const Collective& call : segment->collectives()) {
        if (!filter.module.empty() && fnmatch(filter.module.c_str(), call.module.c_str(), 0) != 0)
          continue;
        calls.push_back({{"iteration", iteration}, {"rank", rank.rank}});
        calls.back().update(call_json(*segment, call));
      }
    }
  }
  return calls;
}

std::string text_of(const Json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

// "all_reduce sum", "reduce premul_sum x 0.5, root 3", "send to 1".
std::string what(const Json& call) {
  const std::string function = text_of(call["function"]);
  std::string text = function;
  if (!call["reduction"].is_null()) text += " " + text_of(call["reduction"]);
  if (call["factor"] != 1.0) text += " x " + call["factor"].dump();
  if (call["peer"].is_null()) return text;
  return text +
         (function == "send"   ? " to "
          : function == "recv" ? " from "
                               : ", root ") +
         call["peer"].dump();
}

std::string amount(const Json& call) {
  std::string text = text_of(call["dtype"]) + " x " + call["count"].dump();
  if (!call["input_splits"].is_null() || !call["output_splits"].is_null()) {
    text += " (" + text_of(call["input_splits"]) + " -> " + text_of(call["output_splits"]) + ")";
  }
  return text;
}

std::string notes(const Json& call) {
  std::string text;
  for (const Json& flag : call["flags"]) text += (text.empty() ? "" : ", ") + text_of(flag);
  for (const char* side : {"input", "output"}) {
    if (!call[side].is_null()) text += (text.empty() ? "" : ", ") + std::string(side) + " recorded";
  }
  return text;
}

using Line = std::array<std::string, 10>;

Line line_of(const Json& call) {
  return {call["iteration"].dump(),
          call["rank"].dump(),
          text_of(call["group"]),
          call["sequence"].dump(),
          what(call),
          amount(call),
          call["member"].dump() + " of " + call["size"].dump(),
          text_of(call["module"]),
          text_of(call["microbatch"]),
          notes(call)};
}

void print_table(const Json& calls) {
  std::vector<Line> lines = {
      {"it", "rank", "group", "call", "what", "elements", "member", "module", "mb", ""}};
  for (const Json& call : calls) lines.push_back(line_of(call));
  std::array<std::size_t, std::tuple_size_v<Line>> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const Line& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += line[i];
      text.append(widths[i] - line[i].size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::printf("%s\n", text.c_str());
  }
}

}  // namespace

void print_collectives(const Trace& trace, const InspectFilter& filter, bool as_json) {
  if (!filter.phase.empty()) {
    throw Trouble("--phase", filter.phase, "is for tensors; with --collectives leave it out");
  }
  if (trace.logical()) {
    throw Trouble("--collectives", trace.path().string(),
                  "ttrace-merge wrote it: calls belong to ranks, ask the trace that it is of");
  }
  const Json calls = calls_of(trace, filter);
  if (calls.empty()) {
    throw Trouble("--collectives", trace.path().string(),
                  filter.empty() ? "has none; capture with ttrace-capture --comm metadata"
                                 : "has none that passes the filters");
  }
  if (!as_json) return print_table(calls);
  const Json all = {{"format", "ttrace-inspect"},
                    {"version", 1},
                    {"trace", trace.path().string()},
                    {"run_id", trace.run_id()},
                    {"collectives", calls}};
  std::printf("%s\n", all.dump(1, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace ttrace
