// SPDX-License-Identifier: Apache-2.0
#include "invariant/trace_reader.hpp"

#include <algorithm>
#include <utility>

#include "invariant/events_export.hpp"
#include "invariant/events_reader.hpp"
#include "invariant/traincheck_reader.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace::invariant {

bool has_events(const std::filesystem::path& trace) {
  std::error_code error;
  if (std::filesystem::is_directory(trace, error)) return !event_files(trace).empty();
  return is_event_file(trace);
}

Records read_trace(const std::filesystem::path& trace, Values& pool) {
  if (!has_events(trace)) {
    if (std::filesystem::exists(trace / "trace.json")) {
      throw Trouble("no events", trace.string(),
                    "it holds tensors; ttrace-capture --events records what invariants need");
    }
    return read_traincheck(trace, pool, {.keep_ids = false});
  }
  Records records;
  std::swap(records.values, pool);
  read_events(trace, records);
  std::swap(records.values, pool);
  return records;
}

Records read_as_traincheck(const std::filesystem::path& trace) {
  if (!has_events(trace)) return read_traincheck(trace);
  Records records = read_events(trace, {.call_ids = true});
  arrange_as_traincheck(records);
  return records;
}

Records read_as_traincheck(const std::filesystem::path& trace, Values& pool) {
  if (!has_events(trace)) return read_traincheck(trace, pool);
  Records records;
  std::swap(records.values, pool);
  read_events(trace, records, {.call_ids = true});
  arrange_as_traincheck(records);
  std::swap(records.values, pool);
  return records;
}

bool loses_tail(const std::string& file) { return file.ends_with("proxy_log.json"); }

bool loses_tail(const Records& trace) {
  return std::ranges::any_of(trace.records, [&trace](const Record& record) {
    return record.file < trace.files.size() && loses_tail(trace.files[record.file]);
  });
}

}  // namespace ttrace::invariant
