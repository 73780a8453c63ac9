// SPDX-License-Identifier: Apache-2.0
#include "invariant/follow.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "invariant/trace_reader.hpp"
#include "invariant/traincheck_reader.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::uint64_t kRemembered = 1 << 16;  // lines, to find copies

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

Follower::Follower(std::filesystem::path trace, Values& values,
                   std::span<const Invariant> invariants, Signatures& signatures)
    : trace_(std::move(trace)),
      values_(values),
      signatures_(signatures),
      checker_(values, invariants, &signatures, false),
      reader_(values, {.keep_ids = false}) {}

void Follower::find_files() {
  for (const std::filesystem::path& file : traincheck_files(trace_)) {
    const auto [entry, added] =
        numbers_.try_emplace(file, static_cast<std::uint32_t>(sources_.size()));
    if (!added) continue;
    sources_.emplace_back(file);
    sources_.back().damage.file = file.string();
    names_.push_back(file.string());
  }
}

void Follower::take(std::uint32_t number, std::string_view line, std::uint32_t at) {
  ++lines_;
  if (is_blank(line)) return;
  Source& source = sources_[number];
  if (++source.lines % kRemembered == 0) source.older = std::exchange(source.hashes, LineHashes());
  LineHashes& older = source.older;
  if (!source.hashes.add(line) || (source.lines >= kRemembered && !older.add(line))) {
    ++source.damage.duplicates;
    return;
  }
  Record record;
  if (!reader_.read(line.data(), line.size(), record)) {
    if (++source.damage.malformed == 1) source.damage.first_malformed = at;
    return;
  }
  record.file = number;
  record.line = at;
  if (loses_tail(names_[number])) checker_.set_loses_tail();
  if (source.step == INT64_MIN) source.process = record.process;
  source.shared = source.shared || record.process != source.process;
  source.step = checker_.push(std::move(record));
}

// Lines of a file until one is of a later step, or there are no more for now.
void Follower::read_step(std::uint32_t number) {
  Source& source = sources_[number];
  const std::int64_t step = source.step;
  std::string_view line;
  while (source.step <= step) {
    if (!source.file.next(line)) {
      source.more = false;
      return;
    }
    take(number, line, source.file.number());
  }
}

bool Follower::poll() {
  return events_reader_ || has_events(trace_) ? poll_events() : poll_lines();
}

// All that is whole by now: of a run that goes on that is little.
bool Follower::poll_events() {
  std::swap(events_.values, values_);
  if (!events_reader_) events_reader_.emplace(trace_, events_);
  const bool any = events_reader_->poll() > 0;
  std::swap(events_.values, values_);
  names_ = events_.files;
  signatures_.adopt(events_.signatures);
  for (Record& record : events_.records) checker_.push(std::move(record));
  events_.records.clear();
  checker_.advance(INT64_MAX);
  return any;
}

// What is there already is read side by side: always of the file that is furthest behind.
bool Follower::poll_lines() {
  const std::uint64_t before = lines_;
  find_files();
  for (Source& source : sources_) source.more = true;
  for (;;) {
    std::int64_t limit = INT64_MAX;
    std::uint32_t last = 0;
    bool any = false;
    for (std::uint32_t number = 0; number < sources_.size(); ++number) {
      const Source& source = sources_[number];
      if (!source.more) continue;
      if (!any || source.step < sources_[last].step) last = number;
      // Processes that share a file are not at the same step.
      const std::int64_t reached =
          source.step == INT64_MIN ? source.step : source.step - source.shared;
      limit = std::min(limit, reached);
      any = true;
    }
    checker_.advance(limit);
    if (!any) return lines_ > before;
    read_step(last);
  }
}

void Follower::finish() {
  poll();
  for (std::uint32_t number = 0; number < sources_.size(); ++number) {
    Source& source = sources_[number];
    const std::string_view rest = source.file.rest();
    if (is_blank(rest)) continue;
    const std::uint64_t malformed = source.damage.malformed;
    take(number, rest, source.file.number() + 1);
    if (source.damage.malformed == malformed) continue;
    source.damage.malformed = malformed;
    source.damage.partial_tail = true;
  }
  if (events_reader_) events_reader_->report_damage();
  checker_.finish();
}

std::vector<Damage> Follower::damage() const {
  std::vector<Damage> result = events_.damage;
  for (const Source& source : sources_) {
    const Damage& damage = source.damage;
    if (damage.duplicates + damage.malformed > 0 || damage.partial_tail) result.push_back(damage);
  }
  return result;
}

}  // namespace ttrace::invariant
