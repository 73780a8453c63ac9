// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime: streams and events.
#include <mutex>
#include <unordered_map>

#include "test/fake_nccl/cuda.hpp"

namespace {

std::mutex& handles_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::unordered_map<cudaStream_t, std::shared_ptr<fake::Stream>>& handles() {
  static auto* map = new std::unordered_map<cudaStream_t, std::shared_ptr<fake::Stream>>;
  return *map;
}
fake::Event* event_of(cudaEvent_t handle) { return reinterpret_cast<fake::Event*>(handle); }

std::shared_ptr<fake::Stream> per_thread_stream() {
  static auto* stream =
      new std::shared_ptr<fake::Stream>(fake::Stream::create(fake::Stream::Kind::blocking));
  return *stream;
}

// Where an event stands: its stream and position, none when it was never recorded.
std::pair<std::shared_ptr<fake::Stream>, std::uint64_t> place_of(cudaEvent_t handle) {
  fake::Event* event = event_of(handle);
  const std::lock_guard guard(event->mutex);
  return {event->stream, event->position};
}

}  // namespace

std::shared_ptr<fake::Stream> fake::stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return null_stream();
  if (handle == cudaStreamPerThread) return per_thread_stream();
  const std::lock_guard guard(handles_mutex());
  const auto found = handles().find(handle);
  return found == handles().end() ? nullptr : found->second;
}

FAKE_EXPORT void fake_cuda_demand_all() { fake::demand_all(); }

static cudaError_t create_stream(cudaStream_t* stream, fake::Stream::Kind kind) {
  auto made = fake::Stream::create(kind);
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  const std::lock_guard guard(handles_mutex());
  handles()[*stream] = std::move(made);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  const bool independent = (flags & cudaStreamNonBlocking) != 0;
  return create_stream(
      stream, independent ? fake::Stream::Kind::independent : fake::Stream::Kind::blocking);
}
FAKE_EXPORT cudaError_t fake_cuda_passive_stream(cudaStream_t* stream) {
  return create_stream(stream, fake::Stream::Kind::passive);
}
FAKE_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
FAKE_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags,
                                                     int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
FAKE_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  {
    const std::lock_guard guard(handles_mutex());
    handles().erase(handle);
  }
  stream->wait(stream->end());
  stream->retire();
  fake::forget(stream);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  // The null stream waits for the others, not they for it.
  stream->wait(stream == fake::null_stream() ? fake::submit(stream, [] {}) : stream->end());
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  const std::uint64_t end = stream->end();
  stream->demand(end);
  return stream->passed(end) ? cudaSuccess : cudaErrorNotReady;
}
FAKE_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  fake::submit(stream, [function, data] { function(data); });
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = reinterpret_cast<cudaEvent_t>(new fake::Event);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
FAKE_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event_of(event);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  const auto stream = fake::stream_of(on);
  if (stream == nullptr || handle == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  const std::uint64_t position = fake::submit(stream, [] {});
  fake::Event* event = event_of(handle);
  const std::lock_guard guard(event->mutex);
  event->stream = stream;
  event->position = position;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t on, unsigned int) {
  return cudaEventRecord(event, on);
}
FAKE_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto [stream, position] = place_of(event);
  if (stream != nullptr) stream->wait(position);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto [stream, position] = place_of(event);
  if (stream == nullptr) return cudaSuccess;
  stream->demand(position);
  return stream->passed(position) ? cudaSuccess : cudaErrorNotReady;
}
FAKE_EXPORT int fake_cuda_event_passed(cudaEvent_t event) {
  const auto [stream, position] = place_of(event);
  return stream == nullptr || stream->passed(position) ? 1 : 0;
}
FAKE_EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int) {
  const auto stream = fake::stream_of(handle);
  if (stream == nullptr || event == nullptr) return fake::fail(cudaErrorInvalidResourceHandle);
  const auto [other, position] = place_of(event);
  if (other != nullptr) stream->enqueue_wait(other, position);
  return cudaSuccess;
}
