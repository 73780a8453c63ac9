// SPDX-License-Identifier: Apache-2.0
// See verify_fingerprint.hpp.
#include "tools/verify_fingerprint.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <span>
#include <system_error>

#include "libttrace/file.hpp"
#include "libttrace/hash.hpp"
#include "tools/cli.hpp"
#include "tools/shell.hpp"

extern char** environ;

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestSource = std::uintmax_t{64} << 20;
// Folders with more are no source trees: a home, a data set.
constexpr std::size_t kMostEntries = 50000;
// Equal to nothing, not even to itself in another run.
constexpr const char* kUnknown = "unknown ";
constexpr const char* kWritten = "written by the command";

std::string hash_file(const fs::path& file) {
  const MappedFile mapped(file);
  HashStream hash;
  hash.append(mapped.bytes());
  return to_string(hash.finish());
}

// Size and time of change, for what is too large to read each time.
std::string stat_of(const fs::path& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) != 0) return "none";
  return std::to_string(found.st_size) + " bytes, " + std::to_string(found.st_mtim.tv_sec) + "." +
         std::to_string(found.st_mtim.tv_nsec);
}

bool starts(std::string_view text, std::string_view with) { return text.rfind(with, 0) == 0; }

// Of a terminal, a login or a desktop; a training run that depends on them cannot be helped.
bool is_of_terminal(std::string_view name) {
  static const std::set<std::string_view> kNames = {
      "_",         "SHLVL",  "PWD",       "OLDPWD",    "TERM",          "COLUMNS",
      "LINES",     "PAGER",  "EDITOR",    "VISUAL",    "DISPLAY",       "WAYLAND_DISPLAY",
      "WINDOWID",  "MAIL",   "STY",       "NO_COLOR",  "INVOCATION_ID", "JOURNAL_STREAM",
      "COLORTERM", "PROMPT", "LS_COLORS", "XAUTHORITY"};
  static constexpr std::string_view kPrefixes[] = {
      "TERM_", "SSH_", "XDG_", "DBUS_",    "TMUX",    "VTE_",   "GPG_",
      "HIST",  "LESS", "PS",   "CLICOLOR", "VSCODE_", "GNOME_", "KONSOLE_"};
  return kNames.count(name) != 0 ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return starts(name, prefix); });
}

fs::path resolved(const fs::path& path) {
  std::error_code error;
  return fs::weakly_canonical(path, error);
}

// Folders in which no source of the command lies.
bool is_foreign(const fs::path& folder, const fs::path& results) {
  const std::string name = folder.filename().string();
  std::error_code error;
  return name.empty() || name[0] == '.' || name == "__pycache__" || name == "node_modules" ||
         name == "site-packages" || fs::exists(folder / "pyvenv.cfg", error) ||
         fs::exists(folder / "trace.json", error) || folder == results;
}

// What `name` alone starts, "" when that is no program.
fs::path found_in_path(const std::string& name) {
  if (name.empty() || name[0] == '-' || name.find('/') != std::string::npos) return {};
  const char* variable = std::getenv("PATH");
  std::string rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const fs::path program = fs::path(rest.substr(0, end)) / name;
    std::error_code error;
    if (fs::is_regular_file(program, error) && access(program.c_str(), X_OK) == 0) return program;
    rest.erase(0, end + 1);
  }
  return {};
}

// <prefix>/lib/python3.11/site-packages and the like.
std::vector<fs::path> package_folders(const fs::path& prefix) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& library : fs::directory_iterator(prefix / "lib", error)) {
    if (!starts(library.path().filename().string(), "python3")) continue;
    for (const char* kind : {"site-packages", "dist-packages"}) {
      if (fs::is_directory(library.path() / kind, error)) folders.push_back(library.path() / kind);
    }
  }
  return folders;
}

// Their names have versions: "torch-2.13.0.dist-info".
std::set<fs::path> entries_of(const fs::path& folder) {
  std::set<fs::path> entries;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    entries.insert(entry.path().filename());
  }
  return entries;
}

// A package that was installed "editable" is a file that names the folder of its sources.
bool may_point_elsewhere(const fs::path& entry) {
  const std::string name = entry.string();
  return entry.extension() == ".pth" || entry.extension() == ".egg-link" ||
         (starts(name, "__editable__") && entry.extension() == ".py");
}

std::vector<fs::path> folders_named_in(const std::string& text) {
  std::vector<fs::path> folders;
  for (std::size_t at = text.find('/'); at != std::string::npos; at = text.find('/', at)) {
    const std::size_t end = std::min(text.find_first_of("'\"\r\n", at), text.size());
    const fs::path path = text.substr(at, end - at);
    std::error_code error;
    if (path.has_relative_path() && fs::is_directory(path, error)) folders.push_back(path);
    at = end;
  }
  return folders;
}

