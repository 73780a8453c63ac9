// SPDX-License-Identifier: Apache-2.0
// The part of the session that records collectives: rows of /collectives; their buffers are records
// like any others.
#include <cerrno>

#include "capture/collective_check.hpp"
#include "capture/scopes.hpp"
#include "capture/session.hpp"

namespace ttrace {

namespace {

std::string where_of(const CheckedCollective& checked) {
  return "ttrace_record_collective " + std::string(checked.texts[0].substr(0, 64));
}

}  // namespace

int Session::collectives_wanted() {
  if (paused_.load(std::memory_order_relaxed)) return 0;
  int wanted = comm_.load(std::memory_order_relaxed);
  if (wanted >= 0) return wanted;
  wanted = wanted_collectives().value_or(0);
  comm_.store(wanted, std::memory_order_relaxed);
  return wanted;
}

int Session::record_collective(const ttrace_collective* call) {
  const std::lock_guard lock(mutex_);
  if (inert_ || !collecting() || settings_.comm == 0) return -ENOTCONN;
  if (call == nullptr) return fail(EINVAL, "ttrace_record_collective", "no call");
  const CheckedCollective checked =
      check_collective(*call, microbatch_, innermost_scope(), recorded_);
  if (!checked.problem.empty()) return fail(EINVAL, where_of(checked), checked.problem);
  if (!open_iteration_) return fail(EINVAL, where_of(checked), "no iteration was begun");
  if (settings_.estimate) return 0;
  if (!checked.doubt.empty() && !send_note("doubtful", where_of(checked), checked.doubt, 0)) {
    return disarm();
  }
  std::uint64_t bytes = sizeof checked.body;
  for (const std::string_view text : checked.texts) bytes += text.size();
  bool sent = send_header(MessageType::collective, bytes) && send_body(checked.body);
  for (const std::string_view text : checked.texts) sent = sent && send(text);
  if (!sent) return disarm();
  ring_->publish();
  return 0;
}

}  // namespace ttrace
