// SPDX-License-Identifier: Apache-2.0
// What goes into a collective is new each time: an input that is bit for bit that of the
// micro-batch or the iteration before, where those of other layers have changed, is a buffer
// that nobody filled; so is one that is what a module returned then, where it has returned
// something else since. Gathered parameters stay the same from one micro-batch to the next, and
// where nothing is trained from one iteration to the next; so gathers and copies are compared among
// layers of one kind and within an iteration only.
#include <optional>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

struct Seen {
  Hash128 hash;
  std::int64_t iteration = -1;
  std::int32_t microbatch = -1;
};

bool moves_results(const Collective& row) { return reduces(row) || row.function == "send"; }

// Places that go from the one time to the other together, and are of one kind.
struct Kind {
  Seen before;
  std::string function, group, pattern;  // of the modules
  std::uint32_t number = 0;              // of the call
  std::int64_t iteration = -1;
  std::int32_t microbatch = -1;
  [[nodiscard]] auto order() const {
    return std::tie(before.iteration, before.microbatch, iteration, microbatch, function, group,
                    pattern, number);
  }
};
bool operator<(const Kind& left, const Kind& right) { return left.order() < right.order(); }

struct Changes {
  std::vector<const PlacedCall*> same;
  std::size_t changed = 0;
};

// What the program computed, by content and by place; the latest of each.
class Computed {
 public:
  explicit Computed(const SegmentReader& segment) {
    for (const Record& record : segment.records()) {
      const Phase phase = record.key.phase;
      if ((phase != Phase::forward && phase != Phase::backward) || !tells(&record)) continue;
      by_hash_.emplace(record.hash, &record);
      by_key_[record.key] = &record;
    }
  }

  // A tensor of the micro-batch before whose content this is, and whose successor in this
  // micro-batch was there before the call, and is another.
  [[nodiscard]] const Record* outdated(const PlacedCall& placed, const Seen& before) const {
    const Collective& row = *placed.call.row;
    if (row.microbatch < 0 || before.microbatch < 0) return nullptr;
    const auto [first, last] = by_hash_.equal_range(before.hash);
    for (auto found = first; found != last; ++found) {
      const Record& old = *found->second;
      if (old.key.microbatch != before.microbatch) continue;
      Key key = old.key;
      key.microbatch = row.microbatch;
      const auto now = by_key_.find(key);
      if (now == by_key_.end() || now->second->sequence >= row.position) continue;
      if (now->second->hash != before.hash) return now->second;
    }
    return nullptr;
  }

 private:
  std::multimap<Hash128, const Record*> by_hash_;
  std::map<Key, const Record*> by_key_;
};

std::set<Hash128> parameters_in(const SegmentReader& segment) {
  std::set<Hash128> hashes;
  for (const Record& record : segment.records()) {
    const Phase phase = record.key.phase;
    if (phase == Phase::param || phase == Phase::step) hashes.insert(record.hash);
  }
  return hashes;
}

