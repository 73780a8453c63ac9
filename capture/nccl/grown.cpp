// SPDX-License-Identifier: Apache-2.0
// See grown.hpp.
#include "capture/nccl/grown.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "capture/nccl/communicators.hpp"
#include "capture/nccl/record.hpp"

namespace ttrace::nccl {
namespace {

std::string note_of(const ncclUniqueId& id) {
  const char* directory = std::getenv("TTRACE_OUT");
  return std::string(directory != nullptr ? directory : ".") + "/." + group_of(&id, 1);
}

template <class Number>
double number_as(const void* scalar) {
  Number number;
  std::memcpy(&number, scalar, sizeof number);
  return static_cast<double>(number);
}

}  // namespace

std::string group_before_grow(ncclComm_t parent, const ncclUniqueId* id) {
  const auto known = parent == nullptr ? nullptr : find(parent);
  if (known == nullptr) return {};
  const std::string group = group_of(known->group, "grow " + std::to_string(known->grows++));
  if (id == nullptr) return group;
  const std::string path = note_of(*id), part = path + ".part";
  if (std::FILE* file = std::fopen(part.c_str(), "we")) {
    std::fputs(group.c_str(), file);
    std::fclose(file);
    std::rename(part.c_str(), path.c_str());
  }
  return group;
}

std::string group_after_grow(const ncclUniqueId& id) {
  char text[64] = {};
  if (std::FILE* file = std::fopen(note_of(id).c_str(), "re")) {
    const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
    std::fclose(file);
    if (length > 0) return text;
  }
  note_unseen("ncclCommGrow",
              "the trace directory is not shared with the old members, so the "
              "name of the grown group differs from theirs");
  return group_of(&id, 1);
}

std::string of_this_process() {
  static const std::string text =
      std::to_string(getpid()) + " " +
      std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  return text;
}

void keep_factor(ncclComm_t comm, ncclRedOp_t op, const void* scalar, ncclDataType_t type) {
  const auto known = find(comm);
  if (known == nullptr) return;
  double factor = 0;
  switch (type) {
    case ncclFloat32:
      factor = number_as<float>(scalar);
      break;
    case ncclFloat64:
      factor = number_as<double>(scalar);
      break;
    case ncclFloat16:
      factor = static_cast<double>(static_cast<float>(*static_cast<const __half*>(scalar)));
      break;
    case ncclBfloat16:
      factor = static_cast<double>(static_cast<float>(*static_cast<const __nv_bfloat16*>(scalar)));
      break;
    case ncclInt8:
      factor = number_as<std::int8_t>(scalar);
      break;
    case ncclUint8:
      factor = number_as<std::uint8_t>(scalar);
      break;
    case ncclInt32:
      factor = number_as<std::int32_t>(scalar);
      break;
    case ncclUint32:
      factor = number_as<std::uint32_t>(scalar);
      break;
    case ncclInt64:
      factor = number_as<std::int64_t>(scalar);
      break;
    case ncclUint64:
      factor = number_as<std::uint64_t>(scalar);
      break;
    default:
      return;
  }
  const std::lock_guard lock(known->mutex);
  known->factors[op] = factor;
}

void drop_factor(ncclComm_t comm, ncclRedOp_t op) {
  const auto known = find(comm);
  if (known == nullptr) return;
  const std::lock_guard lock(known->mutex);
  known->factors.erase(op);
}

}  // namespace ttrace::nccl
