// SPDX-License-Identifier: Apache-2.0
// See mutual.hpp.
#include "libttrace/mutual.hpp"

#include <algorithm>
#include <deque>
#include <set>

#include "libttrace/inference_classes.hpp"

namespace ttrace {
namespace {

constexpr double kFits = 0.9;             // of the sampled elements, under both layouts
constexpr std::size_t kMembers = 4;       // of a class that are looked at
constexpr std::size_t kMostShapes = 256;  // logical shapes that are tried

bool is_open(const LayoutDecision& decision) { return !decision.known || decision.assumed; }

// The tensor whose layout this one has, too: a gradient's or a state's parameter, an output.
Key leader_of(const Key& key) {
  Key leader = key;
  if (key.phase == Phase::grad || key.phase == Phase::step) {
    leader.phase = Phase::param;
    leader.microbatch = -1;
    leader.call = 0;
    leader.slot = "value";
  } else if (key.phase == Phase::backward && key.slot.rfind("grad_", 0) == 0) {
    leader.phase = Phase::forward;
    leader.slot = key.slot.substr(5);
  }
  return leader;
}

// Shapes that shards of this shape may be of: each axis cuts one dimension, or none.
std::set<Shape> logical_shapes(const Shape& local, const RankMesh& mesh) {
  std::set<Shape> shapes{local};
  for (const MeshAxis& axis : mesh.axes) {
    std::set<Shape> more = shapes;
    for (const Shape& shape : shapes) {
      for (std::size_t dim = 0; dim < shape.size(); ++dim) {
        Shape grown = shape;
        grown[dim] *= axis.size;
        if (more.size() < kMostShapes) more.insert(std::move(grown));
      }
    }
    shapes = std::move(more);
  }
  return shapes;
}

FamilyQuestion question_of(const std::vector<Shard>& shards, const Shape& global, bool parameter) {
  FamilyQuestion question;
  std::vector<Coordinates> places;
  for (const Shard& shard : shards) {
    question.sites.push_back({shard.where, shard.record->shape});
    places.push_back(shard.where);
  }
  question.global = global;
  question.mesh = mesh_of(places);
  question.may_pad = parameter;
  return question;
}

// Both runs have the same cut, whatever it is: shards are compared rank by rank.
bool cut_alike(const std::vector<Shard>& own, const std::vector<Shard>& theirs) {
  return std::equal(own.begin(), own.end(), theirs.begin(), theirs.end(),
                    [](const Shard& one, const Shard& other) {
                      return one.rank == other.rank && one.record->shape == other.record->shape;
                    });
}

// The cuts of parameters that no size suggests: activations may have them, too.
void learn_cuts(const ShardGroups& groups, const LayoutDecisions& decisions, CutLessons& lessons) {
  for (const auto& [key, decision] : decisions) {
    if (key.phase != Phase::param || !decision.known) continue;
    const Shape& local = groups.at(key).front().record->shape;
    for (std::size_t dim = 0; dim < std::min(local.size(), decision.global_shape.size()); ++dim) {
      const std::vector<Cut>& cuts = decision.layout.dims[dim];
      const bool special = std::any_of(
          cuts.begin(), cuts.end(), [](const Cut& cut) { return cut.kind == CutKind::sections; });
      if (special) lessons.add({decision.global_shape[dim], local[dim]}, cuts);
    }
  }
}

// Of both runs, as far as the layouts of their parameters are known.
CutLessons lessons_of(const ShardGroups& reference, const LayoutDecisions& decisions,
                      const ShardGroups& candidate, const std::vector<LayoutRule>& rules) {
  CutLessons lessons;
  learn_cuts(reference, decisions, lessons);
  const auto parameters_of = [](const ShardGroups& groups) {
    ShardGroups parameters;
    for (const auto& [key, shards] : groups) {
      if (key.phase == Phase::param) parameters.emplace(key, shards);
    }
    return parameters;
  };
  const LogicalTensors known = place_all(parameters_of(reference), decisions);
  LogicalTensors proved;
  for (const auto& [key, tensor] : known) {
    if (tensor.proved()) proved.emplace(key, tensor);
  }
  const ShardGroups theirs = parameters_of(candidate);
  learn_cuts(theirs, infer_layouts(proved, theirs, rules).decisions, lessons);
  return lessons;
}

// Classes of keys that both runs have in shards of which neither knows the layout.
class JointSearch {
 public:
  JointSearch(const ShardGroups& reference, const ShardGroups& candidate, CutLessons lessons)
      : reference_(reference), candidate_(candidate), lessons_(std::move(lessons)) {
    documents_.add(reference);
    documents_.add(candidate);
  }

