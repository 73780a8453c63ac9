// SPDX-License-Identifier: Apache-2.0
// Checks a trace while the run that writes it goes on. Memory stays bounded: of the records those
// of the steps that are not judged yet are kept, besides the strings and objects that records
// share.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariant/checker.hpp"
#include "invariant/events_reader.hpp"
#include "invariant/line_file.hpp"
#include "invariant/record_form.hpp"
#include "invariant/traincheck_line.hpp"

namespace ttrace::invariant {

class Follower {
 public:
  // `trace` need not exist yet. The invariants must outlive it. A trace of ours adds its
  // signatures.
  Follower(std::filesystem::path trace, Values& values, std::span<const Invariant> invariants,
           Signatures& signatures);

  // Reads what was added since the last time and judges the steps that are complete. True when
  // there was anything new. Throws Trouble.
  bool poll();
  // The run is over: what is left is judged, too.
  void finish();

  [[nodiscard]] CheckResult result() const { return checker_.result(); }
  [[nodiscard]] std::uint64_t violations() const { return checker_.violations(); }
  // As Place::file numbers them.
  [[nodiscard]] const std::vector<std::string>& files() const { return names_; }
  [[nodiscard]] std::vector<Damage> damage() const;
  [[nodiscard]] const std::vector<NaNLoss>& nan_losses() const { return events_.nan_losses; }

 private:
  struct Source {
    explicit Source(const std::filesystem::path& path) : file(path) {}
    LineFile file;
    // Copies of a line stand near it: those of the last lines, and of those before.
    LineHashes hashes, older;
    std::uint64_t lines = 0;
    std::int64_t step = INT64_MIN;  // of the last record
    std::int64_t process = 0;       // of the first record
    bool shared = false;            // by several processes
    bool more = true;               // may have lines that are not read yet
    Damage damage;
  };

  bool poll_lines();
  bool poll_events();
  void find_files();
  void read_step(std::uint32_t number);
  void take(std::uint32_t number, std::string_view line, std::uint32_t at);

  std::filesystem::path trace_;
  Values& values_;
  Signatures& signatures_;
  Checker checker_;
  TraincheckLine reader_;  // of TrainCheck's files
  std::deque<Source> sources_;
  std::map<std::filesystem::path, std::uint32_t> numbers_;
  std::vector<std::string> names_;
  std::uint64_t lines_ = 0;
  Records events_;  // of a trace of ours; between looks without a pool and without records
  std::optional<EventsReader> events_reader_;
};

}  // namespace ttrace::invariant
