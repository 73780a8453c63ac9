// SPDX-License-Identifier: Apache-2.0
// Where NaN and infinities come from: the first tensor, in the order in which a rank computed, that
// has them while all before it had none. Masks are full of infinities by design, so in activations
// only NaN counts; and loss scaling tries gradients that overflow and then skips the step, so there
// it counts when something is updated with them. A rank whose first one came out of a collective
// inherits it from the member that put it in.
#include <algorithm>
#include <optional>
#include <set>

#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

// Where infinities may be meant: activations, and what is frozen, which may be a mask.
bool may_be_infinite(const Record& record) {
  const Phase phase = record.key.phase;
  const bool frozen = phase == Phase::param && (record.flags & kFlagTrainable) == 0;
  return phase == Phase::forward || phase == Phase::recompute || phase == Phase::comm || frozen;
}

// Of the records of one rank in one iteration, in execution order.
struct FirstSeen {
  const Record* bad = nullptr;       // the first with NaN, or Inf that is not meant
  const Record* infinite = nullptr;  // the first with Inf that may be meant, before that
  std::uint64_t finite_before = 0;   // floating tensors
};

// Buffers of collectives that hold anything at all: of members that are not the root, before a
// receive, after an error.
std::set<std::int64_t> idle_buffers(const SegmentReader& segment) {
  std::set<std::int64_t> idle;
  for (const Collective& row : segment.collectives()) {
    const bool root = row.member == row.peer;
    const bool from_root = row.function == "broadcast" || row.function == "scatter";
    const bool to_root = row.function == "reduce" || row.function == "gather";
    const bool failed = (row.flags & kCollectiveFailed) != 0;
    if (failed || row.function == "recv" || (from_root && !root)) idle.insert(row.input);
    if (failed || (to_root && !root)) idle.insert(row.output);
  }
  return idle;
}

FirstSeen first_seen(const SegmentReader& segment, std::uint64_t& looked_at, std::uint64_t& blind) {
  FirstSeen seen;
  const std::set<std::int64_t> idle = idle_buffers(segment);
  for (const Record& record : segment.records()) {
    if (!is_floating(record.dtype) || record.bytes == 0) continue;
    if (idle.count(static_cast<std::int64_t>(record.sequence)) != 0) continue;
    if (record.kind == RecordKind::hash) {
      ++blind;
      continue;
    }
    ++looked_at;
    if (seen.bad != nullptr) continue;
    const Statistics& values = record.statistics;
    const bool meant = may_be_infinite(record);
    if (values.nan_count > 0 || (values.inf_count > 0 && !meant)) {
      seen.bad = &record;
    } else if (values.inf_count > 0) {
      if (seen.infinite == nullptr) seen.infinite = &record;
    } else {
      ++seen.finite_before;
    }
  }
  return seen;
}

// The member that put a NaN into the collective whose output this is, and that collective.
struct Origin {
  std::int32_t rank = -1;
  const Joint* joint = nullptr;
};

std::optional<Origin> origin_of(const CollectiveLog& log, std::int32_t rank, std::int64_t iteration,
                                const Record& bad) {
  if (bad.key.phase != Phase::comm) return std::nullopt;
  for (const Call& call : log.calls(rank, iteration)) {
    if (call.output() != &bad) continue;
    const Joint* joint = log.joint_of(*call.row);
    if (joint == nullptr) return std::nullopt;
    for (const Call& member : joint->calls) {
      const Record* input = member.input();
      if (member.rank == rank || input == nullptr || input->statistics.nan_count == 0) continue;
      if (idle_buffers(*member.segment).count(member.row->input) == 0) {
        return Origin{member.rank, joint};
      }
    }
  }
  return std::nullopt;
}

// Whether the optimizer stepped on this rank.
bool updated(const SegmentReader& segment) {
  return std::any_of(segment.records().begin(), segment.records().end(),
                     [](const Record& record) { return record.key.phase == Phase::step; });
}

bool has_gradients(const SegmentReader& segment) {
  return std::any_of(segment.records().begin(), segment.records().end(),
                     [](const Record& record) { return record.key.phase == Phase::grad; });
}

std::string kinds_of(const Statistics& values) {
  std::string text;
  if (values.nan_count > 0) text = counted(values.nan_count, "NaN");
  if (values.inf_count > 0) {
    text += (text.empty() ? "" : " and ") + std::to_string(values.inf_count) + " Inf";
  }
  return text;
}

std::string origin_text(const Record& record) {
  switch (record.key.phase) {
    case Phase::param:
      return "was there before the forward pass: it was read from a checkpoint, initialised so, or "
             "comes from the step before";
    case Phase::forward:
    case Phase::recompute:
      if ((record.flags & kFlagRootInput) != 0) return "is in the data that the model is given";
      if ((record.flags & kFlagGlue) != 0) return "was computed between modules";
      return "came out of this module";
    case Phase::backward:
      return "came with the gradient of this output: computed by what uses it, loss included";
    case Phase::grad:
      return "arose in the parameter's gradient, its reduction or the clipping";
    case Phase::step:
      return "was made by the optimizer's step from finite values";
    case Phase::comm:
      return record.key.slot.find("input") != std::string::npos
                 ? "went into a collective: it was computed between modules"
                 : "came out of a collective";
  }
  return "";
}

