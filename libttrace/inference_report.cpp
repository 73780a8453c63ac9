// SPDX-License-Identifier: Apache-2.0
// Findings of inference. The one judgement here: ranks may keep tokens in an order of their own
// (sorted by expert). If a tensor agrees with the reference under no layout while the module around
// it returns what the reference returns, it is in such an order and cannot be compared; if the
// module around it is wrong too, it is compared and found wrong.
#include "libttrace/inference_report.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "libttrace/inference_classes.hpp"

namespace ttrace {
namespace {

constexpr double kAgrees = 0.9;
constexpr double kChance = 0.2;  // what unrelated values reach
constexpr std::uint64_t kFewSamples = 16;
const std::string kRankAxis = "rank";  // of ranks that no declared axis sets apart

std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string ranks_text(const FamilyQuestion& question) {
  std::string text =
      std::to_string(question.sites.size()) + (question.sites.size() == 1 ? " rank" : " ranks");
  std::string axes;
  for (const MeshAxis& axis : question.mesh.axes) {
    if (axis.name == kRankAxis) continue;
    axes += (axes.empty() ? "" : ", ") + axis.name + " " + std::to_string(axis.size);
  }
  const bool alone = question.mesh.axes.empty();
  return text + (alone ? "" : axes.empty() ? " (no mesh axis is declared)" : " (" + axes + ")");
}

// The first axis of a layout on which no two of these shards are apart.
std::optional<std::string> unknown_axis(const Layout& layout, const FamilyQuestion& question) {
  std::vector<std::string> axes = layout.partial;
  for (const std::vector<Cut>& cuts : layout.dims) {
    for (const Cut& cut : cuts) axes.push_back(cut.axis);
  }
  for (const std::string& axis : axes) {
    const std::string name = axis.substr(0, axis.find('/'));
    const bool known =
        std::any_of(question.sites.begin(), question.sites.end(),
                    [&](const ShardSite& site) { return site.where.count(name) != 0; });
    if (!known) return name;
  }
  return std::nullopt;
}

std::string locals_text(const FamilyQuestion& question) {
  std::string text;
  for (const ShardSite& site : question.sites) {
    const std::string shown = bracketed(site.local);
    if (text.find(shown) == std::string::npos) text += (text.empty() ? "" : ", ") + shown;
  }
  return text;
}

// "outer.inner.leaf" -> "outer.inner" -> "outer" -> "@root" -> "".
std::string parent_of(const std::string& module) {
  if (module == kRootModule) return "";
  const std::size_t dot = module.rfind('.');
  return dot == std::string::npos ? std::string(kRootModule) : module.substr(0, dot);
}

bool is_activation(const ClassOfTensors& tensors) {
  const Phase phase = tensors.members.front().key->phase;
  return phase == Phase::forward || phase == Phase::recompute || phase == Phase::backward;
}

}  // namespace

std::string why_misfit(const Layout& declared, const FamilyQuestion& question) {
  const std::optional<std::string> axis = unknown_axis(declared, question);
  if (!axis) return "does not give the shards' shapes";
  std::set<std::string> names;
  for (const ShardSite& site : question.sites) {
    for (const auto& [name, position] : site.where) {
      if (name != kRankAxis && name != kTurnAxis) names.insert(name);
    }
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return "does not give the shards' shapes: no axis of more than one rank is called " + *axis +
         ", " + (all.empty() ? "none is declared" : "there are " + all);
}

InferenceReport::Agreement InferenceReport::agreement_of(const ClassVerdict& verdict) {
  if (verdict.standing.empty()) return Agreement::local_order;
  // Values that are all alike (losses per token) agree wherever they come from.
  if (verdict.informative < kFewSamples || !verdict.varied) return Agreement::silent;
  if (verdict.fit >= kAgrees) return Agreement::agrees;
  const bool chance = std::all_of(verdict.best_fits.begin(), verdict.best_fits.end(),
                                  [](double fit) { return fit < kChance; });
  return chance ? Agreement::local_order : Agreement::differs;
}

void InferenceReport::note_outputs(const std::vector<DecidedClass>& classes) {
  for (const DecidedClass& decided : classes) {
    const Key& key = *decided.tensors.members.front().key;
    if (key.phase != Phase::forward || key.slot.rfind("output", 0) != 0) continue;
    outputs_[starred(key.module)].push_back(agreement_of(decided.verdict));
  }
}

// Whether the nearest module around this one whose outputs are comparable returns the right ones.
bool InferenceReport::ancestor_agrees(const ClassOfTensors& tensors) const {
  std::string module = parent_of(starred(tensors.members.front().key->module));
  for (; !module.empty(); module = parent_of(module)) {
    const auto outputs = outputs_.find(module);
    if (outputs == outputs_.end()) continue;
    const auto has = [&](Agreement agreement) {
      return std::count(outputs->second.begin(), outputs->second.end(), agreement) > 0;
    };
    if (has(Agreement::differs)) return false;
    if (has(Agreement::agrees)) return true;
  }
  return false;
}

std::string InferenceReport::report(const DecidedClass& decided, FindingKind kind,
                                    const std::string& message) {
  const Key& any = *decided.tensors.members.front().key;
  std::string name = std::string(name_of(kind)) + " " + std::string(name_of(any.phase)) + "/" +
                     starred(any.module) + "/" + any.slot;
  if (kind == FindingKind::layout_contradicted) name += " " + message;
  const auto [place, is_new] = told_.try_emplace(name);
  place->second.tensors += decided.tensors.members.size();
  const auto first = std::min_element(
      decided.tensors.members.begin(), decided.tensors.members.end(),
      [](const ClassMember& one, const ClassMember& other) { return *one.key < *other.key; });
  Finding& finding = place->second.finding;
  if (!is_new && finding.key < *first->key) return message;
  finding.kind = kind;
  finding.key = *first->key;
  finding.message = message;
  finding.evidence = {{"reference shape", bracketed(decided.tensors.question.global)},
                      {"shards", locals_text(decided.tensors.question)},
                      {"ranks", ranks_text(decided.tensors.question)}};
  if (!decided.verdict.tried.empty()) finding.evidence.emplace_back("tried", decided.verdict.tried);
  return message;
}

std::string InferenceReport::explain_misfit(const DecidedClass& decided) {
  const FamilyQuestion& question = decided.tensors.question;
  const std::string global = bracketed(question.global);
  if (decided.verdict.other_shape) {
    return report(decided, FindingKind::shape_differs,
                  "the reference's shape is " + global + ", the candidate declares " +
                      bracketed(*decided.verdict.other_shape));
  }
  const std::string shards = locals_text(question) + " on " + ranks_text(question);
  const bool activation = is_activation(decided.tensors);
  if (activation && ancestor_agrees(decided.tensors)) {
    return report(decided, FindingKind::layout_unknown,
                  "not comparable: no layout makes " + global + " of shards " + shards +
                      ", while the module around it agrees: a local order");
  }
  if (question.sites.front().local.size() != question.global.size()) {
    return report(decided, FindingKind::layout_unknown,
                  "not comparable: shards " + shards +
                      " have not the dimensions of the reference's " + global +
                      "; declare their layout");
  }
  return report(
      decided, FindingKind::shape_differs,
      "the reference's shape is " + global + ", which no layout makes of shards " + shards);
}

std::string InferenceReport::examine(const DecidedClass& decided, bool parallel) {
  const ClassVerdict& verdict = decided.verdict;
  if (verdict.standing.empty()) return explain_misfit(decided);
  if (verdict.contradicted) {
    std::string fits =
        "the declared one " + why_misfit(*decided.tensors.declared, decided.tensors.question);
    for (const Documents* documents : decided.tensors.question.documents) {
      const std::string missing = missing_documents(*decided.tensors.declared, documents);
      if (!missing.empty()) fits = untold_documents(missing);
    }
    if (verdict.declared_fit) {
      fits = "agreement " + decimal(*verdict.declared_fit) + " against " + decimal(verdict.fit);
    }
    report(decided, FindingKind::layout_contradicted,
           "declared \"" + to_string(*decided.tensors.declared) + "\", content is \"" +
               to_string(verdict.standing.front().layout) + "\" (" + fits + ")");
  }
  if (!parallel || !is_activation(decided.tensors)) return "";
  if (agreement_of(verdict) != Agreement::local_order || !ancestor_agrees(decided.tensors)) {
    return "";
  }
  return report(decided, FindingKind::layout_unknown,
                "not comparable: under no layout more than " + decimal(kChance) +
                    " of the elements agree, while the module around it does: a local order, or "
                    "sums still to be made");
}

void InferenceReport::conflict(const Key& key, const std::string& declarations) {
  Finding finding;
  finding.kind = FindingKind::layout_contradicted;
  finding.key = key;
  finding.message = "ranks contradict each other: " + declarations;
  findings_.push_back(std::move(finding));
}

void InferenceReport::undeclared(const Key& key, const std::string& why) {
  Finding finding;
  finding.kind = FindingKind::layout_unknown;
  finding.key = key;
  finding.message = "not comparable: " + why;
  findings_.push_back(std::move(finding));
}

std::vector<Finding> InferenceReport::take() {
  for (auto& [name, told] : told_) {
    told.finding.evidence.emplace_back("tensors", std::to_string(told.tensors));
    findings_.push_back(std::move(told.finding));
  }
  told_.clear();
  std::stable_sort(findings_.begin(), findings_.end(),
                   [](const Finding& one, const Finding& other) { return one.key < other.key; });
  return std::exchange(findings_, {});
}

}  // namespace ttrace
