// SPDX-License-Identifier: Apache-2.0
// See session.hpp.
#include "capture/session.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <span>
#include <system_error>
#include <thread>

#include "capture/feed.hpp"
#include "capture/scopes.hpp"
#include "capture/session_holder.hpp"
#include "capture/spawn.hpp"

namespace ttrace {

using std::chrono::milliseconds;

namespace {

// For the next copy from a device to end, which may stand behind much work in its stream.
constexpr milliseconds kPatience{600000};
constexpr milliseconds kPatienceAtExit{30000};

// One write, so that lines of several ranks do not mix.
void complain(std::int32_t rank, std::string_view text) {
  const std::string line = "ttrace: rank " + std::to_string(rank) + ": " + std::string(text) + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody listens
}

std::string_view view(const char* text) { return text == nullptr ? std::string_view{} : text; }

// Tokens and labels: they say which micro-batch this is, so every trace has them in full.
bool identifies_microbatch(const ttrace_tensor& tensor) {
  return (tensor.flags & TTRACE_ROOT_INPUT) != 0 && tensor.dtype >= TTRACE_INT8;
}

}  // namespace

// ---- open and close ----

Session::Session() = default;
Session::~Session() = default;  // where Feed is known

int Session::open(const ttrace_options* options) {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { session().make_child_inert(); });
  const std::lock_guard lock(mutex_);
  if (inert_) return remember(ENOTCONN, "a forked child records nothing");
  if (registered != 0) return remember(registered, "pthread_atfork failed");
  if (ring_ != nullptr) return 0;
  settings_ = {};
  if (const auto refusal = read_settings(options, settings_)) {
    if (refusal->error != ENOENT) complain(settings_.rank, "nothing is captured: " + refusal->why);
    return remember(refusal->error, refusal->why);
  }
  return open_writer();
}

int Session::open_writer() {
  int error = 0;
  std::string why;
  try {
    auto ring = std::make_unique<RingProducer>(settings_.ring_bytes);
    start_writer(settings_, *ring);
    ring_ = std::move(ring);
    wanted_ = true;
    open_iteration_ = false;
    last_iteration_ = -1;
    microbatch_ = -1;
    axes_.clear();
    comm_.store(settings_.comm);
    recorded_.clear();
    estimate_ = {};
    update_active();
    if (const std::string problem = open_feed(); !problem.empty())
      return fail(EINVAL, "--replay", problem);
    return 0;
  } catch (const SpawnFailure& failure) {
    error = failure.error;
    why = failure.what();
  } catch (const std::system_error& failure) {
    error = failure.code().value();
    why = failure.what();
  }
  complain(settings_.rank, "nothing is captured: " + why);
  return remember(error == 0 ? EIO : error, why);
}

int Session::close() {
  const std::lock_guard lock(mutex_);
  return close_locked(kPatience);
}

int Session::close_locked(milliseconds patience) {
  if (inert_ || ring_ == nullptr) return 0;
  active_.store(false);
  if (device_ != nullptr && !device_->stop(patience)) {
    release_ring(patience);
    const std::string why = "copies from a device do not end, the trace ends before them";
    complain(settings_.rank, why);
    return remember(ETIMEDOUT, why);
  }
  if (send_fed() && send_estimate() && send_header(MessageType::close, 0)) ring_->publish();
  ConsumerReport report = ring_->report();
  while (report.state == ConsumerState::ready && !ring_->consumer_gone()) {
    report = ring_->wait_while(ConsumerState::ready, milliseconds(10000));
  }
  if (report.state != ConsumerState::finished) report = ring_->report();
  if (report.state != ConsumerState::finished) return disarm();
  release_ring(patience);
  feed_.reset();
  recorded_ = {};
  if (report.error == 0) return 0;
  complain(settings_.rank, report.message);
  return remember(report.error, report.message);
}

void Session::close_at_exit() {
  if (inert_) return;
  // The lock may belong to a thread that waits for a slow disk, or to this one, when a signal
  // handler called exit() in the middle of a call. The writer finishes on its own when we are gone.
  for (int tries = 0; !mutex_.try_lock(); ++tries) {
    if (tries == 500) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  close_locked(kPatienceAtExit);
  mutex_.unlock();
}

void Session::make_child_inert() {
  // Other threads of the parent may have held these locks; they do not exist here.
  new (&mutex_) std::mutex;
  new (&error_mutex_) std::mutex;
  if (ring_ == nullptr) return;  // nothing was open: the child may have a capture of its own
  active_.store(false);
  inert_ = true;
  parents_ring_ = ring_.release();
  (void)device_.release();
}

int Session::disarm() {
  const ConsumerReport report = ring_->report();
  const std::string why =
      report.message.empty() || report.state == ConsumerState::ready
          ? "its writer died, capture ends here, the program goes on"
          : "its writer gave up (" + report.message + "), capture ends here, the program goes on";
  active_.store(false);
  release_ring(kPatienceAtExit);
  recorded_ = {};
  complain(settings_.rank, why);
  return remember(EPIPE, why);
}

// ---- errors ----

int Session::remember(int error, std::string_view text) {
  const std::lock_guard lock(error_mutex_);
  error_ = text;
  return -error;
}

std::string Session::last_error() {
  const std::lock_guard lock(error_mutex_);
  return error_;
}

int Session::fail(int error, std::string_view where, std::string_view text) {
  constexpr std::size_t kLongest = 512;  // a name may be what is wrong
  where = where.substr(0, kLongest);
  if (!send_note("error", where, text, 1)) return disarm();
  return remember(error, std::string(where) + ": " + std::string(text));
}

int Session::refuse(std::string_view where, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!inert_ && ring_ != nullptr) return fail(EINVAL, where, text);
  return remember(EINVAL, std::string(where) + ": " + std::string(text));
}

