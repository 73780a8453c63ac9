// SPDX-License-Identifier: Apache-2.0
// See compare_device.h. What it checks and what it makes of the records is in comparison.hpp, which
// tests run without a device.
#include <algorithm>
#include <vector>

#include "diff/compare_device.h"
#include "diff/comparison.hpp"
#include "diff/cuda_kernel.cuh"

namespace ttrace {
namespace {

constexpr std::uint64_t kTilesAtOnce = 65536;  // 1 Gi elements; 17 MiB of records

// On the device, in the order of a stream.
class StreamMemory {
 public:
  StreamMemory(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaMallocAsync(&data_, bytes, stream), "cudaMallocAsync");
  }
  ~StreamMemory() { cudaFreeAsync(data_, stream_); }
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
};

template <class T>
Metrics measure_on_device(const void* reference, const void* candidate, std::uint64_t count,
                          cudaStream_t stream) {
  Metrics total;
  const PackedRun run;  // one, from index 0 on
  const StreamMemory runs(sizeof run, stream);
  check_cuda(cudaMemcpyAsync(runs.as<void>(), &run, sizeof run, cudaMemcpyHostToDevice, stream),
             "copy to the device");
  const PackedPairs<T> pairs{static_cast<const T*>(reference),
                             static_cast<const T*>(candidate),
                             count,
                             runs.as<PackedRun>(),
                             1,
                             1.0};
  const std::uint64_t tiles = (count + kBlockElements - 1) / kBlockElements;
  const StreamMemory records(std::min(tiles, kTilesAtOnce) * sizeof(TileRecord), stream);
  std::vector<TileRecord> host;
  for (std::uint64_t first = 0; first < tiles; first += kTilesAtOnce) {
    host.resize(std::min(tiles - first, kTilesAtOnce));
    launch_tiles(pairs, first, host.size(), records.as<TileRecord>(), stream);
    check_cuda(cudaMemcpyAsync(host.data(), records.as<void>(), host.size() * sizeof(TileRecord),
                               cudaMemcpyDeviceToHost, stream),
               "copy from the device");
    check_cuda(cudaStreamSynchronize(stream), "measure");
    for (const TileRecord& record : host) add_record(total, record);
  }
  return total;
}

}  // namespace
}  // namespace ttrace

extern "C" int ttrace_compare_device(const void* reference, const void* candidate, uint64_t count,
                                     const char* dtype, void* stream, ttrace_comparison* result,
                                     char* why, size_t why_size) {
  using namespace ttrace;
  return run_comparison({reference, candidate, count, dtype, result}, why, why_size,
                        [&](DType type) {
                          return visit_dtype(type, [&](auto sample) {
                            return measure_on_device<TileStorage<decltype(sample)>>(
                                reference, candidate, count, static_cast<cudaStream_t>(stream));
                          });
                        });
}
