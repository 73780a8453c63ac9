// SPDX-License-Identifier: Apache-2.0
// See operation.hpp. A collective goes piece by piece: every member puts a piece of its input into
// its slot, all meet, everyone takes what it needs from the slots, all meet again.
#include "test/fake_nccl/operation.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace fake {
namespace {

struct Place {
  Room& room;
  int member, size;
};

// One block for each member in the sender's buffer, or a single one.
bool sends_blocks(Kind kind) {
  return kind == Kind::reduce_scatter || kind == Kind::all_to_all || kind == Kind::scatter;
}
bool takes_blocks(Kind kind) {
  return kind == Kind::all_gather || kind == Kind::all_to_all || kind == Kind::gather;
}
bool reduces(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}
bool gives(const Place& place, const Operation& call) {
  const bool only_root = call.kind == Kind::broadcast || call.kind == Kind::scatter;
  return !only_root || call.peer == place.member;
}
bool takes(const Place& place, const Operation& call) {
  const bool only_root = call.kind == Kind::reduce || call.kind == Kind::gather;
  return !only_root || call.peer == place.member;
}

struct Piece {
  std::size_t first, count, width;  // elements of a block, bytes of one
};

void put(const Place& place, const Operation& call, const Piece& piece) {
  const auto* from = static_cast<const char*>(call.send);
  const int blocks = sends_blocks(call.kind) ? place.size : 1;
  char* slot = place.room.slot(place.member);
  for (int block = 0; block < blocks; ++block) {
    const auto at = static_cast<std::size_t>(block);
    std::memcpy(slot + at * piece.count * piece.width,
                from + (at * call.count + piece.first) * piece.width, piece.count * piece.width);
  }
}

void take(const Place& place, const Operation& call, const Piece& piece) {
  const std::size_t bytes = piece.count * piece.width;
  const std::size_t mine =
      sends_blocks(call.kind) ? static_cast<std::size_t>(place.member) * bytes : 0;
  char* to = static_cast<char*>(call.receive) + piece.first * piece.width;
  if (reduces(call.kind)) {
    std::vector<const char*> inputs;
    for (int member = 0; member < place.size; ++member) {
      inputs.push_back(place.room.slot(member) + mine);
    }
    Reduction reduction = call.reduction;
    if (call.factor_at != nullptr) reduction.factor = number_at(call.factor_at, call.type);
    reduce(inputs, to, piece.count, call.type, reduction);
  } else if (takes_blocks(call.kind)) {
    for (int member = 0; member < place.size; ++member) {
      std::memcpy(to + static_cast<std::size_t>(member) * call.count * piece.width,
                  place.room.slot(member) + mine, bytes);
    }
  } else {
    std::memcpy(to, place.room.slot(call.peer) + mine, bytes);
  }
}

bool collective(const Place& place, const Operation& call) {
  const std::size_t width = bytes_of(call.type);
  const std::size_t most = kSlotBytes / width / static_cast<std::size_t>(place.size);
  for (std::size_t first = 0; first < call.count; first += most) {
    const Piece piece{first, std::min(most, call.count - first), width};
    if (gives(place, call)) put(place, call, piece);
    if (!place.room.meet(Room::kData)) return false;
    if (takes(place, call)) take(place, call, piece);
    if (!place.room.meet(Room::kData)) return false;
  }
  return true;
}

struct Transfer {
  const Operation* call;
  std::size_t done, bytes;
};

// Moves what the channel has room for; true when something moved.
bool advance(const Place& place, Transfer& transfer) {
  const bool sending = transfer.call->kind == Kind::send;
  const int peer = transfer.call->peer;
  Channel& channel =
      sending ? place.room.channel(place.member, peer) : place.room.channel(peer, place.member);
  const std::uint64_t written = channel.written, read = channel.read;
  const std::uint64_t at = sending ? written : read;
  const std::size_t available = sending ? kChannelBytes - static_cast<std::size_t>(written - read)
                                        : static_cast<std::size_t>(written - read);
  const std::size_t offset = static_cast<std::size_t>(at % kChannelBytes);
  const std::size_t bytes =
      std::min({transfer.bytes - transfer.done, available, kChannelBytes - offset});
  if (bytes == 0) return false;
  if (sending) {
    std::memcpy(channel.ring + offset,
                static_cast<const char*>(transfer.call->send) + transfer.done, bytes);
    channel.written = at + bytes;
  } else {
    std::memcpy(static_cast<char*>(transfer.call->receive) + transfer.done, channel.ring + offset,
                bytes);
    channel.read = at + bytes;
  }
  transfer.done += bytes;
  return true;
}

// All at once; those in one direction with one peer in their order.
bool transfers(const Place& place, std::vector<Transfer> open) {
  auto since = std::chrono::steady_clock::now();
  const auto finished = [](const Transfer& t) { return t.done == t.bytes; };
  std::erase_if(open, finished);
  while (!open.empty()) {
    std::set<std::pair<Kind, int>> busy;
    bool moved = false;
    for (Transfer& transfer : open) {
      if (!busy.insert({transfer.call->kind, transfer.call->peer}).second) continue;
      moved = advance(place, transfer) || moved;
    }
    std::erase_if(open, finished);
    if (moved) {
      since = std::chrono::steady_clock::now();
    } else if (!place.room.patient(since, open.front().call->peer)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool carry_out(Room& room, int member, int size, const std::vector<Operation>& operations) {
  const Place place{room, member, size};
  std::vector<Transfer> moves;
  for (const Operation& call : operations) {
    if (call.kind == Kind::send || call.kind == Kind::receive) {
      moves.push_back({&call, 0, call.count * bytes_of(call.type)});
    } else if (!collective(place, call)) {
      return false;
    }
  }
  return transfers(place, std::move(moves));
}

}  // namespace fake
