// SPDX-License-Identifier: Apache-2.0
// Reads all calls, and finds the ranks of their groups. See log.hpp; log_join.cpp joins them.
#include "invariant/builtin/collective/log.hpp"

#include <algorithm>

#include "invariant/builtin/collective/log_join.hpp"

namespace ttrace::builtin {
namespace {

const Record* record_at(const Call& call, std::int64_t sequence) {
  if (sequence < 0) return nullptr;
  const auto& records = call.segment->records();
  const auto index = static_cast<std::size_t>(sequence);
  return index < records.size() ? &records[index] : nullptr;
}

std::string declared_ranks(const RankInfo& info, const std::string& group) {
  const auto found = info.groups.find(group);
  if (found == info.groups.end()) return "";
  std::string text;
  for (const std::int32_t rank : found->second) text += std::to_string(rank) + ",";
  return text;
}

}  // namespace

const Record* Call::input() const { return record_at(*this, row->input); }
const Record* Call::output() const { return record_at(*this, row->output); }

bool Group::complete() const {
  return !ambiguous && ranks.size() == static_cast<std::size_t>(size) &&
         std::find(ranks.begin(), ranks.end(), -1) == ranks.end();
}

std::vector<std::int32_t> Group::known() const {
  std::vector<std::int32_t> known;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(known),
               [](std::int32_t rank) { return rank >= 0; });
  return known;
}

const Call* Joint::of(std::int32_t member) const {
  for (const Call& call : calls) {
    if (call.row->member == member) return &call;
  }
  return nullptr;
}

bool Joint::complete() const {
  return paired || calls.size() == static_cast<std::size_t>(group->size);
}

std::vector<std::int32_t> Joint::ranks() const {
  std::vector<std::int32_t> ranks;
  for (const Call& call : calls) ranks.push_back(call.rank);
  return ranks;
}

bool is_send_or_receive(const Collective& row) {
  return row.function == "send" || row.function == "recv";
}

bool reduces(const Collective& row) {
  return row.function == "all_reduce" || row.function == "reduce" ||
         row.function == "reduce_scatter";
}

bool sums(const Collective& row) {
  return reduces(row) &&
         (row.reduction == "sum" || row.reduction == "avg" || row.reduction == "premul_sum");
}

double weight_of(const Collective& row) {
  if (row.reduction == "avg") return 1.0 / row.size;
  return row.reduction == "premul_sum" ? row.factor : 1;
}

CollectiveLog::CollectiveLog(const Trace& trace) : trace_(trace) {
  std::vector<Call> calls;
  for (const RankInfo& info : trace.ranks()) {
    for (const std::int64_t iteration : info.iterations) {
      const SegmentReader* segment = trace.segment(info.rank, iteration);
      if (segment == nullptr) continue;
      for (const Collective& row : segment->collectives()) {
        calls.push_back({info.rank, iteration, segment, &row});
      }
    }
  }
  calls_ = calls.size();
  tell_groups_apart(calls);
  std::map<const Group*, std::vector<Call>> by_group;
  for (const Call& call : calls) {
    const Group* group = &group_for(call);
    by_group[group].push_back(call);
    if (call.row->sequence == 0) started_.insert({group, call.rank});
  }
  for (const Group& group : groups_) {
    if (group.ambiguous) continue;
    Joined joined = join(group, std::move(by_group[&group]));
    for (const auto& [iteration, count] : joined.unpaired) unpaired_[iteration] += count;
    for (Joint& joint : joined.joints) joints_[joint.iteration].push_back(std::move(joint));
  }
  for (const auto& [iteration, joints] : joints_) {
    for (const Joint& joint : joints) {
      for (const Call& call : joint.calls) {
        joint_of_[call.row] = &joint;
        if (joint.paired) continue;
        const auto key = std::pair(joint.group, call.rank);
        Span& span = spans_.try_emplace(key, Span{joint.place, joint.place}).first->second;
        span.first = std::min(span.first, joint.place);
        span.last = std::max(span.last, joint.place);
      }
    }
  }
}

// Programs may give disjoint groups one name ("dp" on each rank for its own); rank.json then says
// which ranks are meant.
void CollectiveLog::tell_groups_apart(const std::vector<Call>& calls) {
  std::map<std::pair<std::string, std::int32_t>, std::int32_t> holder;
  for (const Call& call : calls) {
    const auto [found, fresh] =
        holder.emplace(std::pair(call.row->group, call.row->member), call.rank);
    if (!fresh && found->second != call.rank) shared_names_.insert(call.row->group);
  }
  for (const RankInfo& info : trace_.ranks()) {
    for (const std::string& name : shared_names_) {
      which_[{name, info.rank}] = declared_ranks(info, name);
    }
  }
}

Group& CollectiveLog::group_for(const Call& call) {
  const Collective& row = *call.row;
  const auto which = which_.find({row.group, call.rank});
  const std::string ranks = which == which_.end() ? "" : which->second;
  Group*& group = by_name_[{row.group, ranks}];
  if (group == nullptr) {
    group = &groups_.emplace_back();
    group->name = row.group;
    group->size = row.size;
    group->ranks.assign(static_cast<std::size_t>(std::max(row.size, 0)), -1);
  }
  const auto member = static_cast<std::size_t>(row.member);
  if (row.size != group->size || row.member < 0 || member >= group->ranks.size()) {
    group->ambiguous = true;
  } else if (group->ranks[member] == -1) {
    group->ranks[member] = call.rank;
  } else if (group->ranks[member] != call.rank) {
    group->ambiguous = true;
  }
  return *group;
}

const std::vector<Joint>& CollectiveLog::of(std::int64_t iteration) const {
  static const std::vector<Joint> kNone;
  const auto found = joints_.find(iteration);
  return found == joints_.end() ? kNone : found->second;
}

std::vector<Call> CollectiveLog::calls(std::int32_t rank, std::int64_t iteration) const {
  std::vector<Call> calls;
  const SegmentReader* segment = trace_.segment(rank, iteration);
  if (segment == nullptr) return calls;
  for (const Collective& row : segment->collectives()) {
    calls.push_back({rank, iteration, segment, &row});
  }
  return calls;
}

const Joint* CollectiveLog::joint_of(const Collective& row) const {
  const auto found = joint_of_.find(&row);
  return found == joint_of_.end() ? nullptr : found->second;
}

std::optional<Span> CollectiveLog::span_of(const Group& group, std::int32_t rank) const {
  const auto found = spans_.find({&group, rank});
  return found == spans_.end() ? std::nullopt : std::optional(found->second);
}

const Group* CollectiveLog::group_of(const Call& call) const {
  const auto which = which_.find({call.row->group, call.rank});
  const auto found = by_name_.find({call.row->group, which == which_.end() ? "" : which->second});
  return found == by_name_.end() ? nullptr : found->second;
}

}  // namespace ttrace::builtin
