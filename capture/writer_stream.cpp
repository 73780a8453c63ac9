// SPDX-License-Identifier: Apache-2.0
// See writer_stream.hpp.
#include "capture/writer_stream.hpp"

#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "libttrace/core/message.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

constexpr std::chrono::milliseconds kQuiet{100};

// The producer died in the middle of a message.
struct Cut {};

[[noreturn]] void broken(const std::string& what) {
  throw Trouble("ring", "shared memory", "holds " + what + ", the traced process overwrote it");
}

class Stream {
 public:
  Stream(RingConsumer& ring, Segments& segments, RankFile& rank_file)
      : ring_(ring), segments_(segments), rank_file_(rank_file) {}

  // False after the last message.
  bool next() {
    while (!ring_.wait(kQuiet)) rank_file_.save_if_changed();
    const auto header = body<MessageHeader>();
    if (header.magic != kMessageMagic) broken("no message where one should be");
    switch (header.type) {
      case MessageType::record:
        record(header.bytes, false);
        return true;
      case MessageType::late_record:
        record(header.bytes, true);
        return true;
      case MessageType::set_json:
        if (header.bytes > kMaxJsonBytes) broken("a text that is too long");
        rank_file_.merge(text(header.bytes));
        return true;
      case MessageType::note:
        note();
        return true;
      case MessageType::begin_iteration:
        segments_.begin(body<IterationBody>().iteration);
        return true;
      case MessageType::end_iteration:
        segments_.end(true);
        return true;
      case MessageType::close:
        segments_.end(true);
        return false;
      case MessageType::collective:
        collective(header.bytes);
        return true;
    }
    broken("a message of unknown type");
  }

 private:
  template <class Body>
  Body body() {
    Body result;
    if (!ring_.read(std::as_writable_bytes(std::span(&result, 1)))) throw Cut{};
    return result;
  }

  std::string text(std::uint64_t bytes) {
    std::string result(static_cast<std::size_t>(bytes), '\0');
    if (!ring_.read(std::as_writable_bytes(std::span(result)))) throw Cut{};
    return result;
  }

  std::string name(std::uint32_t bytes) {
    if (bytes > kMaxNameBytes) broken("a name that is too long");
    return text(bytes);
  }

  void note() {
    const auto note = body<NoteBody>();
    const std::string what = name(note.what_bytes);
    const std::string where = name(note.where_bytes);
    rank_file_.add_event(what, where, name(note.why_bytes));
    if (note.degrades != 0) rank_file_.degrade();
  }

  void collective(std::uint64_t bytes) {
    const auto body_read = body<CollectiveBody>();
    const auto dtype = dtype_from_code(body_read.dtype);
    if (!dtype) broken("a collective with an unknown code");
    std::uint64_t expected = sizeof body_read;
    for (const std::uint32_t text_bytes : body_read.text_bytes) expected += text_bytes;
    if (bytes != expected) broken("a collective whose sizes disagree");
    Collective incoming;
    std::size_t at = 0;
    for (std::string* text : {&incoming.function, &incoming.reduction, &incoming.group,
                              &incoming.module, &incoming.input_splits, &incoming.output_splits}) {
      *text = name(body_read.text_bytes[at++]);
    }
    incoming.sequence = body_read.sequence;
    incoming.count = body_read.count;
    incoming.position = body_read.position;
    incoming.factor = body_read.factor;
    incoming.member = body_read.member;
    incoming.size = body_read.size;
    incoming.peer = body_read.peer;
    incoming.microbatch = body_read.microbatch;
    incoming.flags = body_read.flags;
    incoming.dtype = *dtype;
    incoming.input = body_read.input;
    incoming.output = body_read.output;
    segments_.collective(std::move(incoming));
  }

  void record(std::uint64_t bytes, bool late) {
    const auto body_read = body<RecordBody>();
    const auto dtype = dtype_from_code(body_read.dtype);
    if (!dtype || body_read.phase >= kPhaseCount || body_read.kind > 2 ||
        body_read.ndim > kMaxDimensions) {
      broken("a record with an unknown code");
    }
    IncomingRecord incoming = describe(body_read, *dtype);
    const std::uint64_t names = std::uint64_t{body_read.module_bytes} + body_read.slot_bytes +
                                body_read.raw_name_bytes + body_read.layout_bytes;
    const std::uint64_t shape = std::uint64_t{body_read.ndim} * sizeof(std::uint64_t);
    incoming.late = late;
    const std::uint64_t verdict = late ? sizeof(Verdict) : 0;
    if (bytes != sizeof body_read + shape + names + incoming.payload_bytes + verdict) {
      broken("a record whose sizes disagree");
    }
    if (!segments_.record(std::move(incoming), ring_)) throw Cut{};
  }

  // Reads what comes between the body and the payload.
  IncomingRecord describe(const RecordBody& body_read, DType dtype) {
    IncomingRecord incoming;
    incoming.sequence = body_read.sequence;
    incoming.payload_bytes = body_read.payload_bytes;
    Record& record = incoming.record;
    record.dtype = dtype;
    record.kind = static_cast<RecordKind>(body_read.kind);
    record.shape.resize(body_read.ndim);
    if (!ring_.read(std::as_writable_bytes(std::span(record.shape)))) throw Cut{};
    record.alias_of = body_read.alias_of;
    record.flags = body_read.flags;
    record.bytes = body_read.tensor_bytes;
    record.key.phase = static_cast<Phase>(body_read.phase);
    record.key.microbatch = body_read.microbatch;
    record.key.call = body_read.call;
    record.key.module = name(body_read.module_bytes);
    record.key.slot = name(body_read.slot_bytes);
    record.raw_name = name(body_read.raw_name_bytes);
    if (body_read.layout_bytes > kMaxLayoutBytes) broken("a layout that is too long");
    incoming.layout_json = text(body_read.layout_bytes);
    return incoming;
  }

  RingConsumer& ring_;
  Segments& segments_;
  RankFile& rank_file_;
};

}  // namespace

StreamEnd drain(RingConsumer& ring, Segments& segments, RankFile& rank_file) {
  Stream stream(ring, segments, rank_file);
  try {
    while (stream.next()) {
    }
    return StreamEnd::closed;
  } catch (const Cut&) {
    return StreamEnd::producer_died;
  }
}

}  // namespace ttrace
