// SPDX-License-Identifier: Apache-2.0
// The report for a reader: the verdict, then each fault with what to look at.
#include <algorithm>

#include "invariant/report.hpp"
#include "libttrace/words.hpp"

namespace ttrace::invariant {
namespace {

class TextReport {
 public:
  TextReport(const ReportInput& input, const ReportOptions& options)
      : input_(input), result_(*input.result), values_(*input.values), options_(options) {}

  std::string run() {
    for (const NaNLoss& loss : input_.nan_losses) {
      line(colored("violated", "1;31") + ": " + nan_text(input_, loss));
    }
    verdict();
    const std::vector<Culprit> groups = culprits(result_, values_);
    for (std::size_t i = 0; i < groups.size() && i < options_.top; ++i) group(groups[i]);
    if (groups.size() > options_.top) {
      line("\nand " + plural(groups.size() - options_.top, "group") + " more (--top, --json)");
    }
    possible();
    if (options_.verbose) {
      others(Verdict::passed, "hold:");
      others(Verdict::not_triggered, "did not apply:");
    }
    remarks();
    return std::move(text_);
  }

 private:
  void line(const std::string& text) { text_ += text + "\n"; }

  [[nodiscard]] std::string colored(const std::string& text, const char* code) const {
    return options_.color ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
  }

  void verdict() {
    const std::uint64_t failed = result_.count(Verdict::failed);
    const std::uint64_t passed = result_.count(Verdict::passed);
    const std::uint64_t idle = result_.count(Verdict::not_triggered);
    const std::uint64_t weak = result_.count(Verdict::possible);
    const std::string rest = grouped(passed) + " hold, " + grouped(idle) + " did not apply" +
                             (weak > 0 ? ", " + grouped(weak) + " weak ones do not hold" : "");
    if (failed > 0) {
      std::int64_t first = INT64_MAX;
      for (const Judgement& judgement : result_.judgements) {
        if (!judgement.evidence.empty()) {
          first = std::min(first, judgement.evidence[0].place.step);
        }
      }
      line(colored("violated", "1;31") + ": " + plural(failed, "invariant") + first_text(first) +
           " (" + rest + ")" + early_text());
    } else if (passed + weak == 0) {
      line(colored("cannot tell", "1;31") + ": none of " +
           plural(result_.judgements.size(), "invariant") +
           " applied; is the trace of a program like that they were learned from?" + early_text());
    } else {
      line(colored("no violation", "1;32") + ": " + rest + early_text());
    }
  }

  // Traces of tensors count iterations from 0.
  [[nodiscard]] std::string first_text(std::int64_t step) const {
    if (step == kNoStep) return "";
    const std::string text = step_text(input_, step);
    if (!text.starts_with("step")) return ", first " + text;
    const bool events = step_text(input_, 0) != "step 0";
    return ", first in " + text +
           (events ? ", which is iteration " + std::to_string(step - 1) + " of a trace of tensors"
                   : "");
  }

  [[nodiscard]] std::string early_text() const {
    std::string text;
    for (const std::string& end : early_ends(input_, result_.last_step)) text += "; " + end;
    return text;
  }

  void group(const Culprit& culprit) {
    const std::string name(values_.text(culprit.name));
    line("\n" + colored(culprit.attribute ? "attribute " + name : name, "1") + ": " +
         plural(culprit.judgements.size(), "violated invariant"));
    for (std::size_t i = 0; i < culprit.judgements.size() && i < options_.top; ++i) {
      // One in full shows what happened; the others are of the same kind.
      invariant(result_.judgements[culprit.judgements[i]],
                i == 0 ? std::min<std::size_t>(options_.top, 3) : 1);
    }
    if (culprit.judgements.size() > options_.top) {
      line("  and " + grouped(culprit.judgements.size() - options_.top) + " more");
    }
    const Judgement& first = result_.judgements[culprit.judgements[0]];
    line("  => " + first.relation->advice(values_, *first.invariant));
  }

  void invariant(const Judgement& judgement, std::size_t top) {
    const std::string condition = condition_text(values_, *judgement.invariant);
    line("  " + judgement.invariant->text + (condition.empty() ? "" : ", " + condition));
    line("    " + count_text(values_, judgement));
    for (std::size_t i = 0; i < judgement.evidence.size() && i < top; ++i) {
      line("    " + evidence_text(input_, judgement.evidence[i]));
    }
  }

  // By the first step; what held so seldom needs no more words.
  void possible() {
    std::vector<const Judgement*> weak;
    for (const Judgement& judgement : result_.judgements) {
      if (judgement.verdict == Verdict::possible) weak.push_back(&judgement);
    }
    if (weak.empty()) return;
    line("\npossible: held only two or three times where they were learned, maybe by chance");
    std::ranges::stable_sort(
        weak, {}, [](const Judgement* judgement) { return judgement->evidence[0].place.step; });
    for (std::size_t i = 0; i < weak.size() && i < options_.top; ++i) invariant(*weak[i], 1);
    if (weak.size() > options_.top) line("  and " + grouped(weak.size() - options_.top) + " more");
  }

  void others(Verdict verdict, const char* title) {
    line(std::string("\n") + title);
    for (const Judgement& judgement : result_.judgements) {
      if (judgement.verdict == verdict) line("  " + judgement.invariant->text);
    }
  }

  void remarks() {
    std::string unread;
    for (const Damage& damage : input_.damage) {
      unread += "\n  " + damage.file + ": " + damage_text(damage);
    }
    if (!unread.empty()) line("\nnot read:" + unread);
    if (result_.gaps.never_ended + result_.gaps.never_began > 0) {
      line("\nnot judged: " + plural(result_.gaps.never_ended, "call") + " without an end, " +
           plural(result_.gaps.never_began, "end") + " without a call");
    }
    if (result_.late > 0) {
      line("\n" + plural(result_.late, "record") +
           " came after their step was judged; check the finished trace without --follow");
    }
  }

  const ReportInput& input_;
  const CheckResult& result_;
  const Values& values_;
  ReportOptions options_;
  std::string text_;
};

}  // namespace

std::string text_report(const ReportInput& input, const ReportOptions& options) {
  return TextReport(input, options).run();
}

}  // namespace ttrace::invariant
