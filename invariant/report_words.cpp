// SPDX-License-Identifier: Apache-2.0
// Preconditions and evidence in words.
#include <filesystem>

#include "invariant/report.hpp"
#include "libttrace/words.hpp"

namespace ttrace::invariant {
namespace {

std::string property_text(const Values& values, const Clause& clause) {
  std::string text(values.text(clause.property));
  for (const std::string_view begin :
       {"meta_vars.context_managers.", "meta_vars.", "attributes."}) {
    if (!text.starts_with(begin)) continue;
    text = text.substr(begin.size());
    break;
  }
  if (clause.path.kind != Kind::list) return text;
  for (const Value step : values.elements(clause.path)) text += "." + printed(values, step);
  return text;
}

std::string clause_text(const Values& values, const Clause& clause) {
  const std::string property = property_text(values, clause);
  switch (clause.type) {
    case ClauseType::constant: {
      std::string text = property + " is ";
      for (std::size_t i = 0; i < clause.values.size(); ++i) {
        text += (i == 0 ? "" : " or ") + printed(values, clause.values[i]);
      }
      return text;
    }
    case ClauseType::consistent:
      return property + " is the same";
    case ClauseType::unequal:
      return property + " differs";
    case ClauseType::exist:
      return "within " + property;
  }
  return "";
}

// "rank00003/events.bin", "trace_API_7_9.log"
std::string file_text(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return is_event_file(file) ? file.parent_path().filename().string() + "/" + name : name;
}

std::string record_text(const std::string& file, std::uint64_t number) {
  if (is_event_file(file)) return "event " + std::to_string(number) + " of " + file_text(file);
  return file_text(file) + ":" + std::to_string(number);
}

std::string place_text(const ReportInput& input, const Place& place) {
  const std::string file = place.file < input.files.size() ? input.files[place.file] : "";
  std::string text;
  if (place.step != kNoStep) text += step_text(input, place.step) + ", ";
  if (place.staged) text += "stage " + std::string(input.values->text(place.stage)) + ", ";
  text += "process " + std::to_string(place.process) + ", " + record_text(file, place.line) + ": " +
          (place.variable ? std::string(input.values->text(place.what))
                          : short_name(input.values->text(place.what)) + "()");
  return place.site == 0 ? text : text + ", from " + std::string(input.values->text(place.site));
}

void add(std::string& list, const std::string& entry) {
  list += (list.empty() ? "" : ", ") + entry;
}

}  // namespace

std::string condition_text(const Values& values, const Invariant& invariant) {
  std::string text;
  for (const GroupCondition& group : invariant.precondition) {
    const Condition& condition = group.condition;
    bool always = false;
    std::string any;
    for (const Conjunction& conjunction : condition.any) {
      always = always || conjunction.empty();
      std::string all;
      for (const Clause& clause : conjunction) {
        all += (all.empty() ? "" : " and ") + clause_text(values, clause);
      }
      any += (any.empty() ? "" : ", or where ") + all;
    }
    if (always) continue;
    text += (condition.inverted ? "except where " : "where ") + any;
  }
  return text;
}

std::string step_text(const ReportInput& input, std::int64_t step) {
  const bool events = !input.files.empty() && is_event_file(input.files[0]);
  if (events && step == 0) return "before step 1";
  return "step " + std::to_string(step);
}

std::string damage_text(const Damage& damage) {
  std::string text;
  if (damage.duplicates > 0) {
    add(text,
        grouped(damage.duplicates) + (damage.duplicates == 1 ? " line that is a copy of another"
                                                             : " lines that are copies of others"));
  }
  if (damage.malformed > 0) {
    const bool one = damage.malformed == 1;
    const char* const what = damage.of_events ? one ? " end of a call that began before the file"
                                                    : " ends of calls that began before the file"
                             : one            ? " line that is no record"
                                              : " lines that are no records";
    add(text, grouped(damage.malformed) + what +
                  " (the first: " + (damage.of_events ? "event " : "line ") +
                  std::to_string(damage.first_malformed) + ")");
  }
  if (damage.partial_tail) {
    add(text, damage.of_events ? "what its last block, which is cut off, held"
                               : "a last line that is cut off");
  }
  return text;
}

std::string nan_text(const ReportInput& input, const NaNLoss& loss) {
  std::string text = "the loss is NaN, first in " + step_text(input, loss.step) + ", process " +
                     std::to_string(loss.process) + ", " +
                     record_text(input.files.at(loss.file), loss.line);
  if (loss.site != 0) text += ", from " + std::string(input.values->text(loss.site));
  return text;
}

std::vector<std::string> early_ends(const ReportInput& input, std::int64_t last_step) {
  std::vector<std::string> ends;
  const std::string last =
      last_step == kNoStep ? "" : ", in or after step " + std::to_string(last_step);
  if (!input.ended.empty()) ends.push_back(input.ended + last);
  for (const Damage& damage : input.damage) {
    if (!damage.partial_tail) continue;
    const std::string step = damage.last_step
                                 ? ", in or after step " + std::to_string(*damage.last_step)
                                 : std::string();
    ends.push_back("the end of " + file_text(damage.file) + " is cut off" + step);
  }
  return ends;
}

std::string count_text(const Values& values, const Judgement& judgement) {
  const std::string cases = judgement.relation->cases(values, *judgement.invariant);
  return "violated in " + grouped(judgement.violations) + " of " + grouped(judgement.covered) +
         " " + cases;
}

std::string evidence_text(const ReportInput& input, const Evidence& evidence) {
  std::string text = place_text(input, evidence.place);
  if (evidence.pair) text += " and " + place_text(input, evidence.other);
  return evidence.found.empty() ? text : text + ": " + evidence.found;
}

}  // namespace ttrace::invariant
