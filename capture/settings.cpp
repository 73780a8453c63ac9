// SPDX-License-Identifier: Apache-2.0
// See settings.hpp.
#include "capture/settings.hpp"

#include <dlfcn.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

namespace ttrace {
namespace {

constexpr std::uint64_t kDefaultRing = std::uint64_t{64} << 20;
constexpr std::uint64_t kSmallestRing = std::uint64_t{64} << 10;
constexpr std::uint64_t kLargestRing = std::uint64_t{1} << 40;

// A launcher names both in the variables of one family; mixing families would be wrong: a process
// inside a Slurm allocation that torchrun started has both.
struct LauncherVariables {
  const char* rank;
  const char* world_size;
};
constexpr LauncherVariables kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMI_RANK", "PMI_SIZE"},
                                            {"SLURM_PROCID", "SLURM_NTASKS"}};

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

std::string text_of(const char* option, const char* name) {
  return option != nullptr && *option != '\0' ? std::string(option) : std::string(variable(name));
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Refusal invalid(std::string_view name, std::string_view value) {
  return {EINVAL, std::string(name) + "=" + std::string(value) + " is not a number that fits"};
}

std::optional<Refusal> read_rank(const ttrace_options& options, Settings& settings) {
  const auto* found = std::find_if(std::begin(kLaunchers), std::end(kLaunchers),
                                   [](const auto& names) { return !variable(names.rank).empty(); });
  settings.rank = std::max(options.rank, 0);
  settings.world_size = std::max(options.world_size, 1);
  if (found != std::end(kLaunchers)) {
    const auto rank = number_of<std::int32_t>(variable(found->rank));
    const auto world = number_of<std::int32_t>(variable(found->world_size));
    if (options.rank < 0) {
      if (!rank || *rank < 0) return invalid(found->rank, variable(found->rank));
      settings.rank = *rank;
    }
    if (options.world_size <= 0 && world) settings.world_size = *world;
  }
  if (settings.rank < settings.world_size) return std::nullopt;
  return Refusal{EINVAL, "rank " + std::to_string(settings.rank) +
                             " does not exist in a world of " +
                             std::to_string(settings.world_size)};
}

std::optional<Refusal> read_ring(const ttrace_options& options, Settings& settings) {
  const std::string_view text = variable("TTRACE_RING");
  settings.ring_bytes = options.ring_bytes == 0 ? kDefaultRing : options.ring_bytes;
  if (options.ring_bytes == 0 && !text.empty()) {
    const auto bytes = number_of<std::uint64_t>(text);
    if (!bytes || *bytes > kLargestRing) return invalid("TTRACE_RING", text);
    settings.ring_bytes = *bytes;
  }
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t wanted = std::clamp(settings.ring_bytes, kSmallestRing, kLargestRing);
  settings.ring_bytes = (wanted + page - 1) / page * page;
  return std::nullopt;
}

// Beside this library, or where an installation puts programs.
std::string find_writer() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&find_writer), &self) == 0) return {};
  const std::string library = self.dli_fname;
  const std::size_t slash = library.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : library.substr(0, slash);
  for (const char* place :
       {"/ttrace-writer", "/../../bin/ttrace-writer", "/../bin/ttrace-writer"}) {
    if (access((folder + place).c_str(), X_OK) == 0) return folder + place;
  }
  return {};
}

// One glob a line, "!" before those that leave out.
NameFilter read_filter(std::string_view text) {
  NameFilter filter;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty()) continue;
    const bool leaves_out = line.front() == '!';
    (leaves_out ? filter.exclude : filter.include).emplace_back(line.substr(leaves_out ? 1 : 0));
  }
  return filter;
}

std::optional<Refusal> read_selection(Settings& settings) {
  settings.estimate = !variable("TTRACE_ESTIMATE").empty();
  settings.filter = read_filter(variable("TTRACE_FILTERS"));
  const std::string_view what = variable("TTRACE_WHAT");
  if (what == "stats") settings.kind = TTRACE_STATS;
  if (what == "hash") settings.kind = TTRACE_HASH;
  const std::optional<int> comm = wanted_collectives();
  if (!comm) {
    return Refusal{EINVAL, "TTRACE_COMM=" + std::string(variable("TTRACE_COMM")) +
                               " is none of metadata, hash, full"};
  }
  settings.comm = *comm;
  const std::string_view ranks = variable("TTRACE_RANKS");
  const std::string_view iterations = variable("TTRACE_ITERATIONS");
  if (!iterations.empty()) {
    settings.iterations = parse_intervals(iterations);
    if (!settings.iterations) return invalid("TTRACE_ITERATIONS", iterations);
  }
  if (ranks.empty()) return std::nullopt;
  const auto wanted = parse_intervals(ranks);
  if (!wanted) return invalid("TTRACE_RANKS", ranks);
  if (contains(*wanted, settings.rank)) return std::nullopt;
  return Refusal{ENOENT, "rank " + std::to_string(settings.rank) + " is not to be captured"};
}

}  // namespace

bool NameFilter::wants(std::string_view phase, std::string_view module,
                       std::string_view slot) const {
  if (include.empty() && exclude.empty()) return true;
  const std::string name(module);
  const std::string key = std::string(phase) + "/" + name + "/" + std::string(slot);
  const auto matches = [&](const std::string& glob) {
    return fnmatch(glob.c_str(), key.c_str(), FNM_NOESCAPE) == 0 ||
           fnmatch(glob.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  };
  if (std::any_of(exclude.begin(), exclude.end(), matches)) return false;
  return include.empty() || std::any_of(include.begin(), include.end(), matches);
}

std::optional<int> wanted_collectives() {
  constexpr std::string_view kWords[] = {"", "metadata", "hash", "full"};
  const auto* found = std::find(std::begin(kWords), std::end(kWords), variable("TTRACE_COMM"));
  if (found == std::end(kWords)) return std::nullopt;
  return static_cast<int>(found - std::begin(kWords));
}

std::optional<Refusal> read_settings(const ttrace_options* options, Settings& settings) {
  ttrace_options known{};
  known.rank = -1;
  if (options != nullptr) {
    if (options->struct_size < offsetof(ttrace_options, directory)) {
      return Refusal{EINVAL, "ttrace_options.struct_size is not set"};
    }
    std::memcpy(&known, options, std::min<std::size_t>(options->struct_size, sizeof known));
  }
  settings.directory = text_of(known.directory, "TTRACE_OUT");
  if (settings.directory.empty())
    return Refusal{ENOENT, "no trace directory: TTRACE_OUT is not set"};
  settings.run_id = text_of(known.run_id, "TTRACE_RUN_ID");
  if ((known.flags & TTRACE_NO_FEED) == 0) settings.replay = variable("TTRACE_REPLAY");
  if (auto refusal = read_rank(known, settings)) return refusal;
  if (auto refusal = read_ring(known, settings)) return refusal;
  if (auto refusal = read_selection(settings)) return refusal;
  settings.writer = text_of(known.writer, "TTRACE_WRITER");
  if (settings.writer.empty()) settings.writer = find_writer();
  if (!settings.writer.empty()) return std::nullopt;
  return Refusal{ENOEXEC, "no ttrace-writer: set TTRACE_WRITER to its path"};
}

}  // namespace ttrace