bool Session::send_estimate() {
  std::string phases;
  for (std::uint8_t code = 0; code < kPhaseCount; ++code) {
    if (estimate_[code] == 0) continue;
    phases += (phases.empty() ? "\"" : ",\"") + std::string(name_of(static_cast<Phase>(code))) +
              "\":" + std::to_string(estimate_[code]);
  }
  if (phases.empty()) return true;
  const std::string text = "{\"estimate_bytes\":{" + phases + "}}";
  if (!send_header(MessageType::set_json, text.size()) || !send(text)) return false;
  ring_->publish();
  return true;
}

void Session::update_active() {
  iteration_.store(open_iteration_ ? last_iteration_ : -1);
  active_.store(collecting());
}

// ---- messages ----

bool Session::send(std::span<const std::byte> bytes) { return ring_->write(bytes); }

bool Session::send(std::string_view text) { return send(std::as_bytes(std::span(text))); }

bool Session::send_header(MessageType type, std::uint64_t bytes) {
  MessageHeader header;
  header.type = type;
  header.bytes = bytes;
  return send_body(header);
}

bool Session::send_note(std::string_view what, std::string_view where, std::string_view why,
                        std::uint32_t degrades) {
  for (std::string_view* text : {&what, &where, &why}) *text = text->substr(0, kMaxNameBytes);
  NoteBody body;
  body.what_bytes = static_cast<std::uint32_t>(what.size());
  body.where_bytes = static_cast<std::uint32_t>(where.size());
  body.why_bytes = static_cast<std::uint32_t>(why.size());
  body.degrades = degrades;
  const std::uint64_t bytes = sizeof body + what.size() + where.size() + why.size();
  const bool sent = send_header(MessageType::note, bytes) && send_body(body) && send(what) &&
                    send(where) && send(why);
  if (sent) ring_->publish();
  return sent;
}

int Session::set(const char* json) {
  const std::lock_guard lock(mutex_);
  if (inert_ || ring_ == nullptr) return -ENOTCONN;
  return set_locked(view(json));
}

int Session::set_locked(std::string_view text) {
  if (text.empty()) return fail(EINVAL, "ttrace_set", "no text");
  if (text.size() > kMaxJsonBytes) return fail(EINVAL, "ttrace_set", "text is longer than 1 GiB");
  if (!send_header(MessageType::set_json, text.size()) || !send(text)) return disarm();
  ring_->publish();
  learn(text);
  return 0;
}

int Session::note(const char* what, const char* where, const char* why) {
  const std::lock_guard lock(mutex_);
  if (inert_ || ring_ == nullptr) return -ENOTCONN;
  return send_note(view(what), view(where), view(why), 0) ? 0 : disarm();
}

// ---- iterations and records ----

int Session::begin_iteration(std::int64_t iteration) {
  const std::lock_guard lock(mutex_);
  if (inert_ || ring_ == nullptr) return -ENOTCONN;
  if (iteration <= last_iteration_) {
    return fail(EINVAL, "iteration " + std::to_string(iteration),
                iteration < 0 ? "is negative" : "came after a later one or twice");
  }
  const bool was_open = open_iteration_;
  if (was_open && !send_fed()) return disarm();
  last_iteration_ = iteration;
  wanted_ = !settings_.iterations || contains(*settings_.iterations, iteration);
  open_iteration_ = wanted_;
  microbatch_ = -1;
  recorded_.clear();
  update_active();

  if (settings_.estimate) return 0;
  IterationBody body;
  body.iteration = iteration;
  const bool sent = wanted_
                        ? send_header(MessageType::begin_iteration, sizeof body) && send_body(body)
                        : !was_open || send_header(MessageType::end_iteration, 0);
  if (!sent) return disarm();
  ring_->publish();
  return 0;
}

