// SPDX-License-Identifier: Apache-2.0
// Turns the rank's messages into segments, one an iteration. The first error (a full disk, mostly)
// ends the recording for good: the segment is closed with what it has, and everything that follows
// is read, counted as lost and thrown away, because the rank must never wait for a writer in
// trouble.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/writer_calls.hpp"
#include "capture/writer_rank_file.hpp"
#include "libttrace/core/collective.hpp"
#include "libttrace/core/message.hpp"
#include "libttrace/core/record.hpp"
#include "libttrace/core/ring.hpp"
#include "libttrace/segment.hpp"

namespace ttrace {

// A record as it arrives, without its bytes.
struct IncomingRecord {
  std::uint64_t sequence = 0;  // the rank's numbers; alias_of of `record` is one, too
  std::uint64_t payload_bytes = 0;
  bool late = false;  // a Verdict on the payload follows it
  Record record;
  std::string layout_json;
};

class Segments {
 public:
  Segments(std::filesystem::path directory, RankIdentity identity, RankFile& rank_file);

  void begin(std::int64_t iteration);
  // Writes the record, reading its payload from `ring`. False when the stream ended in the middle.
  [[nodiscard]] bool record(IncomingRecord incoming, RingConsumer& ring);
  // Its input, output and position are the rank's numbers of records. It may be the end of one
  // that has begun.
  void collective(Collective incoming);
  // complete: the rank said that the iteration is over.
  void end(bool complete);

  [[nodiscard]] bool open() const { return writer_ != nullptr; }
  // Of the open segment.
  [[nodiscard]] std::vector<RunningCall> running_calls() const { return calls_.running(); }
  [[nodiscard]] const std::string& trouble() const { return trouble_; }  // "": none yet

 private:
  [[nodiscard]] std::int64_t stored_row(std::int64_t sequence) const;
  void refer_to_stored(Collective& incoming) const;
  void begin_record(IncomingRecord& incoming);
  [[nodiscard]] bool copy_payload(std::uint64_t bytes, RingConsumer& ring);
  [[nodiscard]] bool commit(const IncomingRecord& incoming);
  void reject(const Record& record, const std::string& why);
  void stop(const std::string& why);
  void close_writer(bool complete);

  std::filesystem::path directory_;
  RankIdentity identity_;
  RankFile& rank_file_;
  std::unique_ptr<SegmentWriter> writer_;
  bool in_record_ = false;  // begun in writer_ and not yet committed
  std::int64_t iteration_ = -1;
  std::uint64_t records_ = 0;  // committed to writer_, and their bytes
  std::uint64_t bytes_ = 0;
  std::uint64_t collectives_ = 0;
  Calls calls_;
  std::vector<std::int64_t> stored_;  // the rank's sequence -> the segment's; -1: lost
  std::string trouble_;
};

}  // namespace ttrace
