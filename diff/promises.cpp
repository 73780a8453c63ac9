// SPDX-License-Identifier: Apache-2.0
// What the reference's own lists promise. Hooks can fail silently; a list of the model's modules
// and parameters, made before any hook runs, cannot fail with them.
#include <algorithm>
#include <map>
#include <set>

#include "diff/align.hpp"

namespace ttrace {
namespace {

// What all ranks together say: ranks of a pipeline know different modules.
template <class Info, class Merge>
std::map<std::string, Info> united(const Trace& trace,
                                   const std::map<std::string, Info> RankInfo::*list, Merge merge) {
  std::map<std::string, Info> all;
  for (const RankInfo& rank : trace.ranks()) {
    for (const auto& [name, info] : rank.*list) {
      const auto [found, added] = all.emplace(name, info);
      if (!added) merge(found->second, info);
    }
  }
  return all;
}

class Promises {
 public:
  Promises(const Side& reference, const std::string& filter, Alignment& alignment)
      : trace_(*reference.trace),
        iteration_(reference.iteration),
        filter_(filter),
        alignment_(alignment) {
    for (const auto& [key, shards] : reference.groups) {
      if (key.phase == Phase::forward && !is_input(key)) outputs_.insert(key.module);
      if (key.phase != Phase::forward) slots_.insert({key.phase, key.module + "/" + key.slot});
      if (shards.front().record->flags & kFlagNoGradient) no_gradient_.insert(key.module);
      trains_ = trains_ || key.phase > Phase::forward;
    }
  }

  void modules() {
    const auto all = united<ModuleInfo>(trace_, &RankInfo::modules,
                                        [](ModuleInfo& into, const ModuleInfo& other) {
                                          into.expected = into.expected || other.expected;
                                          into.calls += other.calls;
                                          into.returned_tensor |= other.returned_tensor;
                                        });
    for (const auto& [name, info] : all) {
      const bool returns_no_tensor = info.calls > 0 && !info.returned_tensor;
      if (!info.expected || returns_no_tensor || outputs_.count(name) != 0) continue;
      add({iteration_, -1, Phase::forward, name, 0, "output.0"},
          info.calls == 0 ? "no call of it was seen" : "its output was not recorded");
    }
  }

  void parameters() {
    const auto all = united<ParameterInfo>(trace_, &RankInfo::parameters,
                                           [](ParameterInfo& into, const ParameterInfo& other) {
                                             into.trainable = into.trainable || other.trainable;
                                           });
    for (const auto& [name, info] : all) {
      parameter(Phase::param, name, "value");
      if (!info.trainable || !trains_) continue;
      if (no_gradient_.count(name) == 0) parameter(Phase::grad, name, "reduced");
      parameter(Phase::step, name, "param");
    }
  }

 private:
  void parameter(Phase phase, const std::string& name, const std::string& slot) {
    if (slots_.count({phase, name + "/" + slot}) != 0) return;
    add({iteration_, -1, phase, name, 0, slot}, "it was not recorded");
  }

  void add(Key key, const std::string& otherwise) {
    if (!matches(filter_, key)) return;
    ++alignment_.expected[static_cast<std::size_t>(key.phase)];
    const std::string reason = reason_in_events(trace_, key);
    alignment_.not_captured.push_back({std::move(key), reason.empty() ? otherwise : reason});
  }

  const Trace& trace_;
  std::int64_t iteration_;
  const std::string& filter_;
  Alignment& alignment_;
  std::set<std::string> outputs_;  // modules with an output
  std::set<std::pair<Phase, std::string>> slots_;
  std::set<std::string> no_gradient_;  // parameters whose gradient was None at the step
  bool trains_ = false;                // there is more than forward passes
};

}  // namespace

void count_promises(const Side& reference, const std::string& filter, Alignment& alignment) {
  Promises promises(reference, filter, alignment);
  promises.modules();
  promises.parameters();
}

}  // namespace ttrace
