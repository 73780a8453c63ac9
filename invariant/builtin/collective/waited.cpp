// SPDX-License-Identifier: Apache-2.0
// What is computed from a collective's output is computed from the present one. A tensor that comes
// after the call and is bit for bit what the same place put out the time before, in another
// micro-batch or iteration, was read before the new output was there: a missing wait. And where the
// tensors of nearly all layers are bit for bit an output, one that differs was read too early, or
// from another buffer.

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/consumers.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

struct Output {
  Call call;
  CallPlace place;
};

// A tensor that the program computed with, and knows of which micro-batch it is.
bool is_consumer(const Record& record) {
  const Phase phase = record.key.phase;
  const bool computed = phase == Phase::forward || phase == Phase::backward ||
                        (phase == Phase::grad && record.key.slot == "reduced");
  return computed && tells(&record);
}

class Waited final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    for (const auto& [rank, where] : evidence.places()) {
      const SegmentReader* segment = evidence.trace().segment(rank, iteration);
      if (segment == nullptr) continue;
      std::vector<Output> outputs;
      for (const PlacedCall& placed : placed_calls(log, rank, iteration)) {
        if (placed.call.row->size < 2) continue;
        if (tells(placed.call.output())) outputs.push_back({placed.call, placed.place});
      }
      look_at_rank(evidence, *segment, outputs, outcome);
      links_.add(rank, *segment, placed_calls(log, rank, iteration));
      for (Output& output : outputs) remember(std::move(output));
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (evidence.collectives().empty()) return;
    std::map<std::string, std::size_t> by_key;  // ranks with the same key are told together
    for (const OddConsumer& odd : links_.odd()) {
      const std::string key = to_string(odd.record->key);
      if (told_.count(key + "@" + std::to_string(odd.call.rank)) != 0) continue;
      const auto [first, fresh] = by_key.emplace(key, outcome.violations.size());
      if (fresh) {
        outcome.report(describe_odd(evidence, odd));
      } else {
        outcome.violations[first->second].ranks.push_back(odd.call.rank);
      }
    }
    outcome.compared["tensors with the output that they are"] += links_.compared();
    if (outcome.total_compared() == 0) {
      ++outcome.unchecked["no tensor was seen to be the output of a collective"];
    }
  }

 private:
  // Of each place the latest output of each micro-batch, of this iteration and the one before.
  struct Past {
    Hash128 hash;
    std::int64_t iteration = -1;
    std::int32_t microbatch = -1;
  };

  void remember(Output output) {
    std::vector<Past>& past = past_[output.place];
    const std::int64_t iteration = output.call.iteration;
    std::erase_if(past, [&](const Past& old) { return old.iteration < iteration - 1; });
    past.push_back({output.call.output()->hash, iteration, output.call.row->microbatch});
  }

  void look_at_rank(const Evidence& evidence, const SegmentReader& segment,
                    const std::vector<Output>& outputs, Outcome& outcome) {
    // What a present output would be, had it not been waited for: content and micro-batch.
    std::map<std::pair<Hash128, std::int32_t>, std::pair<const Output*, Past>> stale;
    std::map<CallPlace, std::vector<Past>> so_far = past_;
    for (const Output& output : outputs) {
      const Hash128 now = output.call.output()->hash;
      const std::int32_t microbatch = output.call.row->microbatch;
      std::vector<Past>& past = so_far[output.place];
      for (const Past& old : past) {
        if (old.hash == now) continue;
        stale.try_emplace({old.hash, microbatch}, std::pair(&output, old));
      }
      past.push_back({now, output.call.iteration, microbatch});
    }
    if (stale.empty()) return;
    std::set<std::pair<Hash128, std::int32_t>> met;  // before, or told
    for (const Record& record : segment.records()) {
      if (!is_consumer(record)) continue;
      const std::pair key(record.hash, record.key.microbatch);
      const auto found = stale.find(key);
      const bool after =
          found != stale.end() && record.sequence >= found->second.first->call.row->position;
      // The same tensor from before the call is just that.
      if (!met.insert(key).second || !after) continue;
      const Output& output = *found->second.first;
      told_.insert(to_string(record.key) + "@" + std::to_string(output.place.rank));
      outcome.report(describe(evidence, output, found->second.second, record));
    }
  }

  static Violation describe(const Evidence& evidence, const Output& output, const Past& old,
                            const Record& record) {
    const Collective& row = *output.call.row;
    Violation violation = started(evidence, output.call, record);
    const std::string before = old.iteration == output.call.iteration
                                   ? "micro-batch " + std::to_string(old.microbatch)
                                   : "iteration " + std::to_string(old.iteration);
    violation.what = violation.key + " of rank " + std::to_string(output.place.rank) + " is what " +
                     row.function + ", call " + std::to_string(row.sequence) + " of group " +
                     row.group + " put out in " + before + ", not what it puts out now";
    return violation;
  }

  static Violation describe_odd(const Evidence& evidence, const OddConsumer& odd) {
    const Collective& row = *odd.call.row;
    Violation violation = started(evidence, odd.call, *odd.record);
    if (odd.at_the_end) violation.certainty = Certainty::possible;
    violation.what = violation.key + " of rank " + std::to_string(odd.call.rank) + " is not what " +
                     row.function + ", call " + std::to_string(row.sequence) + " of group " +
                     row.group + (row.module.empty() ? "" : " in " + row.module) +
                     " put out, as it is in " + std::to_string(odd.equal) + " of " +
                     std::to_string(odd.equal + odd.different) + " such places";
    const std::string instead = held_instead(evidence, odd);
    if (!instead.empty()) violation.what += "; it is what " + instead + " put out before";
    return violation;
  }

  // An earlier collective on this rank whose output it is: memory that was not yet written again.
  static std::string held_instead(const Evidence& evidence, const OddConsumer& odd) {
    std::string held;
    for (const Call& call : evidence.collectives().calls(odd.call.rank, odd.call.iteration)) {
      if (call.row->position > odd.record->sequence) break;
      const Record* output = call.output();
      if (output == nullptr || output->hash != odd.record->hash) continue;
      held = call.row->function + ", call " + std::to_string(call.row->sequence) + " of group " +
             call.row->group + (call.row->module.empty() ? "" : " in " + call.row->module);
    }
    return held;
  }

  static Violation started(const Evidence& evidence, const Call& call, const Record& record) {
    Violation violation;
    violation.certainty = Certainty::likely;
    violation.iteration = call.iteration;
    violation.microbatch = record.key.microbatch;
    violation.ranks = {call.rank};
    violation.module = record.key.module;
    violation.key = to_string(record.key);
    violation.advice =
        "is the collective waited for (its handle, its stream's event) before its output is read, "
        "and is this the buffer it writes?";
    violation.evidence = {{"module", evidence.described(record.key.module)},
                          {"the collective is called in", call.row->module}};
    return violation;
  }

  std::map<CallPlace, std::vector<Past>> past_;
  ConsumerLinks links_;
  std::set<std::string> told_;  // keys and ranks
};

}  // namespace

std::unique_ptr<Check> make_waited() { return std::make_unique<Waited>(); }

}  // namespace ttrace::builtin
