// SPDX-License-Identifier: Apache-2.0
// Decides which layout every candidate tensor has, in this order:
//   parameters         by content: before the first step they equal the reference's
//   gradients, states  like their parameter, never by content: a wrong reduction would be explained
//                      away instead of found
//   activations        by content, class by class, ties like their peers
//   their gradients    like the activation
// A layout only relabels elements. A relabelling that is an error changes the next module's output,
// so inference can move a finding by one module at most, provided that the last tensors of a step
// (reduced gradients, updated parameters) are never decided by their own content.
#include <algorithm>
#include <set>

#include "libttrace/inference_classes.hpp"
#include "libttrace/inference_report.hpp"

namespace ttrace {
namespace {

using DecidedClasses = std::vector<DecidedClass>;

class LayoutInference {
 public:
  LayoutInference(const std::map<Key, LogicalTensor>& reference, const ShardGroups& candidate,
                  const std::vector<LayoutRule>& rules)
      : reference_(reference),
        candidate_(candidate),
        declarations_(rules),
        table_(declarations_, candidate) {
    documents_.add(reference);
    documents_.add(candidate);
  }

  Inference run() {
    decide_parameters();
    follow_all({Phase::grad, Phase::step});
    decide_phase(Phase::forward);
    follow_all({Phase::recompute, Phase::backward});
    return {std::move(decisions_), report_.take()};
  }

 private:
  // The reference's tensor of that name; the two sides may count iterations from different starts.
  const LogicalTensor* reference_for(Key key) const {
    auto found = reference_.find(key);
    if (found == reference_.end() && !reference_.empty()) {
      const std::int64_t first = reference_.begin()->first.iteration;
      const bool single =
          first == reference_.rbegin()->first.iteration &&
          candidate_.begin()->first.iteration == candidate_.rbegin()->first.iteration;
      key.iteration = first;
      if (single) found = reference_.find(key);
    }
    return found == reference_.end() ? nullptr : &found->second;
  }

  void decide_parameters() {
    std::vector<const Key*> first;
    for (const auto& [key, shards] : candidate_) {
      if (key.phase != Phase::param) continue;
      const bool is_first = parameters_.emplace(std::pair(key.module, key.slot), &key).second;
      (is_first ? first : followers_).push_back(&key);
    }
    decide_keys(first, "");
    for (const Key* key : std::exchange(followers_, {})) follow(*key);
    decide_keys(std::exchange(followers_, {}), "its shape is not that of the first iteration");
  }

  void decide_phase(Phase phase) {
    std::vector<const Key*> keys;
    for (const auto& [key, shards] : candidate_) {
      if (key.phase == phase) keys.push_back(&key);
    }
    decide_keys(keys, "");
  }

  void follow_all(const std::set<Phase>& phases) {
    for (const auto& [key, shards] : candidate_) {
      if (phases.count(key.phase) != 0) follow(key);
    }
    decide_keys(std::exchange(followers_, {}),
                "it has another local shape than what it follows, or nothing to follow");
  }

  // The key whose layout this one has, nullptr when it was not captured.
  const Key* leader_of(const Key& key) const {
    if (key.phase == Phase::recompute || key.phase == Phase::backward) {
      Key output = key;
      output.phase = Phase::forward;
      if (output.slot.rfind("grad_", 0) == 0) output.slot.erase(0, 5);
      const auto found = candidate_.find(output);
      return found == candidate_.end() ? nullptr : &found->first;
    }
    const auto found = parameters_.find({key.module, "value"});
    return found == parameters_.end() || *found->second == key ? nullptr : found->second;
  }

