// SPDX-License-Identifier: Apache-2.0
// See words.hpp.
#include "libttrace/words.hpp"

namespace ttrace {

std::string grouped(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string plural(std::uint64_t count, const std::string& noun, const std::string& ending) {
  return grouped(count) + " " + noun + (count == 1 ? "" : ending);
}

}  // namespace ttrace
