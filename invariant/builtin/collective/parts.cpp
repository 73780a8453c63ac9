// SPDX-License-Identifier: Apache-2.0
// What is summed are addends of one tensor, not parts of it: the gradient of a parameter that is
// cut along an axis has other elements on each of its ranks, so a sum along that axis is one over
// the wrong group. Programs that say which parameter they reduce (its name is the scope of the
// call) and how it is cut can be asked.
#include "invariant/builtin/checks.hpp"
#include "invariant/builtin/collective/collective_check.hpp"
#include "invariant/builtin/collective/log.hpp"
#include "invariant/builtin/collective/mesh_fit.hpp"
#include "invariant/builtin/collective/places.hpp"
#include "invariant/builtin/evidence.hpp"
#include "libttrace/proof.hpp"

namespace ttrace::builtin {
namespace {

// The first axis of a cut on which the members stand apart; "": they hold the same elements.
std::string cut_between(const Evidence& evidence, const Layout& layout, const Joint& joint) {
  for (const std::vector<Cut>& cuts : layout.dims) {
    for (const Cut& cut : cuts) {
      std::set<std::uint64_t> places;
      for (const Call& call : joint.calls) {
        places.insert(position_on(evidence.places().at(call.rank), cut.axis).coord);
      }
      if (places.size() > 1) return cut.axis;
    }
  }
  return "";
}

class Parts final : public CollectiveCheck {
 public:
  void look_at_calls(const Evidence& evidence, const CollectiveLog& log, std::int64_t iteration,
                     Outcome& outcome) override {
    for (const Joint& joint : log.of(iteration)) {
      const Collective& row = *joint.calls.front().row;
      if (joint.calls.size() < 2 || !sums(row)) continue;
      const auto declared = evidence.declared(joint.calls.front().rank, iteration, row.module);
      // What has another size is no gradient of this shard.
      const std::uint64_t elements =
          row.function == "reduce_scatter" ? row.count * joint.calls.size() : row.count;
      if (!declared || elements != declared->elements) continue;
      ++outcome.compared["sums of gradients with their layouts"];
      const std::string axis = cut_between(evidence, declared->layout, joint);
      if (axis.empty() || !told_.insert(row.module).second) continue;
      outcome.report(describe(evidence, joint, axis, declared->layout));
    }
  }

  void finish(const Evidence& evidence, Outcome& outcome) override {
    if (outcome.total_compared() > 0 || evidence.collectives().empty()) return;
    ++outcome.unchecked["no call names a parameter with a declared layout as its module"];
  }

 private:
  static Violation describe(const Evidence& evidence, const Joint& joint, const std::string& axis,
                            const Layout& layout) {
    Violation violation;
    violation.certainty = Certainty::likely;
    violation.iteration = joint.iteration;
    violation.microbatch = joint.calls.front().row->microbatch;
    violation.ranks = joint.ranks();
    violation.module = joint.calls.front().row->module;
    violation.what = named(evidence, joint) + " adds up different parts of " + violation.module +
                     ", which is cut along " + axis;
    violation.advice =
        "is this the group for gradients (of ranks that hold the same part), and were its ranks "
        "listed with the right stride?";
    violation.evidence = {{"declared layout", to_string(layout)}};
    return violation;
  }

  std::set<std::string> told_;
};

}  // namespace

std::unique_ptr<Check> make_parts() { return std::make_unique<Parts>(); }

}  // namespace ttrace::builtin
