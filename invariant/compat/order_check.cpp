// SPDX-License-Identifier: Apache-2.0
// See order.hpp: checks. A file of an older version may name a chain of functions; each pair of
// neighbours is checked.
#include "invariant/compat/applies.hpp"
#include "invariant/compat/order.hpp"
#include "invariant/compat/text.hpp"

namespace ttrace::invariant::compat {
namespace {

class Check {
 public:
  Check(Context& context, const Invariant& invariant, Outcome& outcome, bool lead)
      : context_(context), outcome_(outcome), applies_(context, invariant), lead_(lead) {}

  // Calls of `own` are judged by calls of `other`.
  void thread(const OrderIndex::ThreadTracks& thread, Name own, Name other) {
    if (!thread.with_partner.contains(own)) return;
    const std::vector<Timed>& calls = thread.find(own)->calls;
    if (!thread.share(own, other)) {
      for (const Timed& call : calls) {
        if (applies_.at(call.pre)) violate(context_, outcome_, {call.pre});
      }
      return;
    }
    const std::vector<Timed>& others = thread.find(other)->calls;
    const Timed* last = nullptr;
    std::size_t next = 0;
    for (const Timed& call : calls) {
      if (!applies_.at(call.pre)) continue;
      // TrainCheck never says of a cover that it was triggered.
      if (lead_) trigger(outcome_);
      if (last != nullptr || !lead_) judge(call, last, others, next);
      last = &call;
    }
  }

 private:
  void judge(const Timed& call, const Timed* last, const std::vector<Timed>& others,
             std::size_t& next) {
    const std::int64_t* end = last == nullptr ? nullptr : &last->end;
    const bool nested = end != nullptr && call.begin <= *end;
    if (!nested && find_between(others, next, end, call.begin)) return;
    violate(context_, outcome_, {lead_ ? last->pre : call.pre});
  }

  Context& context_;
  Outcome& outcome_;
  Applies applies_;
  bool lead_;
};

void check(Context& context, const Invariant& invariant, Outcome& outcome, bool lead) {
  const OrderIndex& index = order_of(context);
  bool known = false;
  for (const Param& param : invariant.params) known = known || index.knows(param.api);
  if (!known) return;
  Check rule(context, invariant, outcome, lead);
  for (std::size_t i = 0; i + 1 < invariant.params.size(); ++i) {
    const Name a = invariant.params[i].api;
    const Name b = invariant.params[i + 1].api;
    for (const auto& thread : index.threads()) {
      lead ? rule.thread(thread, a, b) : rule.thread(thread, b, a);
    }
  }
}

}  // namespace

void check_cover(Context& context, const Invariant& invariant, Outcome& outcome) {
  check(context, invariant, outcome, false);
}

void check_lead(Context& context, const Invariant& invariant, Outcome& outcome) {
  check(context, invariant, outcome, true);
}

std::string cover_text(const Values& values, const std::vector<Param>& params) {
  return short_name(values, params[0].api) + "() always occurs when " +
         short_name(values, params[1].api) + "() is called";
}

std::string lead_text(const Values& values, const std::vector<Param>& params) {
  return short_name(values, params[0].api) + "() always precedes " +
         short_name(values, params[1].api) + "()";
}

}  // namespace ttrace::invariant::compat
