// SPDX-License-Identifier: Apache-2.0
// See check_builtin.hpp.
#include "tools/check_builtin.hpp"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "invariant/builtin/report.hpp"
#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/trace.hpp"
#include "tools/cli.hpp"

namespace ttrace {
namespace {

void write_document(const std::string& text, const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Trouble("write", path, "failed; is there such a folder, and space in it?");
}

// A trace that shows what a program computes by itself.
void refuse_others(const Trace& trace, const std::string& path) {
  if (trace.logical()) {
    throw Trouble("check", path,
                  "ttrace-merge wrote it: what the ranks held is gone, check the trace it is of");
  }
  const nlohmann::json document = nlohmann::json::parse(trace.json(), nullptr, false);
  const auto replay = nlohmann::json::json_pointer("/options/replay");
  if (document.is_object() && document.contains(replay) && !document.at(replay).is_null()) {
    throw Trouble("check", path, "it is a replay: its tensors are another run's, check that one");
  }
}

builtin::CheckReport run(const BuiltinOptions& options) {
  const Trace trace = Trace::open(options.trace);
  refuse_others(trace, options.trace);
  const std::size_t steps = builtin::count_checks(options.checks) * trace.iterations().size();
  Progress progress("checking", steps, options.quiet);
  builtin::CheckReport report = builtin::run_checks(trace, options.checks, [&progress] {
    check_mapped_files();
    progress.advance(1);
  });
  check_mapped_files();  // before anything that was read is told
  return report;
}

// Whoever asked for a document gets one, whatever happens. What is then thrown is the first
// trouble.
void write_trouble(const std::string& message, const BuiltinOptions& options) {
  try {
    write_document(builtin::trouble_as_json(message, options.trace), options.json);
    if (options.junit != "-" || options.json != "-") {
      write_document(builtin::trouble_as_junit(message, options.trace), options.junit);
    }
  } catch (const Trouble&) {
    // It is said on stderr all the same.
  }
}

// Files first: a document on stdout cannot be taken back when writing a file fails.
void write_report(const builtin::CheckReport& report, const BuiltinOptions& options) {
  const std::string json = options.json.empty() ? "" : builtin::as_json(report);
  const std::string junit = options.junit.empty() ? "" : builtin::as_junit(report);
  for (const bool to_stdout : {false, true}) {
    if ((options.json == "-") == to_stdout) write_document(json, options.json);
    if ((options.junit == "-") == to_stdout) write_document(junit, options.junit);
  }
  if (!options.quiet && options.json != "-" && options.junit != "-") {
    const std::string text = builtin::as_text(report, options.top);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

}  // namespace

int check_builtin(const BuiltinOptions& options) {
  if (options.json == "-" && options.junit == "-") {
    throw Trouble("--junit", "-", "stdout is taken by --json -; give one of the two a FILE");
  }
  builtin::CheckReport report;
  try {
    report = run(options);
  } catch (const std::exception& error) {
    write_trouble(error.what(), options);
    throw;
  }
  write_report(report, options);
  switch (report.verdict()) {
    case builtin::Verdict::passed:
      return kSame;
    case builtin::Verdict::violated:
      return kDiffer;
    case builtin::Verdict::not_checked:
      break;
  }
  throw Trouble("check", options.trace,
                "nothing could be checked; the report says what each check needs");
}

void list_builtin() {
  for (const builtin::CheckEntry& check : builtin::all_checks()) {
    std::printf("%-10s %s\n", std::string(check.name).c_str(), std::string(check.asks).c_str());
  }
}

}  // namespace ttrace
