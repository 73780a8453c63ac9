// SPDX-License-Identifier: Apache-2.0
// The report for a reader: the verdict first, then what supports it.
#include <algorithm>
#include <cstdio>

#include "diff/judge.hpp"
#include "diff/maker.hpp"
#include "diff/report.hpp"
#include "libttrace/words.hpp"

namespace ttrace {
namespace {

std::string where_text(const OrderedFinding& entry) {
  switch (entry.place.stage) {
    case Stage::data:
      return "in the data";
    case Stage::parameters:
      return "in the initial parameters";
    case Stage::forward:
      return "in the forward pass";
    case Stage::loss:
      return "in the loss";
    case Stage::backward:
      return "in the backward pass";
    case Stage::reduction:
      return "in the gradient reduction";
    case Stage::clip:
      return "in gradient clipping";
    case Stage::step:
      return "in the optimizer step";
  }
  return "";
}

bool is_structural(const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::missing:
    case FindingKind::unexpected:
    case FindingKind::different_data:
    case FindingKind::incomplete_trace:
      return true;
    default:
      return false;
  }
}

class TextReport {
 public:
  TextReport(const Report& report, const TextOptions& options)
      : report_(report), options_(options) {}

  std::string run() {
    verdict();
    if (report_.verdict() == Verdict::differs) findings();
    coverage();
    missing();
    seeds();
    layouts();
    remarks();
    if (options_.verbose) tensors();
    return std::move(text_);
  }

 private:
  void line(const std::string& text) { text_ += text + "\n"; }

  std::string colored(const std::string& text, const char* code) const {
    return options_.color ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
  }

  void verdict() {
    if (report_.verdict() == Verdict::trouble) {
      line(colored("cannot tell", "1;31") + ": " + report_.untested());
      return;
    }
    if (report_.verdict() == Verdict::same) {
      const bool suspicious = jumps();
      std::uint64_t equal = 0;
      for (const PhaseReport& phase : report_.phases) equal += phase.equal;
      line(colored("same", "1;32") + ", up to round-off" +
           (suspicious ? ", in iteration " + std::to_string(report_.iteration) : "") + ": " +
           grouped(report_.compared()) + " of " + grouped(report_.expected()) +
           " expected tensors compared, " + grouped(equal) + " of them bit-equal");
      return;
    }
    const OrderedFinding& first = report_.findings.front();
    const std::string word = colored("differs", "1;31") + ": ";
    if (first.finding.key.module.empty() || is_structural(first.finding)) {
      line(word + first.finding.message);
      return;
    }
    line(word + "the first module that diverges is `" + first.finding.key.module + "`" +
         source_of(first.finding.key) + ", " + where_text(first) + " (" +
         to_string(first.finding.key) +
         (first.maker ? ", computed by the backward of " + maker_text(*first.maker) : "") +
         "): " + first.finding.message);
  }

  // Its own backward is not what has made the gradient that a module's output is given.
  void made_by(const OrderedFinding& entry, const std::string& indent) {
    if (!entry.maker) return;
    const Maker& maker = *entry.maker;
    line(
        indent + "computed by the backward of what takes the output of `" +
        entry.finding.key.module + "`: " + maker_text(maker) +
        (maker.recorded || maker.around ? "" : ", which is next in the forward pass") +
        (maker.agrees ? "; the gradient before it, " + to_string(*maker.agrees) + ", agrees" : ""));
  }

  // What a later iteration has that is no drift. Says whether there is any.
  bool jumps() {
    bool any = false;
    for (const LaterIteration& later : report_.later) {
      if (!later.jump || any) continue;
      any = true;
      const std::string number = std::to_string(later.iteration);
      line(colored("suspicious", "1;33") + ": iteration " + number +
           ", which is not judged, has more than drift: " + jump_text(*later.jump));
      line("  to have it judged: ttrace-diff " + report_.reference + " " + report_.candidate +
           " --iteration " + number + " --rel 0.01, or ttrace-verify --iterations " +
           std::to_string(report_.iteration) + "-" + number +
           " --reference COMMAND --candidate COMMAND");
    }
    return any;
  }

  std::string jump_text(const LaterIteration::Jump& jump) const {
    const bool finite = jump.error < kHugeScore;
    return "the first tensor that leaves what came before it is of `" + jump.key.module + "`" +
           source_of(jump.key) + " (" + to_string(jump.key) + "): " +
           (finite ? "relative error " + short_number(jump.error) + ", " +
                         short_number(jump.score) + " x its limit"
                   : "NaN or Inf on one side only") +
           ", while the " + grouped(jump.before) + " before it are right" +
           (jump.largest_before_name.empty() ? ", bit for bit"
                                             : " up to " + short_number(jump.largest_before) +
                                                   " (" + jump.largest_before_name + ")");
  }

