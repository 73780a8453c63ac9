// SPDX-License-Identifier: Apache-2.0
// See verify_options.hpp.
#include "tools/verify_options.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "libttrace/core/intervals.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// A candidate's name is a folder's beside the files of the reference.
bool can_be_folder(const std::string& name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
           c == '+' || c == '=' || c == ',';
  };
  return !name.empty() && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), plain);
}

void name_candidates(VerifyOptions& options) {
  const std::size_t count = options.candidates.size();
  if (options.names.size() > count) {
    throw Trouble("--name", options.names[count], "is a name too many, each candidate has one");
  }
  for (std::size_t i = options.names.size(); i < count; ++i) {
    options.names.push_back(count == 1 ? "candidate" : "candidate" + std::to_string(i + 1));
  }
  for (auto name = options.names.begin(); name != options.names.end(); ++name) {
    if (!can_be_folder(*name)) {
      throw Trouble("--name", *name, "becomes a folder: use letters, digits and - _ . + = ,");
    }
    if (name->rfind("reference", 0) == 0 || *name == "commands.sh") {
      throw Trouble("--name", *name, "is the reference's, choose another");
    }
    if (std::find(options.names.begin(), name, *name) != name) {
      throw Trouble("--name", *name, "is there twice, each candidate needs its own");
    }
  }
}

// Started as a rank of a job there would be as many of us as ranks.
void check_alone() {
  for (const char* variable : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && std::atoi(value) > 0) {
      throw Trouble("start", std::string(variable) + "=" + value,
                    "is a further process of a job; start ttrace-verify once and put the launcher "
                    "into --candidate");
    }
  }
}

}  // namespace

void check_options(VerifyOptions& options) {
  check_alone();
  name_candidates(options);
  const auto blank = [](const std::string& command) {
    return command.find_first_not_of(" \t\n") == std::string::npos;
  };
  if (blank(options.reference)) {
    throw Trouble("--reference", "command line", "is empty, give a command as a shell reads it");
  }
  if (std::any_of(options.candidates.begin(), options.candidates.end(), blank)) {
    throw Trouble("--candidate", "command line", "is empty, give a command as a shell reads it");
  }
  if (!parse_intervals(options.iterations)) {
    throw Trouble("--iterations", options.iterations, "is no list of numbers, write it as 0-2,5");
  }
  if (!options.layout.empty() && !fs::is_regular_file(options.layout)) {
    throw Trouble("--layout", options.layout, "is no file, see docs/layouts.md");
  }
  if (options.json == "-" && options.junit == "-") {
    throw Trouble("--junit", "-", "stdout is taken by --json -; give one of the two a FILE");
  }
}

}  // namespace ttrace
