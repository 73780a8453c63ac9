// SPDX-License-Identifier: Apache-2.0
#include "invariant/events_reader.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "invariant/events_file.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace::invariant {

namespace fs = std::filesystem;

class EventsReader::File : public EventsFile {
 public:
  using EventsFile::EventsFile;
};
struct EventsReader::Names : EventNames {
  using EventNames::EventNames;
};

std::vector<fs::path> event_files(const fs::path& trace) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& rank : fs::directory_iterator(trace, error)) {
    if (rank.path().filename().string().rfind("rank", 0) != 0 || !rank.is_directory(error))
      continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(rank.path(), error)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("events.", 0) == 0 && entry.path().extension() == ".bin") {
        found.push_back(entry.path());
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

EventsReader::EventsReader(const fs::path& trace, Records& records, const EventOptions& options)
    : trace_(trace),
      records_(records),
      options_(options),
      names_(std::make_unique<Names>(records.values)) {}

EventsReader::~EventsReader() = default;

void EventsReader::find_files() {
  const bool one = !fs::is_directory(trace_);
  for (const fs::path& path : one ? std::vector<fs::path>{trace_} : event_files(trace_)) {
    const std::string name = path.string();
    if (std::find(records_.files.begin(), records_.files.end(), name) != records_.files.end()) {
      continue;
    }
    const auto number = static_cast<std::uint32_t>(records_.files.size());
    files_.push_back(std::make_unique<File>(path, number, options_.call_ids));
    records_.files.push_back(name);
  }
}

std::size_t EventsReader::poll() {
  const std::size_t before = records_.records.size();
  find_files();
  for (const auto& file : files_) file->poll(records_, *names_);
  return records_.records.size() - before;
}

void EventsReader::report_damage() {
  for (const auto& file : files_) file->report(records_);
}

Records read_events(const fs::path& trace, const EventOptions& options) {
  Records records;
  read_events(trace, records, options);
  return records;
}

void read_events(const fs::path& trace, Records& records, const EventOptions& options) {
  EventsReader reader(trace, records, options);
  reader.poll();
  if (records.files.empty()) {
    throw Trouble("cannot read trace", trace.string(),
                  "has no events (rankNNNNN/events.bin), record some with ttrace-capture --events");
  }
  reader.report_damage();
}

}  // namespace ttrace::invariant
