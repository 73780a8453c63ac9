// SPDX-License-Identifier: Apache-2.0
// The events of a trace that ttrace-capture --events made, as the records that TrainCheck's files
// give: at once, or more and more while the run goes on.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "invariant/record.hpp"

namespace ttrace::invariant {

struct EventOptions {
  // A field func_call_id of each call, as TrainCheck has it: a text more a call. Record::call joins
  // the two records of a call without it.
  bool call_ids = false;
};

// "rankNNNNN/events*.bin" of a trace, in order. Empty when it has none.
[[nodiscard]] std::vector<std::filesystem::path> event_files(const std::filesystem::path& trace);

class EventsReader {
 public:
  // `trace`: the folder of a trace, whose ranks may still be to come, or one file. All records are
  // appended to `records`, whose pool must live on; its list of records may be emptied.
  EventsReader(const std::filesystem::path& trace, Records& records,
               const EventOptions& options = {});
  ~EventsReader();

  // What is whole by now, file by file, the records of a thread in their order. How many records
  // that were. Throws Trouble.
  std::size_t poll();
  // Adds to Records::damage what could not be read; `cut` tails count, too. Once, at the end.
  void report_damage();

 private:
  class File;
  struct Names;
  void find_files();

  std::filesystem::path trace_;
  Records& records_;
  EventOptions options_;
  std::unique_ptr<Names> names_;
  std::vector<std::unique_ptr<File>> files_;
};

// Throws Trouble when there is nothing to read, or it is damaged.
void read_events(const std::filesystem::path& trace, Records& records,
                 const EventOptions& options = {});
[[nodiscard]] Records read_events(const std::filesystem::path& trace,
                                  const EventOptions& options = {});

}  // namespace ttrace::invariant
