// SPDX-License-Identifier: Apache-2.0
// The report for programs: every invariant with its verdict, the violated ones with their
// violations.
#include <initializer_list>

#include "invariant/json_text.hpp"
#include "invariant/report.hpp"

namespace ttrace::invariant {
namespace {

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed:
      return "passed";
    case Verdict::failed:
      return "failed";
    case Verdict::possible:
      return "possible";
    case Verdict::not_triggered:
      return "not triggered";
  }
  return "";
}

class JsonReport {
 public:
  explicit JsonReport(const ReportInput& input)
      : input_(input), result_(*input.result), values_(*input.values) {}

  std::string run() {
    std::vector<Value> invariants, groups, damage;
    for (const Judgement& judgement : result_.judgements) invariants.push_back(of(judgement));
    for (const Culprit& culprit : culprits(result_, values_)) groups.push_back(of(culprit));
    for (const Damage& entry : input_.damage) damage.push_back(of(entry));
    std::vector<Value> ends, nans;
    for (const NaNLoss& loss : input_.nan_losses) nans.push_back(of(loss));
    for (const std::string& end : early_ends(input_, result_.last_step)) ends.push_back(text(end));
    const std::uint64_t failed = result_.count(Verdict::failed);
    const std::uint64_t passed = result_.count(Verdict::passed);
    const bool any = passed + result_.count(Verdict::possible) > 0;
    const Value report = object({
        {"format", text("ttrace-check-invariants")},
        {"version", number(1)},
        {"trace", text(input_.trace)},
        {"verdict", text(failed > 0 || !input_.nan_losses.empty() ? "violated"
                         : any                                    ? "no violation"
                                                                  : "cannot tell")},
        {"failed", number(failed)},
        {"passed", number(passed)},
        {"possible", number(result_.count(Verdict::possible))},
        {"not_triggered", number(result_.count(Verdict::not_triggered))},
        {"records", number(result_.records)},
        {"first_step", integer(result_.first_step)},
        {"last_step", integer(result_.last_step)},
        {"calls_without_end", number(result_.gaps.never_ended)},
        {"ends_without_call", number(result_.gaps.never_began)},
        {"late_records", number(result_.late)},
        {"damage", out_.list(damage)},
        {"nan_losses", out_.list(nans)},
        {"complete", boolean(ends.empty())},
        {"ends_early", out_.list(ends)},
        {"groups", out_.list(groups)},
        {"invariants", out_.list(invariants)},
    });
    return to_json(out_, report) + "\n";
  }

 private:
  struct Entry {
    const char* name;
    Value value;
  };

  Value text(std::string_view value) { return out_.string(value); }
  static Value number(std::uint64_t value) { return integer(static_cast<std::int64_t>(value)); }

  Value object(std::initializer_list<Entry> entries) {
    std::vector<Member> members;
    for (const Entry& entry : entries) members.push_back({out_.name(entry.name), entry.value});
    return out_.object(members);
  }

  Value of(const Place& place) {
    const std::string file = place.file < input_.files.size() ? input_.files[place.file] : "";
    return object({{"step", place.step == kNoStep ? none() : integer(place.step)},
                   {"stage", place.staged ? text(values_.text(place.stage)) : none()},
                   {"process", integer(place.process)},
                   {"thread", integer(place.thread)},
                   {"time", integer(place.time)},
                   {"file", text(file)},
                   {is_event_file(file) ? "event" : "line", number(place.line)},
                   {"site", place.site == 0 ? none() : text(values_.text(place.site))},
                   {place.variable ? "variable" : "function", text(values_.text(place.what))}});
  }

  Value of(const NaNLoss& loss) {
    return object({{"step", integer(loss.step)},
                   {"process", integer(loss.process)},
                   {"file", text(input_.files.at(loss.file))},
                   {"event", number(loss.line)},
                   {"site", loss.site == 0 ? none() : text(values_.text(loss.site))},
                   {"count", number(loss.count)}});
  }

  Value of(const Judgement& judgement) {
    std::vector<Value> violations;
    for (const Evidence& evidence : judgement.evidence) {
      std::vector<Value> records{of(evidence.place)};
      if (evidence.pair) records.push_back(of(evidence.other));
      violations.push_back(
          object({{"records", out_.list(records)}, {"found", text(evidence.found)}}));
    }
    const bool failed = judgement.violations > 0;
    return object(
        {{"text", text(judgement.invariant->text)},
         {"relation", text(values_.text(judgement.invariant->relation))},
         {"condition", text(condition_text(values_, *judgement.invariant))},
         {"verdict", text(word_of(judgement.verdict))},
         {"examples", number(judgement.covered)},
         {"violation_count", number(judgement.violations)},
         {"look_at",
          failed ? text(judgement.relation->advice(values_, *judgement.invariant)) : none()},
         {"violations", out_.list(violations)}});
  }

  Value of(const Culprit& culprit) {
    std::vector<Value> members;
    for (const std::size_t i : culprit.judgements) members.push_back(number(i));
    return object({{culprit.attribute ? "attribute" : "function", text(values_.text(culprit.name))},
                   {"invariants", out_.list(members)}});
  }

  Value of(const Damage& damage) {
    return object({{"file", text(damage.file)},
                   {"duplicates", number(damage.duplicates)},
                   {"malformed", number(damage.malformed)},
                   {"first_malformed", number(damage.first_malformed)},
                   {"partial_tail", boolean(damage.partial_tail)}});
  }

  const ReportInput& input_;
  const CheckResult& result_;
  const Values& values_;
  Values out_;
};

}  // namespace

std::string json_report(const ReportInput& input) { return JsonReport(input).run(); }

}  // namespace ttrace::invariant
