// SPDX-License-Identifier: Apache-2.0
// See order.hpp.
#include "invariant/compat/order.hpp"

#include <algorithm>

namespace ttrace::invariant::compat {
namespace {

constexpr std::uint32_t kLongestRun = 4;

}  // namespace

std::unordered_map<Name, std::uint32_t> longest_runs(const View& view) {
  std::unordered_map<Name, std::uint32_t> out;
  const Record* previous = nullptr;
  std::uint32_t length = 0;
  for (const Row row : view.rows) {
    const Record& record = view.trace.at(row);
    if (record.kind == RecordKind::state) {
      previous = nullptr;
      continue;
    }
    const bool goes_on = previous != nullptr && previous->function == record.function;
    length = goes_on ? length + 1 : 1;
    std::uint32_t& longest = out[record.function];
    longest = std::max(longest, length);
    previous = &record;
  }
  return out;
}

const Track* OrderIndex::ThreadTracks::find(Name function) const {
  const auto found = tracks.find(function);
  return found == tracks.end() ? nullptr : &found->second;
}

bool OrderIndex::ThreadTracks::share(Name a, Name b) const {
  if (a == b) return false;
  const Track* x = find(a);
  const Track* y = find(b);
  return x != nullptr && y != nullptr &&
         (x->last_begin > y->first_end || y->last_begin > x->first_end);
}

OrderIndex::OrderIndex(Context& context) : threads_(context.view.threads.size()) {
  const View& view = context.view;
  const auto runs = longest_runs(view);
  for (const Function& function : view.functions) {
    if (context.trace.skipped(function.name) || runs.at(function.name) > kLongestRun) continue;
    functions_.push_back(function.name);
    known_.insert(function.name);
    for (const CallId id : function.calls) {
      const Call& call = view.calls[id];
      threads_[call.thread].tracks[function.name].calls.push_back({call.begin, call.end, call.pre});
    }
  }
  for (ThreadTracks& thread : threads_) {
    for (auto& [name, track] : thread.tracks) {
      std::ranges::stable_sort(track.calls, {}, &Timed::begin);
      track.last_begin = track.calls.back().begin;
      track.first_end = std::ranges::min(track.calls, {}, &Timed::end).end;
      track.last_end = std::ranges::max(track.calls, {}, &Timed::end).end;
    }
    for (const auto& [a, first] : thread.tracks) {
      for (const auto& [b, second] : thread.tracks) {
        if (!thread.share(a, b)) continue;
        thread.with_partner.insert(a);
        break;
      }
    }
  }
}

const OrderIndex& order_of(Context& context) {
  if (context.order == nullptr) context.order = std::make_unique<OrderIndex>(context);
  return *context.order;
}

bool find_between(const std::vector<Timed>& calls, std::size_t& next, const std::int64_t* after,
                  std::int64_t before) {
  while (next < calls.size() && calls[next].begin <= before) {
    const Timed& call = calls[next++];
    if ((after == nullptr || call.begin > *after) && call.end <= before) return true;
  }
  return false;
}

}  // namespace ttrace::invariant::compat