  void add(const Key& key) {
    const std::vector<Shard>& own = reference_.at(key);
    const std::string name = std::string(name_of(key.phase)) + "/" + starred(key.module) + "/" +
                             key.slot + "/" + bracketed(own.front().record->shape) + "/" +
                             bracketed(candidate_.at(key).front().record->shape);
    classes_[name].push_back(&key);
  }

  void decide(LayoutDecisions& decisions) const {
    for (const auto& [name, keys] : classes_) {
      std::optional<Hypothesis> best = best_of(name, keys, reference_, candidate_);
      if (!best) {  // ours may be addends: under the best layout of theirs
        const std::optional<Hypothesis> other = best_of(name, keys, candidate_, reference_);
        if (other) best = answer_to(name, keys, *other, candidate_, reference_);
      }
      if (!best) continue;
      LayoutDecision decision;
      decision.global_shape = best->global;
      decision.reason = "content: the simplest that both runs have";
      for (const Key* key : keys) {
        decision.layout = with_documents(best->layout, documents_of(*key));
        decisions[*key] = decision;
      }
    }
  }

 private:
  using Keys = std::vector<const Key*>;

  // A few, spread over the class.
  static Keys tried_of(const Keys& keys) {
    Keys tried;
    const std::size_t count = std::min(kMembers, keys.size());
    for (std::size_t i = 0; i < count; ++i) tried.push_back(keys[i * keys.size() / count]);
    return tried;
  }

  // nullptr where nothing is packed.
  [[nodiscard]] const Documents* documents_of(const Key& key) const {
    return documents_.packed() && key.microbatch >= 0 ? documents_.of(key) : nullptr;
  }
  [[nodiscard]] std::vector<const Documents*> documents_of(const Keys& keys) const {
    std::vector<const Documents*> known;
    for (const Key* key : keys) {
      const Documents* own = documents_of(*key);
      if (own == nullptr) continue;
      if (std::find(known.begin(), known.end(), own) == known.end()) known.push_back(own);
    }
    return known;
  }

  // The layout of `own` under which `theirs` have one that agrees best.
  [[nodiscard]] std::optional<Hypothesis> best_of(const std::string& name, const Keys& keys,
                                                  const ShardGroups& own_groups,
                                                  const ShardGroups& theirs) const {
    const std::vector<Shard>& own = own_groups.at(*keys.front());
    const bool parameter = keys.front()->phase == Phase::param;
    std::optional<Hypothesis> best;
    double best_fit = kFits;
    const RankMesh mesh = question_of(own, {}, parameter).mesh;
    for (const Shape& shape : logical_shapes(own.front().record->shape, mesh)) {
      FamilyQuestion question = question_of(own, shape, parameter);
      question.documents = documents_of(keys);
      for (const Hypothesis& hypothesis : exact_members(question, lessons_)) {
        const double fit = verdict_on(name, keys, hypothesis, own_groups, theirs).fit;
        const bool better =
            fit > best_fit || (best && fit == best_fit && simpler(hypothesis, *best));
        if (!better) continue;
        best_fit = fit;
        best = hypothesis;
      }
    }
    return best;
  }

  [[nodiscard]] std::optional<Hypothesis> answer_to(const std::string& name, const Keys& keys,
                                                    const Hypothesis& hypothesis,
                                                    const ShardGroups& own,
                                                    const ShardGroups& theirs) const {
    ClassVerdict verdict = verdict_on(name, keys, hypothesis, own, theirs);
    if (verdict.standing.empty()) return std::nullopt;
    return std::move(verdict.standing.front());
  }