const char* advice_for(Phase phase) {
  switch (phase) {
    case Phase::backward:
      return "the derivative of what follows at the values it had: sqrt or log at 0, norms of zero "
             "vectors, where() around an overflow";
    case Phase::grad:
      return "overflow of the type in which gradients are added up, a division by a count of 0";
    case Phase::step:
      return "eps of the optimizer, a learning rate that is not finite, a state that overflows";
    case Phase::param:
      return "capture the iteration before, or look at the checkpoint";
    default:
      return "overflow of the type, log or sqrt of what must be positive, a row that a mask leaves "
             "nothing of";
  }
}

class Nonfinite final : public Check {
 public:
  void look_at(const Evidence& evidence, std::int64_t iteration, Outcome& outcome) override {
    std::uint64_t looked_at = 0;
    std::uint64_t blind = 0;
    std::vector<Violation> found;
    std::map<std::int32_t, Origin> inherited;
    for (const auto& [rank, where] : evidence.places()) {
      const SegmentReader* segment = evidence.trace().segment(rank, iteration);
      if (segment == nullptr) continue;
      const FirstSeen seen = first_seen(*segment, looked_at, blind);
      if (seen.bad == nullptr) continue;
      const auto origin = origin_of(evidence.collectives(), rank, iteration, *seen.bad);
      if (origin) inherited.emplace(rank, *origin);
      found.push_back(describe(evidence, rank, iteration, seen, *segment));
    }
    name_heirs(evidence, inherited, found);
    if (looked_at > 0) outcome.compared["tensors"] += looked_at;
    if (blind > 0) outcome.unchecked["kept as hashes only"] += blind;
    if (found.empty() || reported_) return;
    // The first iteration tells all: from there it spreads.
    reported_ = std::any_of(found.begin(), found.end(), [](const Violation& violation) {
      return violation.certainty != Certainty::possible;
    });
    std::stable_sort(found.begin(), found.end(), [](const Violation& left, const Violation& right) {
      return order_of(left) < order_of(right);
    });
    for (Violation& violation : found) outcome.report(std::move(violation));
  }

 private:
  // Ranks that got it from others are told with the one that had it first.
  static void name_heirs(const Evidence& evidence, const std::map<std::int32_t, Origin>& inherited,
                         std::vector<Violation>& found) {
    std::map<std::int32_t, std::vector<std::int32_t>> heirs;  // by who had it first
    std::map<std::int32_t, const Joint*> through;
    for (const auto& [rank, origin] : inherited) {
      std::int32_t first = origin.rank;
      const Joint* joint = origin.joint;
      for (std::size_t steps = 0; steps < inherited.size(); ++steps) {
        const auto next = inherited.find(first);
        if (next == inherited.end()) break;
        first = next->second.rank;
        joint = next->second.joint;
      }
      if (inherited.count(first) != 0) return;  // in a circle: each is told
      heirs[first].push_back(rank);
      through[first] = joint;
    }
    std::erase_if(found, [&](const Violation& violation) {
      return inherited.count(violation.ranks.front()) != 0;
    });
    for (Violation& violation : found) {
      const auto mine = heirs.find(violation.ranks.front());
      if (mine == heirs.end()) continue;
      violation.evidence.emplace_back("inherited by", ranks_text(mine->second));
      violation.evidence.emplace_back("through", named(evidence, *through[mine->first]));
    }
  }

  // Ranks have no common clock: what a training step does first comes first.
  static std::pair<int, std::uint64_t> order_of(const Violation& violation) {
    const auto key = parse_key(violation.key);
    const int phase = key ? static_cast<int>(key->phase) : 0;
    return {phase, std::stoull(violation.evidence.front().second)};
  }

  static Violation describe(const Evidence& evidence, std::int32_t rank, std::int64_t iteration,
                            const FirstSeen& seen, const SegmentReader& segment) {
    const Record& record = *seen.bad;
    const Key& key = record.key;
    Violation violation;
    violation.iteration = iteration;
    violation.microbatch = key.microbatch;
    violation.ranks = {rank};
    violation.module = key.module;
    violation.key = to_string(key);
    const bool late = key.phase == Phase::backward || key.phase == Phase::grad ||
                      (key.phase == Phase::comm && has_gradients(segment));
    const bool skipped = late && !updated(segment);
    violation.certainty = skipped ? Certainty::possible : Certainty::certain;
    violation.what =
        "the first tensor of rank " + std::to_string(rank) + " that is not finite is " +
        violation.key + " (" + kinds_of(record.statistics) + " of " +
        std::to_string(element_count(record.shape)) + " elements); it " + origin_text(record);
    if (seen.infinite != nullptr) {
      violation.what += "; before it " + to_string(seen.infinite->key) + " has Inf";
    }
    if (skipped) violation.what += "; the step was skipped, as loss scaling does";
    violation.advice = advice_for(key.phase);
    violation.evidence = {
        {"place in the order of this rank", std::to_string(record.sequence)},
        {"floating tensors before it, all finite", std::to_string(seen.finite_before)},
        {"module", evidence.described(key.module)}};
    return violation;
  }

  bool reported_ = false;
};

}  // namespace

std::unique_ptr<Check> make_nonfinite() { return std::make_unique<Nonfinite>(); }

}  // namespace ttrace::builtin
