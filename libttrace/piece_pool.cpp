// SPDX-License-Identifier: Apache-2.0
#include "libttrace/piece_pool.hpp"

#include <functional>
#include <utility>

namespace ttrace {

std::size_t PiecePool::Hash::operator()(const SharedPieces& pieces) const {
  constexpr std::size_t kGoldenRatio = 0x9e3779b97f4a7c15;
  std::size_t hash = pieces.size();
  const auto mix = [&hash](const Shape& numbers) {
    for (const std::uint64_t number : numbers) {
      hash = (hash ^ std::hash<std::uint64_t>{}(number)) * kGoldenRatio;
      hash ^= hash >> 32;
    }
  };
  for (const Piece& piece : pieces) {
    mix(piece.local_start);
    mix(piece.global.start);
    mix(piece.global.count);
  }
  return hash;
}

SharedPieces PiecePool::keep(std::vector<Piece> pieces) {
  return *known_.insert(SharedPieces(std::move(pieces))).first;
}

}  // namespace ttrace
