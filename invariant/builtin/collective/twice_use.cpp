// SPDX-License-Identifier: Apache-2.0
// See twice_use.hpp. Let the first sum put out S, the second one take in c S from k members, so
// that it puts out k c S, and the gradient be that times d. Where other gradients are u times their
// only sum, this one is d k c / u times what it would be like them: 1 where the program divides
// accordingly, k where it does not. Where there are no others to compare with, d k c = k says that
// the result is used as it is. d k c = 1 is a mean of equal numbers, which changes nothing; or the
// division by k that makes the first sum a mean has come to nothing: that cannot be told.
#include "invariant/builtin/collective/twice_use.hpp"

#include <algorithm>

#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/collective/scale.hpp"
#include "invariant/builtin/evidence.hpp"

namespace ttrace::builtin {
namespace {

struct Gradient {
  const Call* call = nullptr;
  const Record* record = nullptr;
  double factor = 1;  // times the result
};

constexpr std::size_t kSearches = 8;  // gradients that are looked for in a bucket

// One that lies in the result, among others.
std::optional<Gradient> inside_of(const Call& call) {
  const Record* output = call.output();
  if (!tells(output)) return std::nullopt;
  std::size_t searched = 0;
  for (const Record& record : call.segment->records()) {
    const Key& key = record.key;
    const bool gradient = key.phase == Phase::grad && key.slot == "reduced" && tells(&record);
    if (!gradient || record.sequence < output->sequence) continue;
    if (element_count(record.shape) >= element_count(output->shape)) continue;
    if (searched++ == kSearches) break;
    const auto factor = scale_within(*call.segment, *output, *call.segment, record);
    if (factor) return Gradient{&call, &record, *factor};
  }
  return std::nullopt;
}

// A gradient that one of the results becomes.
std::optional<Gradient> gradient_of(const Evidence& evidence, GradientFlow& flow,
                                    const Again& again) {
  for (const Call* call : again.calls) {
    for (const Became& became : flow.of(evidence, call->rank, call->iteration)) {
      if (became.row == call->row) return Gradient{call, became.gradient, became.factor};
    }
  }
  return inside_of(*again.calls.front());
}

// A tensor of the program's that is the result of the second sum, bit for bit.
const Record* taken_as_it_is(const Again& again) {
  for (const Call* call : again.calls) {
    const Record* output = call->output();
    if (!tells(output)) continue;
    for (const Record& record : call->segment->records()) {
      const bool later = record.sequence >= output->sequence && record.key.phase != Phase::comm;
      if (later && record.hash == output->hash && record.bytes == output->bytes) return &record;
    }
  }
  return nullptr;
}

TwiceUse judge(double changed, double times, bool compared) {
  TwiceUse use;
  if (same_scale(changed, times)) use.certainty = Certainty::likely;
  use.harmless = compared && same_scale(changed, 1);
  return use;
}

}  // namespace

TwiceUse use_of(const Evidence& evidence, GradientFlow& flow, const Again& again,
                const std::set<const Collective*>& chain) {
  const Collective& row = *again.calls.front()->row;
  const double times = static_cast<double>(again.calls.size()) * weight_of(row);
  const std::optional<Gradient> became = gradient_of(evidence, flow, again);
  if (!became) {
    TwiceUse use;
    const Record* taken = taken_as_it_is(again);
    if (taken == nullptr) {
      use.evidence = {{"what becomes of it", "not recorded: a division may follow"}};
    } else if (again.scale == 1) {
      use.certainty = Certainty::likely;
      use.evidence = {{"taken as it is by", to_string(taken->key)}};
    }
    return use;
  }
  const double changed = became->factor * times * again.scale;
  const double first = weight_of(*again.source->calls.front().row);
  const auto usual =
      usual_weight(flow.of(evidence, became->call->rank, became->call->iteration), chain);
  TwiceUse use =
      usual ? judge(changed * first / *usual, times, true) : judge(changed, times, false);
  use.evidence = {{"what becomes of it", to_string(became->record->key) + " is " +
                                             printed(became->factor) + " x the result"}};
  if (usual) {
    use.evidence.emplace_back("sum of its addends", "counts " + printed(changed * first) +
                                                        " x in it, in nearly all other gradients " +
                                                        printed(*usual) + " x");
  } else if (same_scale(changed, 1)) {
    use.evidence.emplace_back("in the end",
                              "it is the first result again: nothing has changed, "
                              "unless a division was to make a mean of that");
  }
  return use;
}

}  // namespace ttrace::builtin