  // How `theirs` agree, under their best layout, with `own` under this one. A fit of 0: not at all.
  [[nodiscard]] ClassVerdict verdict_on(const std::string& name, const Keys& keys,
                                        const Hypothesis& hypothesis, const ShardGroups& own,
                                        const ShardGroups& theirs) const {
    LayoutDecision decision;
    decision.global_shape = hypothesis.global;
    std::deque<LogicalTensor> tensors;
    ClassOfTensors tried;
    tried.name = name;
    for (const Key* tried_key : tried_of(keys)) {
      const Key& key = *tried_key;
      decision.layout = with_documents(hypothesis.layout, documents_of(key));
      tensors.push_back(place_shards(key, own.at(key), decision));
      if (!tensors.back().proved()) return {};  // copies that are none, say
      tried.members.push_back({&key, &theirs.at(key), &tensors.back(), documents_of(key)});
    }
    tried.question = question_of(*tried.members.front().shards, hypothesis.global, false);
    tried.question.documents = documents_of(keys);
    ClassVerdict verdict = ttrace::decide(tried, lessons_);
    const bool output = keys.front()->slot.rfind("output", 0) == 0;
    if (output && keys.front()->phase == Phase::forward) find_sum(tried, lessons_, verdict);
    if (!verdict.varied) verdict.fit = 0;
    return verdict;
  }

  const ShardGroups& reference_;
  const ShardGroups& candidate_;
  const CutLessons lessons_;
  DocumentTable documents_;
  std::map<std::string, std::vector<const Key*>> classes_;
};

void learn_from_whole(const ShardGroups& reference, const ShardGroups& candidate,
                      const std::vector<LayoutRule>& rules, LayoutDecisions& decisions) {
  const LayoutDecisions declared = declared_layouts(candidate, rules);
  LogicalTensors shown = place_all(candidate, declared);
  for (auto at = shown.begin(); at != shown.end();) {
    const bool sure = at->second.proved() && !declared.at(at->first).assumed;
    at = sure ? std::next(at) : shown.erase(at);
  }
  Inference inference = infer_layouts(shown, reference, rules);
  for (auto& [key, decision] : decisions) {
    const auto learned = inference.decisions.find(key);
    if (!is_open(decision) || learned == inference.decisions.end()) continue;
    if (!learned->second.known || shown.count(key) == 0) continue;
    decision = std::move(learned->second);
    decision.reason += ", by the candidate's tensor";
  }
}

void follow_leaders(const ShardGroups& reference, LayoutDecisions& decisions) {
  for (auto& [key, decision] : decisions) {
    const Key leader = leader_of(key);
    const auto theirs = decisions.find(leader);
    if (!is_open(decision) || leader == key || theirs == decisions.end()) continue;
    const std::vector<Shard>& own = reference.at(key);
    const std::vector<Shard>& shards = reference.at(leader);
    const bool alike = theirs->second.known && own.size() == shards.size() &&
                       own.front().record->shape == shards.front().record->shape;
    if (!alike) continue;
    decision = theirs->second;
    decision.layout.partial.clear();
    decision.reason = leader.phase == Phase::param ? "like its parameter" : "like " + leader.slot;
  }
}

}  // namespace

void learn_layouts(const ShardGroups& reference, const ShardGroups& candidate,
                   const std::vector<LayoutRule>& rules, LayoutDecisions& decisions) {
  const auto open = [](const auto& decision) { return is_open(decision.second); };
  if (std::none_of(decisions.begin(), decisions.end(), open)) return;
  learn_from_whole(reference, candidate, rules, decisions);
  if (std::none_of(decisions.begin(), decisions.end(), open)) return;
  JointSearch search(reference, candidate, lessons_of(reference, decisions, candidate, rules));
  for (const auto& [key, decision] : decisions) {
    const bool leads = key.phase == Phase::param || key.phase == Phase::forward;
    if (!is_open(decision) || !leads || candidate.count(key) == 0) continue;
    if (!cut_alike(reference.at(key), candidate.at(key))) search.add(key);
  }
  search.decide(decisions);
  follow_leaders(reference, decisions);
}

}  // namespace ttrace
