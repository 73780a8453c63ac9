// SPDX-License-Identifier: Apache-2.0
// See inspect_list.hpp.
#include "tools/inspect_list.hpp"

#include <fnmatch.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "libttrace/core/trouble.hpp"
#include "tools/inspect_get.hpp"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

const char* kind_name(RecordKind kind) {
  switch (kind) {
    case RecordKind::full:
      return "full";
    case RecordKind::stats:
      return "stats";
    case RecordKind::hash:
      return "hash";
  }
  return "unknown";
}

std::string hash_text(const Hash128& hash) {
  char text[40];
  std::snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
  return text;
}

std::string shape_text(const Json& shape) {
  std::string text;
  for (const Json& extent : shape) text += (text.empty() ? "" : ", ") + extent.dump();
  return "[" + text + "]";
}

Json rank_json(const RankInfo& rank) {
  Json axes = Json::object();
  for (const auto& [name, position] : rank.axes) {
    axes[name] = {{"coord", position.coord}, {"size", position.size}};
  }
  Json json = {{"rank", rank.rank},
               {"axes", axes},
               {"iterations", rank.iterations},
               {"modules", rank.modules.size()},
               {"parameters", rank.parameters.size()},
               {"degraded", rank.degraded},
               {"events", Json::array()}};
  for (const Event& event : rank.events) {
    json["events"].push_back(
        {{"what", event.what}, {"where", event.where}, {"why", event.why}, {"count", event.count}});
  }
  return json;
}

std::optional<Phase> wanted_phase(const InspectFilter& filter) {
  if (filter.phase.empty()) return std::nullopt;
  const auto phase = phase_from_name(filter.phase);
  if (phase) return phase;
  throw Trouble("--phase", filter.phase,
                "is none of param, forward, recompute, backward, grad, step, comm");
}

bool passes(const Key& key, const InspectFilter& filter, std::optional<Phase> phase) {
  if (phase && key.phase != *phase) return false;
  return filter.module.empty() || fnmatch(filter.module.c_str(), key.module.c_str(), 0) == 0;
}

struct Totals {
  std::uint64_t tensors = 0;
  std::uint64_t records = 0;
  std::uint64_t aliases = 0;
  std::uint64_t bytes = 0;  // that were kept
};

class Contents {
 public:
  Contents(const Trace& trace, const InspectFilter& filter, bool list)
      : trace_(trace), filter_(filter), phase_(wanted_phase(filter)), list_(list) {}

  Json json() {
    for (const std::int64_t iteration : trace_.iterations()) {
      if (!filter_.iteration || *filter_.iteration == iteration) visit(iteration);
    }
    Json json = {{"format", "ttrace-inspect"},        {"version", 1},
                 {"trace", trace_.path().string()},   {"run_id", trace_.run_id()},
                 {"world_size", trace_.world_size()}, {"logical", trace_.logical()},
                 {"iterations", trace_.iterations()}, {"ranks", Json::array()},
                 {"phases", Json::object()}};
    for (const RankInfo& rank : trace_.ranks()) {
      if (!filter_.rank || *filter_.rank == rank.rank) json["ranks"].push_back(rank_json(rank));
    }
    for (const auto& [phase, totals] : totals_) {
      json["phases"][std::string(name_of(phase))] = {{"tensors", totals.tensors},
                                                     {"records", totals.records},
                                                     {"aliases", totals.aliases},
                                                     {"bytes", totals.bytes}};
    }
    if (list_) json["tensors"] = std::move(tensors_);
    return json;
  }

 private:
  void visit(std::int64_t iteration) {
    const ShardGroups groups =
        group_shards(trace_, iteration, number_microbatches(trace_, iteration));
    for (const auto& [key, shards] : groups) {
      if (!passes(key, filter_, phase_)) continue;
      Json ranks = Json::array();
      const Record* first = nullptr;
      for (const Shard& shard : shards) {
        if (filter_.rank && shard.rank != *filter_.rank) continue;
        if (first == nullptr) first = shard.record;
        ranks.push_back(shard.rank);
        count(key, *shard.record);
      }
      if (first == nullptr) continue;
      ++totals_[key.phase].tensors;
      if (!list_) continue;
      tensors_.push_back({{"key", to_string(key)},
                          {"dtype", name_of(first->dtype)},
                          {"shape", first->shape},
                          {"kind", kind_name(first->kind)},
                          {"alias", first->alias_of != kNotAlias},
                          {"ranks", std::move(ranks)}});
    }
  }

  void count(const Key& key, const Record& record) {
    Totals& totals = totals_[key.phase];
    ++totals.records;
    if (record.alias_of != kNotAlias) {
      ++totals.aliases;
    } else if (record.kind == RecordKind::full) {
      totals.bytes += record.bytes;
    }
  }

  const Trace& trace_;
  const InspectFilter& filter_;
  std::optional<Phase> phase_;
  bool list_;
  std::map<Phase, Totals> totals_;
  Json tensors_ = Json::array();
};

std::string ranks_summary(const Json& ranks) {
  std::string text;
  for (const Json& rank : ranks) text += (text.empty() ? "" : ",") + rank.dump();
  return text;
}

