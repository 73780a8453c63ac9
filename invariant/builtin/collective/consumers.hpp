// SPDX-License-Identifier: Apache-2.0
// Which recorded tensors are outputs of collectives, by what they are in most layers, micro-batches
// and ranks.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "invariant/builtin/collective/places.hpp"

namespace ttrace::builtin {

struct OddConsumer {
  Call call;
  const Record* record = nullptr;
  std::uint64_t equal = 0, different = 0;  // of all places of this kind
  bool at_the_end = false;                 // before all layers that agree, or after them
};

class ConsumerLinks {
 public:
  void add(std::int32_t rank, const SegmentReader& segment, const std::vector<PlacedCall>& calls);
  // Few that differ where most are equal.
  [[nodiscard]] std::vector<OddConsumer> odd() const;
  // Tensors that were compared.
  [[nodiscard]] std::uint64_t compared() const;

 private:
  // Modules and slots with the numbers of layers left out, which are equal on both sides.
  struct Link {
    std::string caller, function, consumer, slot;
    std::uint32_t number = 0;  // of the call
    Phase phase = Phase::forward;
    std::uint32_t call = 0;  // of the consumer
    friend auto operator<=>(const Link&, const Link&) = default;
  };
  struct Votes {
    std::uint64_t equal = 0, different = 0;
    std::vector<std::pair<Call, const Record*>> odd;  // the first of them, one a module and rank
    std::set<std::pair<std::int32_t, std::string>> told;
    std::set<std::vector<std::uint64_t>> agreeing;  // numbers of layers
  };
  void look_at(const Link& link, const PlacedCall& placed, const Record& record);

  std::map<Link, Votes> votes_;
};

}  // namespace ttrace::builtin
