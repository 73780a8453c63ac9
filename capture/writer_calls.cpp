// SPDX-License-Identifier: Apache-2.0
// See writer_calls.hpp.
#include "capture/writer_calls.hpp"

namespace ttrace {

Told Calls::tell(SegmentWriter& writer, Collective call) {
  const bool begins = (call.flags & kCollectiveBegun) != 0;
  Name name{call.group, call.member, call.sequence};
  const auto found = known_.find(name);
  if (found == known_.end()) {
    if (!begins && left_.erase(name) != 0) return Told::late;
    const Known known{writer.add_collective(call), call.position, call.input, Clock::now(),
                      !begins};
    known_.emplace(std::move(name), known);
    return Told::added;
  }
  Known& known = found->second;
  if (begins || known.ended) return Told::repeated;
  call.position = known.position;
  if (call.input == kNotRecorded) call.input = known.input;
  writer.change_collective(known.row, call);
  known.ended = true;
  return Told::ended;
}

void Calls::next_segment() {
  for (const auto& [name, known] : known_) {
    if (!known.ended) left_.insert(name);
  }
  known_.clear();
}

std::vector<RunningCall> Calls::running() const {
  std::vector<RunningCall> running;
  for (const auto& [name, known] : known_) {
    if (known.ended) continue;
    const std::chrono::duration<double> since = Clock::now() - known.begun;
    running.push_back({std::get<0>(name), std::get<1>(name), std::get<2>(name), since.count()});
  }
  return running;
}

}  // namespace ttrace