void print_rank(const Json& rank) {
  std::string axes;
  for (const auto& [name, position] : rank["axes"].items()) {
    axes += (axes.empty() ? " (" : " ") + name + "=" + position["coord"].dump() + "/" +
            position["size"].dump();
  }
  if (!axes.empty()) axes += ")";
  std::printf("rank %s%s: iterations %s, %s modules, %s parameters%s\n",
              rank["rank"].dump().c_str(), axes.c_str(), rank["iterations"].dump().c_str(),
              rank["modules"].dump().c_str(), rank["parameters"].dump().c_str(),
              rank["degraded"].get<bool>() ? ", DEGRADED" : "");
  for (const Json& event : rank["events"]) {
    std::printf("  %s: %s: %s (%s x)\n", event["what"].get<std::string>().c_str(),
                event["where"].get<std::string>().c_str(), event["why"].get<std::string>().c_str(),
                event["count"].dump().c_str());
  }
}

// Statistics of a record; what a hash alone does not tell is absent.
Json shard_json(const Shard& shard) {
  const Record& record = *shard.record;
  Json json = {{"rank", shard.rank},          {"dtype", name_of(record.dtype)},
               {"shape", record.shape},       {"kind", kind_name(record.kind)},
               {"sequence", record.sequence}, {"raw_name", raw_name_of(record)},
               {"flags", record.flags},       {"hash", hash_text(record.hash)}};
  if (record.alias_of != kNotAlias) {
    const Record& target = shard.segment->records().at(static_cast<std::size_t>(record.alias_of));
    json["alias_of"] = to_string(target.key);
  }
  if (record.layout != kNoLayout) {
    const std::string& text = shard.segment->layouts().at(static_cast<std::size_t>(record.layout));
    json["layout"] = Json::parse(text, nullptr, false);
  }
  if (record.kind == RecordKind::hash) return json;
  const double count = static_cast<double>(element_count(record.shape));
  const double norm = std::sqrt(record.statistics.sum_squares);
  json["norm"] = norm;
  json["rms"] = count > 0 ? norm / std::sqrt(count) : 0;
  json["min"] = record.statistics.min;
  json["max"] = record.statistics.max;
  json["nan"] = record.statistics.nan_count;
  json["inf"] = record.statistics.inf_count;
  return json;
}

void print_as_text(const Json& contents) {
  std::printf("%s: %zu of %s ranks, iterations %s%s\n",
              contents["trace"].get<std::string>().c_str(), contents["ranks"].size(),
              contents["world_size"].dump().c_str(), contents["iterations"].dump().c_str(),
              contents["logical"].get<bool>() ? ", logical tensors" : "");
  for (const Json& rank : contents["ranks"]) print_rank(rank);
  std::printf("\n%-10s %10s %10s %10s %16s\n", "phase", "tensors", "records", "aliases", "bytes");
  for (const auto& [name, totals] : contents["phases"].items()) {
    std::printf("%-10s %10s %10s %10s %16s\n", name.c_str(), totals["tensors"].dump().c_str(),
                totals["records"].dump().c_str(), totals["aliases"].dump().c_str(),
                totals["bytes"].dump().c_str());
  }
  if (!contents.contains("tensors")) return;
  std::printf("\n");
  for (const Json& tensor : contents["tensors"]) {
    const std::string kind = tensor["kind"].get<std::string>();
    std::printf("%s  %s%s%s%s  ranks %s\n", tensor["key"].get<std::string>().c_str(),
                tensor["dtype"].get<std::string>().c_str(), shape_text(tensor["shape"]).c_str(),
                kind == "full" ? "" : ("  " + kind).c_str(),
                tensor["alias"].get<bool>() ? "  alias" : "",
                ranks_summary(tensor["ranks"]).c_str());
  }
}

void print_shard(const Json& shard) {
  std::printf("rank %s: %s%s", shard["rank"].dump().c_str(),
              shard["dtype"].get<std::string>().c_str(), shape_text(shard["shape"]).c_str());
  for (const char* name : {"norm", "rms", "min", "max"}) {
    if (shard.contains(name)) std::printf("  %s %.9g", name, shard[name].get<double>());
  }
  for (const char* name : {"nan", "inf"}) {
    if (shard.contains(name)) std::printf("  %s %s", name, shard[name].dump().c_str());
  }
  std::printf("  hash %s", shard["hash"].get<std::string>().c_str());
  if (shard.contains("alias_of")) {
    std::printf("  alias of %s", shard["alias_of"].get<std::string>().c_str());
  }
  if (shard.contains("layout")) std::printf("  layout %s", shard["layout"].dump().c_str());
  std::printf("\n");
}

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(1, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace

void print_contents(const Trace& trace, const InspectFilter& filter, bool list, bool as_json) {
  const Json contents = Contents(trace, filter, list).json();
  if (!filter.empty() && contents["phases"].empty()) {
    throw Trouble("show", trace.path().string(),
                  "no tensor passes the filters; without them it shows what there is");
  }
  as_json ? print_json(contents) : print_as_text(contents);
}

void print_tensor(const Trace& trace, const Key& key, std::optional<std::int32_t> rank,
                  bool as_json) {
  Json json = {{"format", "ttrace-inspect"},
               {"version", 1},
               {"key", to_string(key)},
               {"shards", Json::array()}};
  for (const Shard& shard : shards_of(trace, key)) {
    if (!rank || shard.rank == *rank) json["shards"].push_back(shard_json(shard));
  }
  if (json["shards"].empty()) {
    throw Trouble("--rank", std::to_string(*rank), "does not have " + to_string(key));
  }
  if (as_json) return print_json(json);
  std::printf("%s\n", to_string(key).c_str());
  for (const Json& shard : json["shards"]) print_shard(shard);
}

}  // namespace ttrace