bool is_script(const fs::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".py" || extension == ".sh";
}

class CommandFiles {
 public:
  explicit CommandFiles(fs::path results) : results_(std::move(results)) {}

  void add_word(const std::string& word) {
    if (word == "-m") add_folder(".");
    add_file(word);
    const std::size_t equal = word.find('=');  // --config=run.yaml, NAME=value
    if (equal != std::string::npos) add_file(word.substr(equal + 1));
    const fs::path program = found_in_path(word);
    if (program.empty()) return;
    print_.merge(file_fingerprint(program));
    add_packages(program.parent_path().parent_path());
  }

  void add_folder(const fs::path& folder) {
    const fs::path known = resolved(folder);
    if (folders_.insert(known).second) print_.merge(sources_fingerprint(known, results_));
  }

  Fingerprint take() { return std::move(print_); }

 private:
  void add_packages(const fs::path& prefix) {
    for (const fs::path& folder : package_folders(prefix)) {
      if (!folders_.insert(folder).second) continue;
      std::string names;
      for (const fs::path& entry : entries_of(folder)) {
        names += entry.string() + "\n";
        const fs::path file = folder / entry;
        std::error_code error;
        if (!may_point_elsewhere(entry) || !fs::is_regular_file(file, error)) continue;
        for (const fs::path& sources : folders_named_in(read_text(file))) add_folder(sources);
      }
      print_["packages in " + folder.string()] = hash_of(names);
    }
  }

  void add_file(const fs::path& file) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return;
    print_.merge(file_fingerprint(file));
    if (is_script(file)) add_folder(file.parent_path().empty() ? "." : file.parent_path());
  }

  fs::path results_;
  std::set<fs::path> folders_;
  Fingerprint print_;
};

}  // namespace

std::string hash_of(std::string_view text) {
  HashStream hash;
  hash.append(std::as_bytes(std::span(text.data(), text.size())));
  return to_string(hash.finish());
}

Fingerprint environment_fingerprint() {
  Fingerprint print;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    // Only the hash is kept: values may be secrets.
    if (!is_of_terminal(name)) print["environment " + std::string(name)] = hash_of(text);
  }
  return print;
}

Fingerprint command_fingerprint(const std::string& text, const fs::path& results) {
  CommandFiles files(resolved(results));
  for (const std::string& word : shell_words(text)) files.add_word(word);
  const char* variable = std::getenv("PYTHONPATH");
  std::string rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) files.add_folder(rest.substr(0, end));
    rest.erase(0, end + 1);
  }
  return files.take();
}

Fingerprint file_fingerprint(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  const bool readable = access(file.c_str(), R_OK) == 0;
  const bool source = !error && size <= kLargestSource && readable;
  const std::string hash = !source ? stat_of(file) : size == 0 ? "empty" : hash_file(file);
  return {{"file " + file.string(), hash}};
}

Fingerprint program_fingerprint(const fs::path& program) {
  return {{"program " + program.string(), std::string(version()) + ", " + stat_of(program)}};
}

Fingerprint sources_fingerprint(const fs::path& folder, const fs::path& results) {
  Fingerprint print;
  std::error_code error;
  std::size_t entries = 0;
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator at(folder, kSkip, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (++entries > kMostEntries) {
      return {{"sources in " + folder.string() + ", which has too many files",
               kUnknown + std::to_string(getpid())}};
    }
    if (at->is_directory(error) && is_foreign(at->path(), results)) {
      at.disable_recursion_pending();
    } else if (at->path().extension() == ".py" && at->is_regular_file(error)) {
      print.merge(file_fingerprint(at->path()));
    }
    error.clear();  // files come and go
  }
  return print;
}

void forgive_written(Fingerprint& before, const Fingerprint& after) {
  for (const auto& [name, hash] : after) {
    const bool is_file = starts(name, "file ") && !is_script(name);
    const auto old = before.find(name);
    if (is_file && (old == before.end() || old->second != hash)) before[name] = kWritten;
  }
}

std::string first_difference(const Fingerprint& then, const Fingerprint& now) {
  for (const auto& [name, hash] : now) {
    const auto old = then.find(name);
    const bool equal = old != then.end() && (old->second == hash || old->second == kWritten);
    if (!equal) return name;
  }
  for (const auto& [name, hash] : then) {
    if (hash != kWritten && now.count(name) == 0) return name;
  }
  return "";
}

}  // namespace ttrace