  // " (ColumnParallelLinear, layers.py:123)"
  std::string source_of(const Key& key) const {
    for (const std::string& module : {key.module, module_of(key)}) {
      const auto source = report_.sources.find(module);
      if (source == report_.sources.end()) continue;
      const auto& [name, location] = source->second;
      if (name.empty() && location.empty()) return "";
      return " (" + name + (name.empty() || location.empty() ? "" : ", ") + location + ")";
    }
    return "";
  }

  void evidence(const Finding& finding) {
    std::size_t width = 0;
    for (const auto& [name, value] : finding.evidence) width = std::max(width, name.size());
    for (const auto& [name, value] : finding.evidence) {
      line("  " + name + std::string(width - name.size() + 2, ' ') + value);
    }
  }

  void causes(const OrderedFinding& entry, const std::string& indent) {
    for (const Cause& cause : entry.causes) {
      line(indent + (cause.guess ? "perhaps " : "") + cause.what + " (" + cause.evidence + ")");
    }
  }

  void findings() {
    evidence(report_.findings.front().finding);
    made_by(report_.findings.front(), "  ");
    causes(report_.findings.front(), "  => ");
    const std::uint64_t inherited = report_.inherited();
    if (inherited > 0) line(plural(inherited, "later finding") + " may be its consequence");
    std::vector<const OrderedFinding*> others;
    for (std::size_t i = 1; i < report_.findings.size(); ++i) {
      if (!report_.findings[i].inherited) others.push_back(&report_.findings[i]);
    }
    if (!others.empty()) line("\nnot explained by it:");
    list(others, options_.top);
    if (!options_.verbose || inherited == 0) return;
    std::vector<const OrderedFinding*> rest;
    for (const OrderedFinding& entry : report_.findings) {
      if (entry.inherited) rest.push_back(&entry);
    }
    line("\nmay be consequences:");
    list(rest, std::max<std::size_t>(options_.top, 50));
  }

  void list(const std::vector<const OrderedFinding*>& entries, std::size_t top) {
    for (std::size_t i = 0; i < entries.size() && i < top; ++i) {
      const Finding& finding = entries[i]->finding;
      const std::string name = finding.key.module.empty() ? "" : to_string(finding.key) + ": ";
      line("  " + std::string(name_of(finding.kind)) + ": " + name + finding.message);
      made_by(*entries[i], "    ");
      causes(*entries[i], "    => ");
    }
    if (entries.size() > top) {
      line("  and " + grouped(entries.size() - top) + " more (--top, --json)");
    }
  }

  void coverage() {
    line("");
    line("phase       compared  expected  bit-equal  limit, relative        closest to its limit");
    for (std::size_t i = 0; i < kPhaseCount; ++i) {
      const PhaseReport& phase = report_.phases[i];
      if (phase.expected == 0) continue;
      std::string limit = "equal";
      if (phase.largest_limit > 0) {
        limit = short_number(phase.smallest_limit) + " .. " + short_number(phase.largest_limit);
      }
      char row[160];
      std::snprintf(row, sizeof row, "%-10s %9s %9s %10s  %-21s",
                    std::string(name_of(static_cast<Phase>(i))).c_str(),
                    grouped(phase.compared).c_str(), grouped(phase.expected).c_str(),
                    grouped(phase.equal).c_str(), limit.c_str());
      line(std::string(row) + "  " + closest(phase));
    }
    line(resolution_text(report_));
    line("limits: " + report_.mode + mode_text());
    if (report_.weak) sharper();
  }

  std::string mode_text() const {
    if (report_.weak)
      return " (weak): what rounding may do at that depth, without a run to show it";
    if (report_.mode == "envelope") return ": noise of perturbed runs of the reference";
    if (report_.mode != "local") return "";
    const bool paired =
        std::any_of(report_.tensors.begin(), report_.tensors.end(), [](const TensorLine& tensor) {
          return !tensor.statistic.empty() && tensor.key.phase != Phase::step &&
                 tensor.key.phase != Phase::param;
        });
    return std::string(": each tensor was computed again from the candidate's own inputs, so a ") +
           "difference is introduced where it is; " +
           (paired ? "noise from a replay in higher precision"
                   : "in its own precision only, --high with a replay in a higher one sees smaller "
                     "errors");
  }

  // Weak limits are what can be had without another run; one more run of the reference gives more.
  void sharper() {
    const std::string &reference = report_.reference, &candidate = report_.candidate;
    line("for a sharp verdict: ttrace-verify --reference COMMAND --candidate COMMAND, or by hand:");
    line("  ttrace-merge " + candidate + " --pack --like " + reference +
         " -o PACK; ttrace-capture " +
         "--replay PACK -o OWN.trace -- REFERENCE COMMAND; ttrace-diff OWN.trace " + candidate);
  }

