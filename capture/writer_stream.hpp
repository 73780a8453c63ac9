// SPDX-License-Identifier: Apache-2.0
// Reads the rank's messages from the ring and acts on them until the stream ends. What comes from
// the traced process is not trusted: its memory may be overwritten by the very bug that is looked
// for.
#pragma once

#include <cstdint>

#include "capture/writer_rank_file.hpp"
#include "capture/writer_segments.hpp"
#include "libttrace/core/ring.hpp"

namespace ttrace {

enum class StreamEnd : std::uint8_t {
  closed,         // the rank called ttrace_close, or ended normally
  producer_died,  // all it had published was read
};

// Throws Trouble when the stream is broken; then nothing more can be read from it.
[[nodiscard]] StreamEnd drain(RingConsumer& ring, Segments& segments, RankFile& rank_file);

}  // namespace ttrace
