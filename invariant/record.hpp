// SPDX-License-Identifier: Apache-2.0
// One line of a trace of events: the begin or the end of a call of an API, or the state of a
// variable. The same records come from TrainCheck's files (traincheck_reader.hpp) and from our own
// (events_reader.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "invariant/signature.hpp"
#include "invariant/value.hpp"

namespace ttrace::invariant {

enum class RecordKind : std::uint8_t { pre, post, exception, state };

struct Field {
  Name column;  // nested names joined with '.': "meta_vars.step", "attributes.data"
  Value value;
};

struct Record {
  RecordKind kind = RecordKind::pre;
  std::uint32_t file = 0;  // in Records::files
  std::uint32_t line = 0;  // from 1
  std::int64_t time = 0;   // ns; comparable within a process only
  std::int64_t process = 0;
  std::int64_t thread = 0;
  Name function = 0;       // pre, post, exception
  Name site = 0;           // where the program made the call, or the one around it: "train.py:31"
  Name variable = 0;       // state: its name
  Name variable_type = 0;  // state: "torch.nn.Parameter"
  std::uint64_t call = 0;  // joins pre and post: XXH3 of func_call_id, or the number of an event
  // Every field but args, kwargs and return_values, those above included, in the order of the line.
  std::vector<Field> fields;
  Value args;     // object: position -> typed value; absent where not recorded
  Value kwargs;   // object: name -> typed value
  Value returns;  // a typed value, or a list of them
  // The whole line as an object, where names within it hold a '.' or are there twice, so that the
  // fields do not tell what it was; else absent.
  Value original;

  // Absent when the record has no such column.
  [[nodiscard]] Value field(Name column) const {
    for (const Field& entry : fields) {
      if (entry.column == column) return entry.value;
    }
    return {};
  }
};

// Why lines, or events of our own files, are not among the records.
struct Damage {
  std::string file;
  bool of_events = false;
  std::uint64_t duplicates = 0;  // exact copies of another line of the file
  // No JSON object, or without a field that each record has; events: ends of calls that began
  // before the file did.
  std::uint64_t malformed = 0;
  std::uint64_t first_malformed = 0;      // its line, or the event's number
  bool partial_tail = false;              // the end is cut off: a run that was killed
  std::optional<std::int64_t> last_step;  // events: the last one that the file tells of
};

// Whether a file is one of ours.
[[nodiscard]] inline bool is_event_file(const std::filesystem::path& file) {
  return file.extension() == ".bin";
}

// A loss that is NaN, the first of a file.
struct NaNLoss {
  std::uint32_t file = 0;
  std::uint32_t line = 0;  // the event's number
  std::int64_t process = 0;
  std::int64_t step = 0;
  Name site = 0;
  std::uint64_t count = 0;
};

struct Records {
  Values values;
  std::vector<std::string> files;  // in the order of reading
  std::vector<Record> records;     // in the order of files and lines
  std::vector<Damage> damage;      // only of files that have any
  std::vector<NaNLoss> nan_losses;
  Signatures signatures;  // of what was called, where the trace holds them
};

}  // namespace ttrace::invariant
