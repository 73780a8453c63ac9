// SPDX-License-Identifier: Apache-2.0
// Calls without an end: of a run that was killed, or of threads that outlive the traced function.
// TrainCheck keeps the outermost call of a process and cuts a thread at another one; where it would
// give up, the call alone is left out.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "invariant/compat/trace.hpp"

namespace ttrace::invariant::compat {
namespace {

using ThreadKey = std::pair<std::int64_t, std::int64_t>;

struct Ends {
  Row pre = kNoRow;
  Row post = kNoRow;
};

ThreadKey thread_of(const Record& record) { return {record.process, record.thread}; }

class Completion {
 public:
  explicit Completion(Trace& trace) : trace_(trace) {}

  void run() {
    pair_up();
    for (const Row row : trace_.rows) {
      const Record& record = trace_.at(row);
      if (record.kind != RecordKind::pre || ends_[record.call].post != kNoRow) continue;
      judge(row, record);
    }
    const auto cut_off = [this](Row row) {
      const Record& record = trace_.at(row);
      const auto cut = cuts_.find(thread_of(record));
      return cut != cuts_.end() && record.time >= cut->second;
    };
    const std::size_t before = trace_.rows.size();
    if (!cuts_.empty()) std::erase_if(trace_.rows, cut_off);
    trace_.tolerated.dropped_rows += before - trace_.rows.size();
  }

 private:
  // Joins begins and ends, and keeps the rows of both and of states.
  void pair_up() {
    for (Row row = 0; row < trace_.records.records.size(); ++row) {
      const Record& record = trace_.at(row);
      std::int64_t& last = last_times_[thread_of(record)];
      last = std::max(last, record.time);
      if (record.kind == RecordKind::state) {
        trace_.rows.push_back(row);
        continue;
      }
      Ends& ends = ends_[record.call];
      Row& place = record.kind == RecordKind::pre ? ends.pre : ends.post;
      if (place != kNoRow) {
        ++trace_.tolerated.repeated_records;
        continue;
      }
      place = row;
      trace_.rows.push_back(row);
      if (record.kind != RecordKind::pre) continue;
      const auto [outer, added] = outermost_.try_emplace(record.process, row);
      if (!added && record.time < trace_.at(outer->second).time) outer->second = row;
    }
    const auto without_begin = [this](Row row) {
      const Record& record = trace_.at(row);
      return record.kind != RecordKind::state && ends_[record.call].pre == kNoRow;
    };
    trace_.tolerated.unmatched_ends += std::erase_if(trace_.rows, without_begin);
  }

  void judge(Row row, const Record& record) {
    ++trace_.tolerated.incomplete_calls;
    const Row outer = outermost_.at(record.process);
    if (outer == row) {
      trace_.open.push_back(row);
      return;
    }
    const Row end = ends_[trace_.at(outer).call].post;
    const bool whole =
        end != kNoRow && trace_.at(end).time == last_times_.at(thread_of(trace_.at(end)));
    if (whole) return;  // a view leaves out what has no end
    std::int64_t& cut = cuts_.try_emplace(thread_of(record), record.time).first->second;
    cut = std::min(cut, record.time);
  }

  Trace& trace_;
  std::unordered_map<std::uint64_t, Ends> ends_;
  std::unordered_map<std::int64_t, Row> outermost_;  // by process
  std::map<ThreadKey, std::int64_t> last_times_;
  std::map<ThreadKey, std::int64_t> cuts_;
};

}  // namespace

void drop_incomplete(Trace& trace) { Completion(trace).run(); }

}  // namespace ttrace::invariant::compat
