// SPDX-License-Identifier: Apache-2.0
// See communicators.hpp.
#include "capture/nccl/communicators.hpp"

#include <cstdio>
#include <shared_mutex>
#include <utility>

#include "capture/nccl/functions.hpp"

namespace ttrace::nccl {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<ncclComm_t, std::shared_ptr<Communicator>> communicators;
};

// Never destroyed: threads may be at work while the process ends.
Registry& registry() {
  static auto* const only = new Registry;
  return *only;
}

// FNV-1a, then spread over all bits.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  return hash ^ (hash >> 33);
}

std::string name_of(std::uint64_t hash) {
  char text[32];
  std::snprintf(text, sizeof text, "nccl-%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace

std::string group_of(const ncclUniqueId* ids, int count) {
  return name_of(hash_of({reinterpret_cast<const char*>(ids),
                          sizeof(ncclUniqueId) * static_cast<std::size_t>(count)}));
}

std::string group_of(std::string_view parent, std::string_view how) {
  return name_of(hash_of(std::string(parent) + " " + std::string(how)));
}

std::shared_ptr<Communicator> find(ncclComm_t comm) {
  {
    const std::shared_lock lock(registry().mutex);
    const auto found = registry().communicators.find(comm);
    if (found != registry().communicators.end()) return found->second;
  }
  if (comm == nullptr) return nullptr;
  auto unknown = std::make_shared<Communicator>();
  unknown->group = "nccl-unknown";
  enter(comm, unknown);
  return unknown;
}

void enter(ncclComm_t comm, std::shared_ptr<Communicator> communicator) {
  const std::unique_lock lock(registry().mutex);
  registry().communicators[comm] = std::move(communicator);
}

std::shared_ptr<Communicator> forget(ncclComm_t comm) {
  const std::unique_lock lock(registry().mutex);
  const auto node = registry().communicators.extract(comm);
  return node.empty() ? nullptr : node.mapped();
}

bool know(ncclComm_t comm, Communicator& communicator) {
  if (communicator.size >= 0) return true;
  const auto count = TTRACE_REAL(ncclCommCount);
  const auto user_rank = TTRACE_REAL(ncclCommUserRank);
  int size = 0, member = 0;
  if (count == nullptr || user_rank == nullptr || count(comm, &size) != ncclSuccess ||
      user_rank(comm, &member) != ncclSuccess) {
    return false;
  }
  communicator.member = member;
  communicator.size = size;
  return true;
}

}  // namespace ttrace::nccl
