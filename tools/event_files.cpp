// SPDX-License-Identifier: Apache-2.0
// See event_files.hpp.
#include "tools/event_files.hpp"

#include <filesystem>
#include <set>

#include "invariant/report.hpp"
#include "libttrace/core/trouble.hpp"
#include "tools/cli.hpp"

namespace ttrace {
namespace {

void add(std::string& list, const std::string& entry) {
  list += (list.empty() ? "" : ", ") + entry;
}

}  // namespace

invariant::Signatures read_signatures(const std::string& file, std::span<const std::string> traces,
                                      invariant::Values& values) {
  if (!file.empty()) return invariant::Signatures::read(file, values);
  for (const std::string& trace : traces) {
    const std::filesystem::path found = std::filesystem::path(trace) / "signatures.json";
    if (std::filesystem::exists(found)) return invariant::Signatures::read(found, values);
  }
  return {};
}

void note_no_signatures() {
  note(
      "no signatures.json in the trace's folder and no --signatures: arguments by position have "
      "no names, and what a function calls is not looked at; write one with `python3 -m "
      "ttrace_agent.signatures TRACE > TRACE/signatures.json`");
}

void note_damage(std::span<const invariant::Damage> damage) {
  for (const invariant::Damage& entry : damage) {
    note(entry.file + ": left out " + damage_text(entry));
  }
}

void note_unknown(const invariant::Signatures& signatures, const invariant::Values& values,
                  std::span<const invariant::Record> records) {
  std::set<invariant::Name> functions;
  std::string example;
  std::size_t unknown = 0;
  for (const invariant::Record& record : records) {
    if (record.kind != invariant::RecordKind::pre) continue;
    if (!functions.insert(record.function).second) continue;
    if (signatures.find(record.function) != nullptr) continue;
    if (unknown++ == 0) example = values.text(record.function);
  }
  if (unknown == 0) return;
  note("no signature for " + std::to_string(unknown) + " of " + std::to_string(functions.size()) +
       " functions, such as " + example + ": their arguments by position have no names");
}

void note_tolerated(const invariant::compat::Tolerated& tolerated) {
  const std::pair<std::uint64_t, const char*> entries[] = {
      {tolerated.incomplete_calls, "calls without an end"},
      {tolerated.unmatched_ends, "ends of calls without a begin"},
      {tolerated.repeated_records, "records of calls that had both already"},
      {tolerated.dropped_rows, "records after a call that never ended"},
      {tolerated.unknown_arguments, "arguments beyond a function's signature"},
      {tolerated.exceptions, "functions of tensors with calls that raised"},
      {tolerated.other, "values that could not be compared"},
  };
  std::string text;
  for (const auto& [number, what] : entries) {
    if (number > 0) add(text, std::to_string(number) + " " + what);
  }
  if (!text.empty()) note("left out where TrainCheck would end with an error: " + text);
}

}  // namespace ttrace
