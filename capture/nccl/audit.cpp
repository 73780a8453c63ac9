// SPDX-License-Identifier: Apache-2.0
// See audit.hpp.
#include "capture/nccl/audit.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <iterator>
#include <string_view>

#include "capture/nccl/functions.hpp"

namespace ttrace::nccl {
namespace {

constexpr std::string_view kInterposed[] = {
#define TTRACE_NAME(name) #name,
    TTRACE_NCCL_FUNCTIONS(TTRACE_NAME)
#undef TTRACE_NAME
};

// Moves no data by itself. A name that ends with * stands for all that begin so.
constexpr std::string_view kHarmless[] = {
    "ncclComm*",       "ncclGet*",    "ncclGroup*",        "ncclMem*",
    "ncclParam*",      "ncclTeam*",   "ncclRedOp*",        "ncclReset*",
    "ncclDebug*",      "ncclWinGet*", "ncclSetEncryption", "ncclDevComm*",
    "ncclLsaBarrier*", "ncclGin*",    "ncclLLA2A*",        "ncclNet*"};

bool known(std::string_view name) {
  if (std::find(std::begin(kInterposed), std::end(kInterposed), name) != std::end(kInterposed)) {
    return true;
  }
  return std::any_of(std::begin(kHarmless), std::end(kHarmless), [&](std::string_view entry) {
    if (entry.back() != '*') return entry == name;
    return name.substr(0, entry.size() - 1) == entry.substr(0, entry.size() - 1);
  });
}

bool is_function_of_nccl(std::string_view name) {
  return name.size() > 4 && name.substr(0, 4) == "nccl" &&
         std::isupper(static_cast<unsigned char>(name[4])) != 0;
}

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* hash = nullptr;
};

Tables tables_of(const link_map& object) {
  Tables tables;
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto* at = reinterpret_cast<const void*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) tables.symbols = static_cast<const ElfW(Sym)*>(at);
    if (entry->d_tag == DT_STRTAB) tables.names = static_cast<const char*>(at);
    if (entry->d_tag == DT_GNU_HASH) tables.gnu_hash = static_cast<const std::uint32_t*>(at);
    if (entry->d_tag == DT_HASH) tables.hash = static_cast<const std::uint32_t*>(at);
  }
  return tables;
}

// Symbols that the object exports are the last of its table: behind them nothing follows.
std::uint32_t end_of_symbols(const Tables& tables) {
  if (tables.hash != nullptr) return tables.hash[1];
  if (tables.gnu_hash == nullptr) return 0;
  const std::uint32_t buckets = tables.gnu_hash[0], first = tables.gnu_hash[1];
  const std::uint32_t words = tables.gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t* bucket = tables.gnu_hash + 4 + words;
  const std::uint32_t* chain = bucket + buckets;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < buckets; ++i) last = std::max(last, bucket[i]);
  if (last < first) return 0;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

template <class Visitor>
void for_each_unknown(const link_map& object, const Visitor& visit) {
  const Tables tables = tables_of(object);
  if (tables.symbols == nullptr || tables.names == nullptr) return;
  const std::uint32_t end = end_of_symbols(tables);
  for (std::uint32_t i = 0; i < end; ++i) {
    const ElfW(Sym)& symbol = tables.symbols[i];
    const char* name = tables.names + symbol.st_name;
    const bool function = (symbol.st_info & 0xf) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
    if (function && is_function_of_nccl(name) && !known(name)) visit(name);
  }
}

}  // namespace

void audit(const Library& library) {
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_relaxed) || done.exchange(true)) return;
  Dl_info info;
  link_map* object = nullptr;
  void* address = real_address(Function::ncclAllReduce);
  if (address == nullptr ||
      dladdr1(address, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 ||
      object == nullptr) {
    return;
  }
  for_each_unknown(*object, [&](const char* name) {
    library.note("collectives", name,
                 "this NCCL has a function that the recorder does not know: calls of it are not "
                 "recorded");
  });
}

}  // namespace ttrace::nccl
