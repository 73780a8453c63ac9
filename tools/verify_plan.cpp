// SPDX-License-Identifier: Apache-2.0
// See verify_plan.hpp.
#include "tools/verify_plan.hpp"

#include <system_error>

namespace ttrace {
namespace {

namespace fs = std::filesystem;

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

}  // namespace

VerifyPlan::VerifyPlan(const VerifyOptions& options)
    : options_(options), programs_(fs::read_symlink("/proc/self/exe").parent_path()) {
  std::error_code error;
  for (const char* name : {"ttrace-capture", "ttrace-merge", "ttrace-diff"}) {
    if (!fs::exists(programs_ / name, error)) {
      throw Trouble("find " + std::string(name), programs_.string(),
                    "is not beside ttrace-verify, install ttrace again");
    }
  }
}

std::size_t VerifyPlan::steps_after_capture() const {
  return options_.reference_high.empty() ? 4 : 5;
}

std::size_t VerifyPlan::steps() const {
  return 1 + options_.candidates.size() * (1 + steps_after_capture());
}

fs::path VerifyPlan::folder(std::size_t index) const {
  return options_.output / options_.names[index];
}

fs::path VerifyPlan::reference_trace() const { return options_.output / "reference.trace"; }

std::string VerifyPlan::program(const std::string& name) const {
  return (programs_ / name).string();
}

Step VerifyPlan::capture(const std::string& owner, const std::string& what,
                         const std::string& command, const fs::path& trace,
                         std::vector<std::string> arguments) const {
  Step step;
  step.kind = StepKind::capture;
  step.owner = owner;
  step.what = what;
  step.command = command;
  step.outputs = {trace};
  step.log = fs::path(trace).replace_extension(".log");
  step.words = {program("ttrace-capture"), "-o", trace.string(), "--overwrite"};
  append(step.words, arguments);
  if (!options_.layout.empty()) append(step.words, {"--layout", options_.layout});
  append(step.words, {"--", "sh", "-c", command});
  return step;
}

Step VerifyPlan::reference() const {
  return capture("reference", "capture", options_.reference, reference_trace(),
                 {"--iterations", options_.iterations});
}

Step VerifyPlan::candidate(std::size_t index, const std::string& reference_id) const {
  std::vector<std::string> arguments = {"--iterations", options_.iterations};
  if (!options_.own_weights) append(arguments, {"--init-from", reference_trace().string()});
  Step step = capture(options_.names[index], "capture", options_.candidates[index],
                      folder(index) / "candidate.trace", arguments);
  if (!options_.own_weights) step.inputs = {{"reference", reference_id}};
  return step;
}

Step VerifyPlan::pack(std::size_t index, const std::string& reference_id,
                      const std::string& candidate_id) const {
  Step step;
  step.kind = StepKind::pack;
  step.owner = options_.names[index];
  step.what = "pack its tensors";
  step.outputs = {folder(index) / "candidate.pack"};
  step.log = folder(index) / "pack.log";
  step.words = {program("ttrace-merge"),
                (folder(index) / "candidate.trace").string(),
                "--pack",
                "--like",
                reference_trace().string(),
                "-o",
                step.outputs[0].string()};
  if (!options_.layout.empty()) append(step.words, {"--layout", options_.layout});
  step.inputs = {{"reference", reference_id}, {"candidate", candidate_id}};
  return step;
}

Step VerifyPlan::replay(std::size_t index, bool high, const std::string& pack_id) const {
  const fs::path pack = folder(index) / "candidate.pack";
  Step step =
      capture(options_.names[index], high ? "replay in high precision" : "replay in the reference",
              high ? options_.reference_high : options_.reference,
              folder(index) / (high ? "high.trace" : "own.trace"), {"--replay", pack.string()});
  step.inputs = {{"pack", pack_id}};
  return step;
}

Step VerifyPlan::compare(std::size_t index, const std::string& what, const std::string& name,
                         std::vector<std::string> arguments) const {
  Step step;
  step.kind = StepKind::compare;
  step.owner = options_.names[index];
  step.what = what;
  for (const char* ending : {".txt", ".json", ".xml"}) {
    step.outputs.push_back(folder(index) / (name + ending));
  }
  step.log = folder(index) / (name + ".log");
  step.words = {program("ttrace-diff")};
  append(step.words, arguments);
  append(step.words, {"--json", step.outputs[1].string(), "--junit", step.outputs[2].string()});
  if (!options_.layout.empty()) append(step.words, {"--layout", options_.layout});
  append(step.words, {"--color", "never", "--top", std::to_string(options_.top)});
  if (options_.verbose) step.words.emplace_back("-v");
  return step;
}

Step VerifyPlan::end_to_end(std::size_t index, const std::string& reference_id,
                            const std::string& candidate_id) const {
  Step step = compare(index, "compare end to end", "end-to-end",
                      {reference_trace().string(), (folder(index) / "candidate.trace").string()});
  step.inputs = {{"reference", reference_id}, {"candidate", candidate_id}};
  return step;
}

Step VerifyPlan::local(std::size_t index, const std::string& candidate_id,
                       const std::string& own_id, const std::string& high_id) const {
  std::vector<std::string> arguments = {(folder(index) / "own.trace").string(),
                                        (folder(index) / "candidate.trace").string()};
  if (!high_id.empty()) append(arguments, {"--high", (folder(index) / "high.trace").string()});
  Step step = compare(index, "compare each module", "local", arguments);
  step.inputs = {{"candidate", candidate_id}, {"replay", own_id}, {"high replay", high_id}};
  return step;
}

}  // namespace ttrace