class Fresh final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& /*log*/, std::int64_t iteration,
                     Outcome& outcome) override {
    for (const auto& [rank, where] : evidence.places()) {
      const SegmentReader* segment = evidence.trace().segment(rank, iteration);
      if (segment != nullptr) look_at_rank(evidence, rank, iteration, *segment, outcome);
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (outcome.total_compared() > 0 || evidence.collectives().empty()) return;
    ++outcome.unchecked["no place made a collective twice with neighbours to compare it with"];
  }

 private:
  void look_at_rank(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                    const SegmentReader& segment, Outcome& outcome) {
    const std::vector<PlacedCall> calls = placed_calls(evidence.collectives(), rank, iteration);
    std::map<Kind, Changes> kinds;
    std::optional<Computed> computed;
    for (const PlacedCall& placed : calls) {
      const Record* input = placed.call.input();
      const Collective& row = *placed.call.row;
      if (!tells(input) || row.size < 2) continue;
      const auto before = last_.find(placed.place);
      const Seen now{input->hash, iteration, row.microbatch};
      if (before == last_.end()) {
        last_.emplace(placed.place, now);
        continue;
      }
      const Seen then = std::exchange(before->second, now);
      if (!moves_results(row) && then.iteration != iteration) continue;
      const Kind kind{
          then,      row.function,  row.group, pattern_of(row.module), placed.place.number,
          iteration, row.microbatch};
      Changes& changes = kinds[kind];
      if (then.hash != now.hash) {
        ++changes.changed;
        continue;
      }
      if (then.iteration == iteration && moves_results(row)) {
        if (!computed) computed.emplace(segment);
        if (const Record* newer = computed->outdated(placed, then)) {
          ++outcome.compared["inputs with those before"];
          outcome.report(describe_outdated(evidence, placed, kind, *newer));
          continue;
        }
      }
      changes.same.push_back(&placed);
    }
    report(evidence, kinds, segment, outcome);
  }

  static void report(const Evidence& evidence, const std::map<Kind, Changes>& kinds,
                     const SegmentReader& segment, Outcome& outcome) {
    std::set<Hash128> parameters;
    for (const auto& [kind, changes] : kinds) {
      if (changes.changed < 2) continue;
      outcome.compared["inputs with those before"] += changes.changed + changes.same.size();
      if (changes.same.empty() || changes.same.size() * 2 > changes.changed) continue;
      if (parameters.empty()) parameters = parameters_in(segment);
      for (const PlacedCall* placed : changes.same) {
        if (parameters.count(placed->call.input()->hash) != 0) continue;
        outcome.report(describe(evidence, *placed, kind, changes.changed));
      }
    }
  }

  static Violation describe(const Evidence& evidence, const PlacedCall& placed, const Kind& kind,
                            std::size_t changed) {
    Violation violation = started(evidence, placed, kind);
    violation.what += ", while " + counted(changed, "other input") + " of such calls changed";
    return violation;
  }

  static Violation describe_outdated(const Evidence& evidence, const PlacedCall& placed,
                                     const Kind& kind, const Record& newer) {
    Violation violation = started(evidence, placed, kind);
    violation.what += "; that was " + tensor_then(newer.key, kind) + ", and " +
                      to_string(newer.key) + ", which is another, was there before the call";
    violation.advice = "which buffer does " + called(placed) +
                       " read? It still holds what it was filled with before: an index that picks "
                       "one of several buffers, a copy of " +
                       newer.key.module + "'s " + newer.key.slot +
                       " into it that is left out, or one on another stream or thread that is not "
                       "waited for";
    return violation;
  }

  static std::string tensor_then(Key key, const Kind& kind) {
    key.microbatch = kind.before.microbatch;
    return to_string(key);
  }

  // The line of a program to look for.
  static std::string called(const PlacedCall& placed) {
    const Collective& row = *placed.call.row;
    return "the " + row.function +
           (row.module.empty() ? std::string() : " that " + row.module + " makes");
  }

  // "send, call 1 of group pp (ranks 0, 2; along pp) in layers.1".
  static std::string name_of(const Evidence& evidence, const PlacedCall& placed) {
    const Collective& row = *placed.call.row;
    if (const Joint* joint = evidence.collectives().joint_of(row)) return named(evidence, *joint);
    return named(evidence, placed.call);
  }

  static Violation started(const Evidence& evidence, const PlacedCall& placed, const Kind& kind) {
    const Collective& row = *placed.call.row;
    Violation violation;
    violation.certainty = Certainty::likely;
    violation.iteration = kind.iteration;
    violation.microbatch = kind.microbatch;
    violation.ranks = {placed.place.rank};
    violation.module = row.module;
    violation.key = to_string(placed.call.input()->key);
    const bool same = kind.before.iteration == kind.iteration;
    const std::string now = same ? ", micro-batch " + std::to_string(kind.microbatch)
                                 : ", iteration " + std::to_string(kind.iteration);
    const std::string before = same ? "micro-batch " + std::to_string(kind.before.microbatch)
                                    : "iteration " + std::to_string(kind.before.iteration);
    violation.what = name_of(evidence, placed) + now + ": " + ranks_text({placed.place.rank}) +
                     " puts in the same bits as in " + before;
    violation.advice = "the buffer that " + called(placed) +
                       " reads: is it filled anew each time, is that the one that is passed, and "
                       "is the copy into it over (its stream, its thread)?";
    violation.evidence = {{"module", evidence.described(row.module)}};
    return violation;
  }

  std::map<CallPlace, Seen> last_;
};

}  // namespace

std::unique_ptr<Check> make_fresh() { return std::make_unique<Fresh>(); }

}  // namespace ttrace::builtin
