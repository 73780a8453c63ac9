// SPDX-License-Identifier: Apache-2.0
// See mapped_guard.hpp. The signal handler may only walk what is never freed: entries of mappings
// that are gone are used again.
#include "libttrace/core/mapped_guard.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

struct Entry {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // equal: free
  std::string path;
  Entry* next = nullptr;
};

std::atomic<Entry*> entries{nullptr};
std::atomic<bool> unreadable{false};
std::mutex mutex;  // of all but the handler
std::uintptr_t page_size = 4096;

Entry* unreadable_entry = nullptr;

// The page that cannot be read is replaced by zeros.
void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Entry* entry = entries.load(); entry != nullptr; entry = entry->next) {
    if (address < entry->begin.load() || address >= entry->end.load()) continue;
    void* page = reinterpret_cast<void*>(address / page_size * page_size);
    if (mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
      if (!unreadable.exchange(true)) unreadable_entry = entry;
      return;
    }
  }
  signal(SIGBUS, SIG_DFL);  // not ours: what would have happened happens when it is tried again
}

void install_handler() {
  page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

void watch_mapping(const std::byte* data, std::size_t size, const std::filesystem::path& path) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  const std::lock_guard guard(mutex);
  Entry* entry = entries.load();
  // Not that of a file that could not be read: its name is still to be told.
  while (entry != nullptr && (entry->end.load() != 0 || entry == unreadable_entry)) {
    entry = entry->next;
  }
  const bool fresh = entry == nullptr;
  if (fresh) entry = new Entry;
  entry->path = path.string();
  entry->begin = reinterpret_cast<std::uintptr_t>(data);
  entry->end = entry->begin + size;
  if (!fresh) return;
  entry->next = entries.load();
  entries = entry;
}

void forget_mapping(const std::byte* data) {
  const std::lock_guard guard(mutex);
  for (Entry* entry = entries.load(); entry != nullptr; entry = entry->next) {
    if (entry->begin != reinterpret_cast<std::uintptr_t>(data)) continue;
    entry->end = 0;
    entry->begin = 0;
  }
}

void check_mapped_files() {
  if (!unreadable) return;
  throw Trouble("cannot read", unreadable_entry->path,
                "it became shorter while it was read, or the disk failed; try again when nothing "
                "writes to it");
}

}  // namespace ttrace