  static std::string closest(const PhaseReport& phase) {
    if (!phase.closest || phase.largest_score == 0) return "-";
    return short_number(phase.largest_score) + " x: " + to_string(*phase.closest);
  }

  void missing() {
    const std::size_t count = report_.not_captured.size();
    if (count == 0) return;
    line("\nexpected, but not captured: " + grouped(count));
    std::map<std::string, std::vector<const NotCaptured*>> reasons;
    for (const NotCaptured& entry : report_.not_captured) reasons[entry.reason].push_back(&entry);
    for (const auto& [reason, entries] : reasons) {
      line("  " + reason + ":");
      const std::size_t top = options_.verbose ? entries.size() : options_.top;
      for (std::size_t i = 0; i < entries.size() && i < top; ++i) {
        const Key& key = entries[i]->key;
        line("    " + std::string(name_of(key.phase)) + "/" + key.module + "/" + key.slot);
      }
      if (entries.size() > top) line("    and " + grouped(entries.size() - top) + " more (-v)");
    }
  }

  void seeds() {
    std::map<std::string, std::vector<std::int32_t>> kinds;
    for (const auto& [microbatch, seed] : report_.seeds) {
      if (seed.factor == 1) continue;
      const std::string meaning = seed.explained ? seed.meaning : "unexplained";
      kinds[short_number(seed.factor) + " = " + meaning].push_back(microbatch);
    }
    for (const auto& [kind, microbatches] : kinds) {
      line("gradient seed " + kind + " in " + plural(microbatches.size(), "micro-batch", "es") +
           ": the loss of a micro-batch is divided by counts that depend on the layout; taken out "
           "of activations' gradients, not of reduced ones");
    }
  }

  void layouts() {
    std::uint64_t cut = 0, assumed = 0, unknown = 0;
    for (const LayoutLine& layout : report_.layouts) {
      const bool plain = layout.layout.find_first_of("[(") == std::string::npos;
      if (layout.layout == "unknown") unknown += layout.tensors;
      if (!plain) cut += layout.tensors;
      if (layout.assumed) assumed += layout.tensors;
    }
    if (cut + assumed + unknown > 0) {
      line("layouts: " + plural(cut, "tensor") + " cut over ranks" +
           (assumed > 0 ? ", " + grouped(assumed) + " assumed" : "") +
           (unknown > 0 ? ", " + grouped(unknown) + " unknown" : "") +
           (options_.verbose ? ":" : " (-v lists them)"));
    }
    if (!options_.verbose) return;
    for (const LayoutLine& layout : report_.layouts) {
      line("  " + layout.name + "  \"" + layout.layout + "\"  " + layout.reason + " (" +
           grouped(layout.tensors) + ")");
    }
  }

  void remarks() {
    if (!report_.by_content) {
      line("micro-batches were matched by position: no integer input of the model identifies them");
    }
    if (report_.excluded > 0) {
      line(plural(report_.excluded, "element") +
           " of updated parameters were left out: their gradient is within its own rounding");
    }
    if (report_.nan_on_both > 0) {
      line(plural(report_.nan_on_both, "element") + " are NaN on both sides");
    }
    if (report_.skipped > 0) {
      line(plural(report_.skipped, "collective") + " not compared: their buffers depend on layout");
    }
    if (report_.drift > 0) {
      line("iteration " + std::to_string(report_.iteration) +
           " begins with parameters that rounding has moved, by up to " +
           short_number(report_.drift) + " epsilon: limits are " + short_number(1 + report_.drift) +
           " times those of iteration 0");
    }
    for (const LaterIteration& later : report_.later) {
      std::string text = "iteration " + std::to_string(later.iteration) + ", not judged:";
      for (const auto& [phase, largest] : later.largest) {
        text += " " + std::string(name_of(phase)) + " " + short_number(largest.error);
      }
      line(text + " (largest relative errors; rounding grows through the optimizer)");
    }
    if (options_.verbose)
      line("iteration " + std::to_string(report_.iteration) + ", backend " + report_.backend +
           ", " + plural(report_.edges, "data-flow edge"));
  }

  void tensors() {
    line("\nall tensors: error / limit (relative)");
    for (const TensorLine& tensor : report_.tensors) {
      std::string result = !tensor.compared ? "not compared"
                           : tensor.equal
                               ? "bit-equal"
                               : short_number(tensor.error) + " / " + short_number(tensor.limit);
      if (!tensor.statistic.empty() && !tensor.equal) {
        result += ", " + tensor.statistic + " " + short_number(tensor.score) + " x its limit";
      }
      line("  " + to_string(tensor.key) + "  " + result +
           (tensor.note.empty() ? "" : "  (" + tensor.note + ")"));
    }
  }

  const Report& report_;
  const TextOptions& options_;
  std::string text_;
};

}  // namespace

std::string report_as_text(const Report& report, const TextOptions& options) {
  return TextReport(report, options).run();
}

}  // namespace ttrace
