// SPDX-License-Identifier: Apache-2.0
// See feed_layout.hpp. Programs have few layouts and record each many times: those that were right
// are not read again.
#include "capture/feed_layout.hpp"

#include <cstddef>
#include <functional>
#include <set>

#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"

namespace ttrace {

std::string layout_problem(std::string_view layout) {
  constexpr std::size_t kMostKept = 4096;
  static thread_local std::set<std::string, std::less<>> right;
  if (layout.empty() || right.find(layout) != right.end()) return {};
  try {
    (void)layout_from_json(layout);
  } catch (const Trouble& trouble) {
    return trouble.what();
  }
  if (right.size() < kMostKept) right.emplace(layout);
  return {};
}

}  // namespace ttrace
