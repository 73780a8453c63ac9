// SPDX-License-Identifier: Apache-2.0
// Most shards of a trace are cut in one of a few ways: equal pieces are kept once.
#pragma once

#include <unordered_set>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

class PiecePool {
 public:
  // Equal to `pieces`, and shared with all others that are.
  [[nodiscard]] SharedPieces keep(std::vector<Piece> pieces);

 private:
  struct Hash {
    std::size_t operator()(const SharedPieces& pieces) const;
  };
  std::unordered_set<SharedPieces, Hash> known_;
};

}  // namespace ttrace
