// SPDX-License-Identifier: Apache-2.0
// Tensors on a real device: that each record holds what the tensor held in the order of its stream,
// although the program overwrites and frees it at once, and how long ttrace_record holds up the
// host and the stream. Exit code 77 where there is no device.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "capture/ttrace.h"
#include "libttrace/segment.hpp"

namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr int kStreams = 4;

bool succeeded(cudaError_t code, const char* what) {
  if (code != cudaSuccess) std::printf("%s: %s\n", what, cudaGetErrorString(code));
  return code == cudaSuccess;
}

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

std::int64_t record(const std::string& module, const void* data, std::uint64_t bytes,
                    cudaStream_t stream, std::uint32_t device) {
  ttrace_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.phase = TTRACE_FORWARD;
  tensor.dtype = TTRACE_UINT8;
  tensor.ndim = 1;
  tensor.module = module.c_str();
  tensor.slot = "output.0";
  tensor.shape = &bytes;
  tensor.data = data;
  tensor.alias_of = -1;
  tensor.device = device;
  tensor.stream = stream;
  return ttrace_record(&tensor);
}

class Trace {
 public:
  explicit Trace(std::uint64_t ring_bytes) {
    std::string name = (std::filesystem::temp_directory_path() / "ttrace-gpu-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    ttrace_options options{};
    options.struct_size = sizeof options;
    options.directory = path_.c_str();
    options.writer = TEST_WRITER;
    options.ring_bytes = ring_bytes;
    if (ttrace_open(&options) != 0 || ttrace_begin_iteration(0) != 0)
      std::printf("open: %s\n", ttrace_last_error());
  }
  ~Trace() { std::filesystem::remove_all(path_); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  [[nodiscard]] ttrace::SegmentReader reader() const {
    return ttrace::SegmentReader(path_ / "rank00000/it000000.h5");
  }

 private:
  std::filesystem::path path_;
};

// Each record is one byte's value throughout: that of its turn, or it was read too late.
bool records_are_of_their_turn(const ttrace::SegmentReader& reader, int count, bool of_streams) {
  int wrong = 0;
  const auto& records = reader.records();
  for (std::size_t n = 0; n < records.size(); ++n) {
    const auto expected = static_cast<std::byte>(std::stoi(records[n].key.module));
    const auto bytes = reader.bytes(records[n]);
    wrong += std::all_of(bytes.begin(), bytes.end(),
                         [expected](std::byte byte) { return byte == expected; })
                 ? 0
                 : 1;
  }
  std::printf("| %s | %zu of %d records | %d wrong |\n",
              of_streams ? "overwritten at once, 4 streams" : "freed and used again",
              records.size(), count, wrong);
  return wrong == 0 && records.size() == static_cast<std::size_t>(count);
}

// Buffers of 8 MiB and a little, through a ring of 16 MiB: it fills, pieces go round its end.
bool overwriting() {
  constexpr int kRounds = 60;
  constexpr std::size_t kOdd = (std::size_t{8} << 20) + 12345;
  const Trace trace(std::size_t{16} << 20);
  cudaStream_t streams[kStreams] = {};
  void* buffers[kStreams] = {};
  for (int s = 0; s < kStreams; ++s) {
    // The last one is the default stream.
    if (s + 1 < kStreams) cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking);
    if (!succeeded(cudaMalloc(&buffers[s], kOdd), "cudaMalloc")) return false;
  }
  for (int n = 0; n < kRounds; ++n) {
    const int s = n % kStreams;
    cudaMemsetAsync(buffers[s], n, kOdd, streams[s]);
    if (record(std::to_string(n), buffers[s], kOdd, streams[s], TTRACE_ANYWHERE) != n) return false;
    cudaMemsetAsync(buffers[s], 255, kOdd, streams[s]);
  }
  if (ttrace_close() != 0) return false;
  for (void* buffer : buffers) cudaFree(buffer);
  return records_are_of_their_turn(trace.reader(), kRounds, true);
}

bool freeing() {
  constexpr int kRounds = 100;
  const Trace trace(std::size_t{64} << 20);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  for (int n = 0; n < kRounds; ++n) {
    void* memory = nullptr;  // of the stream's pool, which gives it out again at once
    if (!succeeded(cudaMallocAsync(&memory, std::size_t{1} << 20, stream), "cudaMallocAsync"))
      return false;
    cudaMemsetAsync(memory, n, std::size_t{1} << 20, stream);
    if (record(std::to_string(n), memory, std::size_t{1} << 20, stream, TTRACE_DEVICE) != n)
      return false;
    cudaFreeAsync(memory, stream);
  }
  if (ttrace_close() != 0) return false;
  return records_are_of_their_turn(trace.reader(), kRounds, false);
}

// Of 64 MiB into a ring that has room for all: the call, the stream, and all until it is closed.
bool speed() {
  constexpr int kRounds = 12;
  const Trace trace(std::size_t{2} << 30);
  void* buffer = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t before = nullptr;
  cudaEvent_t after = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreate(&before);
  cudaEventCreate(&after);
  if (!succeeded(cudaMalloc(&buffer, kBytes), "cudaMalloc")) return false;
  cudaMemsetAsync(buffer, 1, kBytes, stream);
  record("warm", buffer, kBytes, stream, TTRACE_DEVICE);  // pins the ring
  cudaDeviceSynchronize();
  std::vector<double> host;
  std::vector<double> device;
  const auto start = std::chrono::steady_clock::now();
  for (int n = 0; n < kRounds; ++n) {
    cudaEventRecord(before, stream);
    const auto call = std::chrono::steady_clock::now();
    record("speed", buffer, kBytes, stream, TTRACE_DEVICE);
    host.push_back(microseconds_since(call));
    cudaEventRecord(after, stream);
    cudaEventSynchronize(after);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, before, after);
    device.push_back(1000.0 * static_cast<double>(milliseconds));
  }
  cudaDeviceSynchronize();
  const double copied = microseconds_since(start);
  const bool closed = ttrace_close() == 0;
  const double written = microseconds_since(start);
  std::sort(host.begin(), host.end());
  std::sort(device.begin(), device.end());
  const double bytes = static_cast<double>(kBytes) * kRounds;
  std::printf("\n| 64 MiB | median |\n|---|---|\n");
  std::printf("| the call, us | %.1f |\n| its stream, us | %.1f |\n", host[kRounds / 2],
              device[kRounds / 2]);
  std::printf("| to the host, GB/s | %.1f |\n| to the disk, GB/s | %.2f |\n", 1e-3 * bytes / copied,
              1e-3 * bytes / written);
  cudaFree(buffer);
  return closed;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no device\n");
    return 77;
  }
  std::printf("| records of a device | | |\n|---|---|---|\n");
  const bool overwritten = overwriting();
  const bool freed = freeing();
  return speed() && overwritten && freed ? 0 : 1;
}