  void follow(const Key& key) {
    const Key* leader = leader_of(key);
    const auto decision = leader == nullptr ? decisions_.end() : decisions_.find(*leader);
    if (decision == decisions_.end() || !reference_knows(*leader) ||
        !same_local_shapes(candidate_.at(key), candidate_.at(*leader))) {
      followers_.push_back(&key);
      return;
    }
    if (declares_otherwise(key, *leader)) return take_declaration(key, reference_for(key));
    LayoutDecision followed = decision->second;
    const bool parameter = leader->phase == Phase::param;
    followed.reason = parameter ? "like its parameter" : "like forward " + leader->slot;
    if (!followed.known) followed.reason += ", which has none: " + decision->second.reason;
    add_own_declaration(key, followed);
    decisions_[key] = std::move(followed);
  }

  // Whether the program itself says that this tensor is cut in another way than its leader.
  bool declares_otherwise(const Key& key, const Key& leader) {
    const Declaration own = declarations_.of(key, candidate_.at(key));
    const Declaration leaders = declarations_.of(leader, candidate_.at(leader));
    return own.layout && leaders.layout && own.layout->dims != leaders.layout->dims;
  }

  // Whether the declaration is only that of the leader, whose local shape is another: it was made
  // for the parameter and says nothing of a gradient that is sharded in another way.
  bool repeats_misfit(const Key& key, const Declaration& own) {
    const Key* leader = leader_of(key);
    if (leader == nullptr || !own.layout || own.flat) return false;
    const std::vector<Shard>& leaders = candidate_.at(*leader);
    const Declaration said = declarations_.of(*leader, leaders);
    return said.layout && said.layout->dims == own.layout->dims &&
           !same_local_shapes(candidate_.at(key), leaders);
  }

  bool reference_knows(const Key& key) const {
    return decisions_.at(key).known || reference_for(key) != nullptr;
  }

  // What a follower declares beyond the cuts: its piece of the flattened shard, a sum to be made.
  void add_own_declaration(const Key& key, LayoutDecision& followed) {
    const Declaration own = declarations_.of(key, candidate_.at(key));
    followed.layout.flat.reset();
    followed.layout.partial.clear();
    if (!own.layout) return;
    followed.layout.flat = own.layout->flat;
    followed.layout.partial = own.layout->partial;
  }

  bool same_local_shapes(const std::vector<Shard>& shards, const std::vector<Shard>& leaders) {
    return std::all_of(shards.begin(), shards.end(), [&](const Shard& shard) {
      const Shape local = declarations_.local_shape(shard);
      const auto is_leader = [&](const Shard& leader) { return leader.rank == shard.rank; };
      const auto own = std::find_if(leaders.begin(), leaders.end(), is_leader);
      if (own != leaders.end()) return declarations_.local_shape(*own) == local;
      return std::any_of(leaders.begin(), leaders.end(), [&](const Shard& leader) {
        return declarations_.local_shape(leader) == local;
      });
    });
  }

  // Decides these keys by content and shape. `because`: why they do not follow another tensor.
  void decide_keys(const std::vector<const Key*>& keys, const std::string& because) {
    for (const Key* key : keys) {
      const std::vector<Shard>& shards = candidate_.at(*key);
      const LogicalTensor* reference = reference_for(*key);
      Declaration declaration = declarations_.of(*key, shards);
      if (!declaration.conflict.empty()) report_.conflict(*key, declaration.conflict);
      if (repeats_misfit(*key, declaration)) declaration.layout.reset();
      if (reference != nullptr) complete(declaration, reference->shape, shards.front().where);
      if (reference == nullptr || declaration.flat ||
          (declaration.layout && !declaration.layout->partial.empty())) {
        take_declaration(*key, reference);
      } else {
        table_.add(*key, shards, *reference, declaration,
                   documents_of(*reference, declaration.layout));
      }
    }
    DecidedClasses classes;
    for (ClassOfTensors& tensors : table_.take()) classes.push_back({std::move(tensors), {}});
    decide_classes(classes);
    report_.note_outputs(classes);
    for (DecidedClass& decided : classes) settle(decided, because);
  }

