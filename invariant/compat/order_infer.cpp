// SPDX-License-Identifier: Apache-2.0
// See order.hpp: examples for pairs of functions.
#include "invariant/compat/order.hpp"

namespace ttrace::invariant::compat {
namespace {

// Judges calls of one function by calls of another on a thread.
class Judge {
 public:
  explicit Judge(Context& context) : context_(context) {}

  void lead(const OrderIndex::ThreadTracks& thread, Name a, Name b) {
    if (!thread.with_partner.contains(a)) return;
    const std::vector<Timed>& first = thread.find(a)->calls;
    if (!thread.share(a, b)) return reject(first, 0);
    const Track& second = *thread.find(b);
    if (first.size() == 1) return add(first[0], first[0].end <= second.last_end);
    const Timed* last = &first[0];
    std::int64_t end = last->end;
    std::size_t next = 0;
    std::size_t i = 1;
    for (; i < first.size() && next < second.calls.size(); ++i) {
      const Timed& call = first[i];
      const bool nested = call.begin <= end;
      add(*last, !nested && find_between(second.calls, next, &end, call.begin));
      last = &call;
      end = call.end;
    }
    reject(first, i);  // and `last` is never judged
  }

  void cover(const OrderIndex::ThreadTracks& thread, Name a, Name b) {
    if (!thread.with_partner.contains(b)) return;
    const std::vector<Timed>& second = thread.find(b)->calls;
    if (!thread.share(b, a)) return reject(second, 0);
    const std::vector<Timed>& first = thread.find(a)->calls;
    const std::int64_t* end = nullptr;
    std::size_t next = 0;
    std::size_t i = 0;
    for (; i < second.size() && next < first.size(); ++i) {
      const Timed& call = second[i];
      const bool nested = end != nullptr && call.begin <= *end;
      add(call, !nested && find_between(first, next, end, call.begin));
      end = &call.end;
    }
    reject(second, i);
  }

 private:
  void add(const Timed& call, bool holds) {
    context_.gatherer.add(context_.view.example(call.pre), holds);
  }

  void reject(const std::vector<Timed>& calls, std::size_t from) {
    for (std::size_t i = from; i < calls.size(); ++i) add(calls[i], false);
  }

  Context& context_;
};

using Rule = void (Judge::*)(const OrderIndex::ThreadTracks&, Name, Name);

void collect(Context& context, Rule rule, Hypothesis& hypothesis) {
  Judge judge(context);
  for (const auto& thread : order_of(context).threads()) {
    (judge.*rule)(thread, hypothesis.params[0].api, hypothesis.params[1].api);
  }
  context.gatherer.finish(hypothesis);
}

void infer(Context& context, Rule rule, const Sink& sink) {
  const OrderIndex& index = order_of(context);
  for (const Name a : index.functions()) {
    for (const Name b : index.functions()) {
      bool share = false;
      for (const auto& thread : index.threads()) share = share || thread.share(a, b);
      if (!share) continue;
      Hypothesis out;
      out.params = {api_param(a), api_param(b)};
      collect(context, rule, out);
      sink(std::move(out));
    }
  }
}

}  // namespace

void infer_cover(Context& context, const Sink& sink) { infer(context, &Judge::cover, sink); }
void infer_lead(Context& context, const Sink& sink) { infer(context, &Judge::lead, sink); }

void collect_cover(Context& context, Hypothesis& hypothesis) {
  collect(context, &Judge::cover, hypothesis);
}
void collect_lead(Context& context, Hypothesis& hypothesis) {
  collect(context, &Judge::lead, hypothesis);
}

}  // namespace ttrace::invariant::compat