int Session::end_iteration() {
  const std::lock_guard lock(mutex_);
  if (inert_ || ring_ == nullptr) return -ENOTCONN;
  microbatch_ = -1;
  if (!open_iteration_) return 0;
  open_iteration_ = false;
  iteration_.store(-1);
  recorded_.clear();
  if (!send_fed()) return disarm();
  const bool sent =
      settings_.estimate ? send_estimate() : send_header(MessageType::end_iteration, 0);
  if (!sent) return disarm();
  ring_->publish();
  return 0;
}

std::int64_t Session::record(const ttrace_tensor* tensor) {
  const std::lock_guard lock(mutex_);
  if (inert_ || !collecting()) return -ENOTCONN;
  if (tensor == nullptr) return fail(EINVAL, "ttrace_record", "no tensor");
  ttrace_tensor given = complete(*tensor, microbatch_, innermost_scope());
  const CheckedTensor checked = check_tensor(given, recorded_);
  const std::string where = checked.problem.empty() && open_iteration_
                                ? std::string{}
                                : std::string(checked.module) + "/" + std::string(checked.slot);
  if (!checked.problem.empty()) return fail(EINVAL, where, checked.problem);
  if (!open_iteration_) return fail(EINVAL, where, "no iteration was begun");

  const bool always = identifies_microbatch(given);
  const std::string_view phase = name_of(static_cast<Phase>(given.phase));
  if (!always && !settings_.filter.wants(phase, checked.module, checked.slot)) return -ENOTCONN;
  if (given.phase == TTRACE_COMM && settings_.comm < kCommHash) return -ENOTCONN;
  if (steps_from_unknown_state(given)) {
    const bool sent = send_note("not recorded", "step",
                                "the pack does not have the iteration before, so the states that "
                                "this step starts from are not known",
                                0);
    return sent ? -ENOTCONN : disarm();
  }
  DeviceCapture::Place place;
  if (const int refused = find_device(given, checked, place); refused != 0) return refused;
  const std::uint8_t kind =
      always ? given.kind : std::max(given.kind, settings_.kind_in(given.phase));
  const std::uint64_t sequence = recorded_.size();
  RecordedTensor recorded{checked.bytes, sequence, given.dtype};
  if (given.alias_of >= 0) recorded.root = recorded_[static_cast<std::size_t>(given.alias_of)].root;
  recorded_.push_back(recorded);
  if (settings_.estimate) {
    const bool kept = kind == TTRACE_FULL && given.alias_of < 0;
    estimate_[given.phase] += kept ? checked.bytes : 0;
    return static_cast<std::int64_t>(sequence);
  }
  std::vector<std::byte> replaced;
  if (replaced_parameter(given, checked, replaced)) {
    given.data = replaced.data();
    place.lane = nullptr;
  }
  if (!send_record(given, checked, kind, place)) return disarm();
  ring_->publish();
  if (!place.problem.empty()) return remember(EIO, place.problem);
  return static_cast<std::int64_t>(sequence);
}

bool Session::send_record(const ttrace_tensor& tensor, const CheckedTensor& checked,
                          std::uint8_t kind, DeviceCapture::Place& place) {
  const bool alias = tensor.alias_of >= 0;
  RecordBody body;
  body.sequence = recorded_.size() - 1;
  body.alias_of = alias ? static_cast<std::int64_t>(recorded_.back().root) : -1;
  body.tensor_bytes = checked.bytes;
  body.payload_bytes = alias ? 0 : checked.bytes;
  body.microbatch = tensor.microbatch;
  body.call = tensor.call;
  body.flags = tensor.flags;
  body.module_bytes = static_cast<std::uint32_t>(checked.module.size());
  body.slot_bytes = static_cast<std::uint32_t>(checked.slot.size());
  body.raw_name_bytes = static_cast<std::uint32_t>(checked.raw_name.size());
  body.layout_bytes = static_cast<std::uint32_t>(checked.layout.size());
  body.phase = tensor.phase;
  body.dtype = tensor.dtype;
  body.kind = kind;
  body.ndim = tensor.ndim;

  const std::span shape(tensor.shape, tensor.ndim);
  const std::span payload(static_cast<const std::byte*>(tensor.data),
                          static_cast<std::size_t>(body.payload_bytes));
  const bool late = place.lane != nullptr;
  const std::uint64_t names =
      checked.module.size() + checked.slot.size() + checked.raw_name.size() + checked.layout.size();
  const bool described = send_header(late ? MessageType::late_record : MessageType::record,
                                     sizeof body + shape.size_bytes() + names + payload.size() +
                                         (late ? sizeof(Verdict) : 0)) &&
                         send_body(body) && send(std::as_bytes(shape)) && send(checked.module) &&
                         send(checked.slot) && send(checked.raw_name) && send(checked.layout);
  return described && (late ? device_->send(place, payload) : send(payload));
}

}  // namespace ttrace
