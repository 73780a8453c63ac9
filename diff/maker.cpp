// SPDX-License-Identifier: Apache-2.0
// See maker.hpp.
#include "diff/maker.hpp"

#include <algorithm>

namespace ttrace {
namespace {

struct Gradient {
  Place place;
  Key key;
  bool agrees;
};

// Of activations, in the order in which a backward pass computes them.
std::vector<Gradient> gradients_of(const Flow& flow, const Alignment& alignment,
                                   const std::vector<Outcome>& outcomes) {
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Pair& pair = alignment.pairs[i];
    if (pair.key.phase != Phase::backward || pair.same_as != kNoPair) continue;
    gradients.push_back(
        {flow.place(pair.key), pair.key, outcomes[i].compared && outcomes[i].findings.empty()});
  }
  std::sort(gradients.begin(), gradients.end(),
            [](const Gradient& one, const Gradient& other) { return one.place < other.place; });
  return gradients;
}

std::optional<Key> last_agreeing(const std::vector<Gradient>& gradients, const Place& place) {
  auto at =
      std::lower_bound(gradients.begin(), gradients.end(), place,
                       [](const Gradient& one, const Place& other) { return one.place < other; });
  while (at != gradients.begin()) {
    --at;
    if (at->place.microbatch != place.microbatch) continue;
    return at->agrees ? std::optional(at->key) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void add_makers(const Flow& flow, const Alignment& alignment, const std::vector<Outcome>& outcomes,
                std::vector<OrderedFinding>& findings) {
  std::vector<Gradient> gradients;
  for (OrderedFinding& entry : findings) {
    const Key& key = entry.finding.key;
    if (entry.inherited || key.phase != Phase::backward || key.slot.rfind("grad_output", 0) != 0) {
      continue;
    }
    if (gradients.empty()) gradients = gradients_of(flow, alignment, outcomes);
    Key output = key;
    output.phase = Phase::forward;
    output.slot = output_slot(key.slot);
    Maker maker;
    maker.modules = flow.takers_of(output);
    maker.recorded = !maker.modules.empty();
    const std::string next = maker.recorded ? "" : flow.next_after(output);
    if (!next.empty()) maker.modules.push_back(next);
    maker.around = !next.empty() && lies_in(key.module, next);
    if (maker.modules.empty()) continue;
    maker.agrees = last_agreeing(gradients, entry.place);
    entry.maker = std::move(maker);
  }
}

std::string maker_text(const Maker& maker) {
  if (maker.around) return "what `" + maker.modules.front() + "` does after it";
  std::string text;
  for (const std::string& module : maker.modules)
    text += (text.empty() ? "`" : ", `") + module + "`";
  return text;
}

}  // namespace ttrace
