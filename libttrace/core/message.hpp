// SPDX-License-Identifier: Apache-2.0
// What a traced process says to its writer: a stream of messages in the ring. Each is a header, a
// body of fixed size, and the variable parts that the body announces, in the order given there.
// Both ends are built from this file; kRingVersion (ring.cpp) guards against a mixed installation.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace ttrace {

inline constexpr std::uint32_t kMessageMagic = 0x31527474;

enum class MessageType : std::uint32_t {
  record = 1,           // RecordBody
  set_json = 2,         // the text of a JSON object
  note = 3,             // NoteBody
  begin_iteration = 4,  // IterationBody; ends the former iteration
  end_iteration = 5,    // nothing
  close = 6,            // nothing; ends the iteration and the stream
  collective = 7,       // CollectiveBody
  late_record = 8,      // RecordBody; the payload is copied later, a Verdict follows it
};

struct MessageHeader {
  std::uint32_t magic = kMessageMagic;
  MessageType type = MessageType::close;
  std::uint64_t bytes = 0;  // that follow this header
};

// Then: ndim extents (uint64), module, slot, raw_name, layout, payload.
struct RecordBody {
  std::uint64_t sequence = 0;       // as ttrace_record returned it
  std::int64_t alias_of = -1;       // likewise
  std::uint64_t tensor_bytes = 0;   // of the shard
  std::uint64_t payload_bytes = 0;  // that follow: tensor_bytes, or 0 for an alias
  std::int32_t microbatch = -1;
  std::uint32_t call = 0;
  std::uint32_t flags = 0;
  std::uint32_t module_bytes = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t raw_name_bytes = 0;
  std::uint32_t layout_bytes = 0;
  std::uint8_t phase = 0;
  std::uint8_t dtype = 0;
  std::uint8_t kind = 0;
  std::uint8_t ndim = 0;
};

// Then: function, reduction, group, module, input_splits, output_splits.
struct CollectiveBody {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  double factor = 1;
  std::int64_t input = -1;     // as ttrace_record returned it, or -1
  std::int64_t output = -1;    // likewise
  std::uint64_t position = 0;  // records before it
  std::int32_t member = 0;
  std::int32_t size = 0;
  std::int32_t peer = -1;
  std::int32_t microbatch = -1;
  std::uint32_t flags = 0;
  std::array<std::uint32_t, 6> text_bytes{};
  std::uint8_t dtype = 0;
  std::array<std::uint8_t, 3> reserved{};
};

// 0: the payload is what it should be. Else the device's error, and it is anything.
using Verdict = std::uint64_t;

// Then: what, where, why.
struct NoteBody {
  std::uint32_t what_bytes = 0;
  std::uint32_t where_bytes = 0;
  std::uint32_t why_bytes = 0;
  std::uint32_t degrades = 0;  // 1: the capture itself failed
};

struct IterationBody {
  std::int64_t iteration = 0;
};

// Limits of what one message may hold; the writer refuses more as a broken stream.
inline constexpr std::uint32_t kMaxDimensions = 16;
inline constexpr std::uint32_t kMaxNameBytes = 1u << 16;
inline constexpr std::uint32_t kMaxLayoutBytes = 1u << 20;
inline constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{1} << 30;

// No padding, so that copying a body copies no uninitialised byte.
static_assert(std::has_unique_object_representations_v<MessageHeader>);
static_assert(std::has_unique_object_representations_v<RecordBody>);
static_assert(std::has_unique_object_representations_v<NoteBody>);
static_assert(sizeof(CollectiveBody) == 6 * 8 + 5 * 4 + 6 * 4 + 4);

}  // namespace ttrace
