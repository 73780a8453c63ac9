// SPDX-License-Identifier: Apache-2.0
// The part of the session that a replay needs: ttrace_feed, and what is recorded differently when
// the values come from another run. See feed.hpp.
#include <cerrno>
#include <exception>

#include "capture/feed.hpp"
#include "capture/scopes.hpp"
#include "capture/session.hpp"

namespace ttrace {
namespace {

// `where` in notes, as it is for records.
std::string place_of(const CheckedTensor& checked) {
  return std::string(checked.module) + "/" + std::string(checked.slot);
}

bool is_activation(std::uint8_t phase) {
  return phase == TTRACE_FORWARD || phase == TTRACE_BACKWARD;
}

Key key_of(const ttrace_tensor& tensor, const CheckedTensor& checked, std::int64_t iteration) {
  Key key;
  key.iteration = iteration;
  key.microbatch = tensor.microbatch;
  key.phase = static_cast<Phase>(tensor.phase);
  key.module = checked.module;
  key.call = tensor.call;
  key.slot = checked.slot;
  return key;
}

std::string_view layout_of(const ttrace_tensor& tensor) {
  return tensor.layout == nullptr ? std::string_view() : tensor.layout;
}

Shape shape_of(const ttrace_tensor& tensor) { return {tensor.shape, tensor.shape + tensor.ndim}; }

}  // namespace

std::string Session::open_feed() {
  feed_.reset();
  fed_ = 0;
  if (settings_.replay.empty()) return {};
  try {
    feed_ = std::make_unique<Feed>(settings_.replay, settings_.rank);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

void Session::learn(std::string_view json) {
  if (feed_ == nullptr) return;
  try {
    feed_->learn(json);
  } catch (const std::exception&) {
    // The writer says what is wrong with the text.
  }
}

int Session::feed(const ttrace_tensor* tensor, void* data) {
  const std::lock_guard lock(mutex_);
  if (inert_ || !collecting() || !open_iteration_ || feed_ == nullptr) return 0;
  if (tensor == nullptr) return fail(EINVAL, "ttrace_feed", "no tensor");
  ttrace_tensor given = complete(*tensor, microbatch_, innermost_scope());
  if (given.device == TTRACE_DEVICE)
    return fail(EINVAL, "ttrace_feed", "it writes to the host only, copy from there");
  given.data = data;
  given.alias_of = -1;
  const CheckedTensor checked = check_tensor(given, recorded_);
  if (!checked.problem.empty()) {
    return fail(EINVAL, "ttrace_feed " + place_of(checked), checked.problem);
  }
  const Key key = key_of(given, checked, last_iteration_);
  const PackEntry* entry = feed_->find(key);
  std::string why;
  if (entry != nullptr) {
    why = feed_->write(*entry, static_cast<DType>(given.dtype), shape_of(given), layout_of(given),
                       static_cast<std::byte*>(data));
    if (why.empty()) {
      fed_ += is_activation(given.phase) ? 1 : 0;
      return 1;
    }
  } else if (given.phase == TTRACE_PARAM && feed_->has_iteration(last_iteration_)) {
    why = "the pack has no such tensor";
  }
  if (why.empty()) return 0;
  if (!send_note("not overwritten", place_of(checked), why, 0)) return disarm();
  return entry == nullptr ? 0 : remember(EINVAL, place_of(checked) + ": " + why);
}

bool Session::replaced_parameter(const ttrace_tensor& tensor, const CheckedTensor& checked,
                                 std::vector<std::byte>& bytes) const {
  if (feed_ == nullptr || tensor.phase != TTRACE_PARAM || tensor.alias_of >= 0 ||
      !feed_->replaces_parameters(last_iteration_)) {
    return false;
  }
  const PackEntry* entry = feed_->find(key_of(tensor, checked, last_iteration_));
  if (entry == nullptr) return false;
  bytes.resize(static_cast<std::size_t>(checked.bytes));
  return feed_
      ->write(*entry, static_cast<DType>(tensor.dtype), shape_of(tensor), layout_of(tensor),
              bytes.data())
      .empty();
}

bool Session::steps_from_unknown_state(const ttrace_tensor& tensor) const {
  return feed_ != nullptr && tensor.phase == TTRACE_STEP && !feed_->knows_state(last_iteration_);
}

bool Session::send_fed() {
  if (feed_ == nullptr) return true;
  const std::string text = "{\"fed\":" + std::to_string(fed_) + "}";
  return send_header(MessageType::set_json, text.size()) && send(text);
}

}  // namespace ttrace
