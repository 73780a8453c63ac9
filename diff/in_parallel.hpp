// SPDX-License-Identifier: Apache-2.0
// Work that is done by a few threads at once.
#pragma once

#include <cstddef>
#include <functional>

namespace ttrace {

// As many as there are cores and tasks, but few: each keeps some MiB of mapped pages resident.
[[nodiscard]] unsigned threads_for(std::size_t tasks);

// Calls work() on `threads` threads, this one among them. Throws what one of them threw first, when
// all have ended.
void on_threads(unsigned threads, const std::function<void()>& work);

// Calls work(i) for each i < count, from several threads; ends early where one throws.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace ttrace
