// SPDX-License-Identifier: Apache-2.0
// The part of the session that knows where in the mesh and in the iteration the program is.
#include <algorithm>
#include <cerrno>

#include "capture/session.hpp"

namespace ttrace {
namespace {

// As a string of JSON.
std::string quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string to_json(const std::vector<MeshAxis>& axes) {
  std::string list;
  for (const MeshAxis& axis : axes) {
    list += (list.empty() ? "{\"name\":" : ",{\"name\":") + quoted(axis.name) +
            ",\"size\":" + std::to_string(axis.size) +
            ",\"coord\":" + std::to_string(axis.coordinate) + "}";
  }
  return "{\"axes\":[" + list + "]}";
}

bool is_name(const char* name) {
  return name != nullptr && *name != '\0' && std::string_view(name).size() <= kMaxNameBytes;
}

}  // namespace

int Session::begin_microbatch(std::int32_t microbatch) {
  const std::lock_guard lock(mutex_);
  if (inert_ || ring_ == nullptr) return -ENOTCONN;
  if (microbatch < -1) {
    return fail(EINVAL, "ttrace_begin_microbatch",
                "micro-batch " + std::to_string(microbatch) + " is below -1");
  }
  if (last_iteration_ < 0) {
    return fail(EINVAL, "ttrace_begin_microbatch", "no iteration was begun");
  }
  microbatch_ = microbatch;
  return 0;
}

std::int32_t Session::microbatch() {
  const std::lock_guard lock(mutex_);
  return microbatch_;
}

int Session::axis(const char* name, std::int32_t size, std::int32_t coordinate) {
  const std::lock_guard lock(mutex_);
  if (inert_ || ring_ == nullptr) return -ENOTCONN;
  if (!is_name(name)) return fail(EINVAL, "ttrace_axis", "name is empty or too long");
  if (size < 1 || coordinate < 0 || coordinate >= size) {
    return fail(EINVAL, std::string("ttrace_axis ") + name,
                "coordinate " + std::to_string(coordinate) + " is not on an axis of size " +
                    std::to_string(size));
  }
  const auto found = std::find_if(axes_.begin(), axes_.end(),
                                  [&](const MeshAxis& axis) { return axis.name == name; });
  if (found != axes_.end()) {
    *found = {name, size, coordinate};
  } else {
    axes_.push_back({name, size, coordinate});
  }
  return set_locked(to_json(axes_));
}

int Session::group(const char* name, const std::int32_t* ranks, std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (inert_ || ring_ == nullptr) return -ENOTCONN;
  if (!is_name(name)) return fail(EINVAL, "ttrace_group", "name is empty or too long");
  const std::string where = std::string("ttrace_group ") + name;
  if (ranks == nullptr || count == 0) return fail(EINVAL, where, "it has no ranks");
  std::vector<std::int32_t> sorted(ranks, ranks + count);
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0) return fail(EINVAL, where, "a rank is negative");
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return fail(EINVAL, where, "rank " + std::to_string(*twice) + " is in it twice");
  }
  std::string list;
  for (std::size_t i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + std::to_string(ranks[i]);
  return set_locked("{\"groups\":{" + quoted(name) + ":[" + list + "]}}");
}

}  // namespace ttrace
