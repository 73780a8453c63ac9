// SPDX-License-Identifier: Apache-2.0
// See writer_segments.hpp.
#include "capture/writer_segments.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "libttrace/core/trouble.hpp"
#include "libttrace/trace_files.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

std::string where_of(const Collective& call) {
  return "comm/" + (call.module.empty() ? std::string(kRootModule) : call.module) + "/" +
         call.function;
}

}  // namespace

Segments::Segments(std::filesystem::path directory, RankIdentity identity, RankFile& rank_file)
    : directory_(std::move(directory)), identity_(std::move(identity)), rank_file_(rank_file) {}

void Segments::begin(std::int64_t iteration) {
  end(true);
  iteration_ = iteration;
  stored_.clear();
  calls_.next_segment();
  if (!trouble_.empty()) return;
  try {
    writer_ = std::make_unique<SegmentWriter>(
        directory_ / segment_file_name(iteration),
        SegmentInfo{identity_.run_id, identity_.rank, iteration, true});
  } catch (const std::exception& error) {
    stop(error.what());
  }
}

bool Segments::record(IncomingRecord incoming, RingConsumer& ring) {
  if (incoming.sequence != stored_.size()) {
    throw Trouble("ring", "shared memory", "holds records out of order");
  }
  stored_.push_back(-1);
  begin_record(incoming);
  bool whole = copy_payload(incoming.payload_bytes, ring);
  Verdict verdict = 0;
  if (incoming.late && whole) whole = ring.read(std::as_writable_bytes(std::span(&verdict, 1)));
  if (whole && verdict != 0) {
    reject(incoming.record, "its copy from the device ended with error " + std::to_string(verdict));
  }
  if (incoming.late && !whole) {
    reject(incoming.record, "the device had not come to it when the process ended");
  }
  const bool stored = whole && in_record_ && commit(incoming);
  if (!stored) rank_file_.count_lost(1);
  return whole;
}

void Segments::collective(Collective incoming) {
  const bool begins = (incoming.flags & kCollectiveBegun) != 0;
  if (writer_ == nullptr) return rank_file_.count_lost(begins ? 0 : 1);
  refer_to_stored(incoming);
  try {
    const Told told = calls_.tell(*writer_, incoming);
    if (told == Told::added) ++collectives_;
    if (told == Told::late) {
      rank_file_.add_event("end not recorded", where_of(incoming), "it ended after its iteration");
    }
    if (told != Told::repeated) return;
    rank_file_.add_event("not recorded", where_of(incoming),
                         "call " + std::to_string(incoming.sequence) + " of group " +
                             incoming.group + " was told before");
    rank_file_.degrade();
    rank_file_.count_lost(1);
  } catch (const std::exception& error) {
    rank_file_.count_lost(1);
    stop(error.what());
  }
}

void Segments::refer_to_stored(Collective& incoming) const {
  incoming.input = stored_row(incoming.input);
  incoming.output = stored_row(incoming.output);
  // The first record behind the call that is in the file.
  std::uint64_t behind = incoming.position;
  while (behind < stored_.size() && stored_[behind] < 0) ++behind;
  incoming.position = behind < stored_.size() ? static_cast<std::uint64_t>(stored_[behind])
                                              : writer_->record_count();
}

// Of the record that the rank calls `sequence`; -1: it is not in the file.
std::int64_t Segments::stored_row(std::int64_t sequence) const {
  const auto at = static_cast<std::uint64_t>(sequence);
  return sequence >= 0 && at < stored_.size() ? stored_[at] : -1;
}

void Segments::begin_record(IncomingRecord& incoming) {
  if (writer_ == nullptr) return;
  Record& record = incoming.record;
  record.key.iteration = iteration_;
  if (record.alias_of != kNotAlias) {
    record.alias_of = stored_row(record.alias_of);
    if (record.alias_of < 0) return;  // its bytes are lost, and so is this name for them
  }
  try {
    stored_.back() = static_cast<std::int64_t>(writer_->begin(record, incoming.layout_json));
    in_record_ = true;
  } catch (const std::exception& error) {
    stop(error.what());
  }
}

// Reads the payload, whether or not it can be stored; false when the stream ends before it does.
bool Segments::copy_payload(std::uint64_t bytes, RingConsumer& ring) {
  while (bytes != 0) {
    const auto piece = ring.peek(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPiece)));
    if (piece.empty()) return false;
    if (in_record_) {
      try {
        writer_->append(piece);
      } catch (const std::exception& error) {
        stop(error.what());
      }
    }
    ring.consume(piece.size());
    bytes -= piece.size();
  }
  return true;
}

bool Segments::commit(const IncomingRecord& incoming) {
  try {
    writer_->commit();
  } catch (const std::exception& error) {
    stop(error.what());
    return false;
  }
  in_record_ = false;
  ++records_;
  if (incoming.record.kind == RecordKind::full) bytes_ += incoming.payload_bytes;
  return true;
}

// Its bytes were not copied: it is left out, and so are its aliases.
void Segments::reject(const Record& record, const std::string& why) {
  if (std::exchange(in_record_, false)) writer_->abandon();
  stored_.back() = -1;
  rank_file_.add_event("not recorded", record.key.module + "/" + record.key.slot, why);
  rank_file_.degrade();
}

void Segments::end(bool complete) {
  if (writer_ == nullptr) return;
  close_writer(complete);
  rank_file_.save();
}

void Segments::stop(const std::string& why) {
  trouble_ = why;
  rank_file_.add_event("recording stopped", "iteration " + std::to_string(iteration_), why);
  rank_file_.degrade();
  rank_file_.log(why);
  if (writer_ != nullptr) close_writer(false);
  rank_file_.save();
}

void Segments::close_writer(bool complete) {
  // Taken out first: a second error must not come back here.
  const std::unique_ptr<SegmentWriter> writer = std::move(writer_);
  const std::uint64_t records = std::exchange(records_, 0);
  const std::uint64_t bytes = std::exchange(bytes_, 0);
  const std::uint64_t collectives = std::exchange(collectives_, 0);
  try {
    if (std::exchange(in_record_, false)) writer->abandon();
    writer->close(complete);
    rank_file_.count(records, collectives, bytes);
  } catch (const std::exception& error) {
    if (trouble_.empty()) trouble_ = error.what();
    rank_file_.add_event("segment not closed", "iteration " + std::to_string(iteration_),
                         error.what());
    rank_file_.degrade();
    rank_file_.count_lost(records + collectives);
    rank_file_.log(error.what());
  }
}

}  // namespace ttrace