  // nullptr where nothing is packed: then no tensor is asked whether it is cut by documents.
  const Documents* documents_of(const LogicalTensor& reference,
                                const std::optional<Layout>& declared) const {
    const bool asked = declared && !missing_documents(*declared, nullptr).empty();
    const bool in_microbatch = reference.key.microbatch >= 0;
    return in_microbatch && (asked || documents_.packed()) ? documents_.of(reference.key) : nullptr;
  }

  // What content cannot check: flat pieces, sums still to be made, tensors the reference lacks.
  void take_declaration(const Key& key, const LogicalTensor* reference) {
    const std::vector<Shard>& shards = candidate_.at(key);
    Declaration declaration = declarations_.of(key, shards);
    if (reference != nullptr) complete(declaration, reference->shape, shards.front().where);
    LayoutDecision& decision = decisions_[key];
    decision.known = false;
    decision.reason = "the reference has no such tensor";
    if (!declaration.layout) return;
    FamilyQuestion question;
    for (const Shard& shard : shards) {
      question.sites.push_back({shard.where, declarations_.local_shape(shard)});
    }
    const std::optional<Shape> declared = declaration.layout->global_shape;
    if (!declared && reference == nullptr) return;
    question.global = declared ? *declared : reference->shape;
    const Documents* documents = documents_.of(reference == nullptr ? key : reference->key);
    question.documents = {documents};
    auto fitting = fit_to_shape(*declaration.layout, question.global, question);
    decision.known = fitting.has_value();
    if (decision.known) {
      decision.layout = with_documents(std::move(fitting->layout), documents);
      decision.global_shape = question.global;
      decision.reason = "declared (" + declaration.layout->source + "), not checked by content";
    } else {
      decision.reason = "declared \"" + to_string(*declaration.layout) + "\" of " +
                        bracketed(question.global) + " " +
                        why_misfit(*declaration.layout, question);
      report_.undeclared(key, decision.reason);
    }
  }

  void decide_classes(DecidedClasses& classes) {
    for (DecidedClass& decided : classes) {
      decided.verdict = decide(decided.tensors, lessons_);
      const Key& any = *decided.tensors.members.front().key;
      const bool output = any.phase == Phase::forward && any.slot.rfind("output", 0) == 0;
      if (output) find_sum(decided.tensors, lessons_, decided.verdict);
      learn_cuts(decided);
    }
    for (DecidedClass& decided : classes) {
      const bool parameter = decided.tensors.question.may_pad;
      if (parameter && !decided.verdict.unique() && !decided.verdict.other_shape) {
        decided.verdict = decide(decided.tensors, lessons_);  // with what all parameters taught
        ask_gradients(decided);
      }
      learn_peers(decided);
    }
    for (DecidedClass& decided : classes) {
      ClassVerdict& verdict = decided.verdict;
      if (verdict.standing.size() < 2) continue;
      const Shape& local = decided.tensors.question.sites.front().local;
      const bool parameter = decided.tensors.question.may_pad;
      if (peers_[parameter].narrow(verdict, local) || peers_[!parameter].narrow(verdict, local)) {
        verdict.reason += ", cut like its peers";
      }
      if (verdict.standing.size() < 2) continue;
      verdict.assumed = true;
      verdict.reason = "assumed: the simplest of " + std::to_string(verdict.standing.size()) +
                       " layouts that fit equally well";
    }
  }

  void learn_cuts(const DecidedClass& decided) {
    const FamilyQuestion& question = decided.tensors.question;
    if (!question.may_pad || !decided.verdict.unique()) return;
    const Hypothesis& winner = decided.verdict.standing.front();
    const Shape& local = question.sites.front().local;
    for (std::size_t dim = 0; dim < local.size(); ++dim) {
      const std::vector<Cut>& cuts = winner.layout.dims[dim];
      const CutLessons::Extents extents{question.global[dim], local[dim]};
      if (winner.global[dim] != question.global[dim]) lessons_.padded[extents] = winner.global[dim];
      const bool special = std::any_of(cuts.begin(), cuts.end(), [](const Cut& cut) {
        return cut.kind == CutKind::sections || cut.axis.find('/') != std::string::npos;
      });
      if (special) lessons_.add(extents, cuts);
    }
  }

  void learn_peers(const DecidedClass& decided) {
    if (decided.verdict.standing.empty()) return;
    const FamilyQuestion& question = decided.tensors.question;
    peers_[question.may_pad].learn(decided.verdict, question.sites.front().local);
  }

  // Constant parameters (ones, zeros) fit every layout; their first gradient does not.
  void ask_gradients(DecidedClass& decided) {
    if (decided.verdict.standing.size() < 2) return;
    ClassOfTensors gradients{decided.tensors.name, decided.tensors.question, {}, std::nullopt};
    for (const ClassMember& member : decided.tensors.members) {
      Key key = *member.key;
      key.phase = Phase::grad;
      key.slot = "reduced";
      const auto found = candidate_.find(key);
      const LogicalTensor* reference = reference_for(key);
      if (found == candidate_.end() || reference == nullptr) continue;
      const bool alike = reference->shape == gradients.question.global &&
                         !declarations_.of(key, found->second).flat &&
                         same_local_shapes(found->second, *member.shards);
      if (!alike) continue;
      gradients.members.push_back({&found->first, &found->second, reference, nullptr});
    }
    const std::size_t before = decided.verdict.standing.size();
    narrow(decided.verdict, observe(gradients), seed_of(gradients.name));
    if (decided.verdict.standing.size() < before) decided.verdict.reason += " of the gradients";
  }

  // Turns the verdict of a class into decisions of its members, and findings.
  void settle(DecidedClass& decided, const std::string& because) {
    if (!table_.parallel() && decided.verdict.standing.empty() && !decided.verdict.other_shape) {
      return leave_whole(decided);
    }
    const std::string unknown = report_.examine(decided, table_.parallel());
    const ClassVerdict& verdict = decided.verdict;
    LayoutDecision decision;
    decision.known = unknown.empty();
    decision.reason = decision.known ? verdict.reason : unknown;
    if (decision.known && !because.empty()) decision.reason += " (" + because + ")";
    if (decision.known) {
      decision.layout = verdict.standing.front().layout;
      decision.global_shape = verdict.standing.front().global;
      decision.padded = decision.global_shape != decided.tensors.question.global;
      decision.assumed = verdict.assumed;
      decision.fit = verdict.fit;
    }
    const Layout layout = decision.layout;
    for (const ClassMember& member : decided.tensors.members) {
      decision.layout = with_documents(layout, member.documents);
      decisions_[*member.key] = decision;
    }
  }

  // A single rank cuts nothing: of another shape than the reference's is what another number of
  // tokens was routed to.
  void leave_whole(const DecidedClass& decided) {
    LayoutDecision decision;
    decision.global_shape = decided.tensors.question.sites.front().local;
    decision.layout.dims.resize(decision.global_shape.size());
    decision.reason = "a single rank has all of it";
    for (const ClassMember& member : decided.tensors.members) decisions_[*member.key] = decision;
  }

  const std::map<Key, LogicalTensor>& reference_;
  const ShardGroups& candidate_;
  Declarations declarations_;
  DocumentTable documents_;
  ClassTable table_;
  InferenceReport report_;
  CutLessons lessons_;
  Peers peers_[2];  // of activations, of parameters
  std::map<std::pair<std::string, std::string>, const Key*> parameters_;  // (name, slot): the first
  std::vector<const Key*> followers_;  // that found nothing to follow
  LayoutDecisions decisions_;
};

}  // namespace

Inference infer_layouts(const std::map<Key, LogicalTensor>& reference, const ShardGroups& candidate,
                        const std::vector<LayoutRule>& rules) {
  if (candidate.empty()) return {};
  return LayoutInference(reference, candidate, rules).run();
}

}  // namespace ttrace
