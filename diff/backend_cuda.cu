// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: device buffers, the launch, a block reduction in fixed order; nothing else. One
// CUDA block measures one block of kBlockElements pairs, the host adds the records in order, so a
// result does not depend on scheduling and there are no atomics.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <cub/block/block_reduce.cuh>
#include <mutex>
#include <vector>

#include "diff/backend.hpp"
#include "diff/cuda_tile.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kBatchBytes = std::uint64_t{32} << 20;  // a side

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    throw Trouble("cuda", what, std::string(cudaGetErrorString(code)) + "; use --backend cpu");
  }
}

struct MergeMetrics {
  __host__ __device__ Metrics operator()(const Metrics& left, const Metrics& right) const {
    Metrics both = left;
    merge(both, right);
    return both;
  }
};

template <class T>
__global__ void __launch_bounds__(kTileThreads)
    measure_kernel(PackedPairs<T> pairs, Metrics* records) {
  const Metrics mine = measure_share(pairs, blockIdx.x, threadIdx.x, blockDim.x);
  using Reduce = cub::BlockReduce<Metrics, kTileThreads>;
  __shared__ typename Reduce::TempStorage scratch;
  const Metrics all = Reduce(scratch).Reduce(mine, MergeMetrics{});
  if (threadIdx.x == 0) records[blockIdx.x] = all;
}

class DeviceBuffer {
 public:
  ~DeviceBuffer() { cudaFree(data_); }
  void* reserve(std::size_t bytes) {
    if (bytes > size_) {
      cudaFree(data_);
      data_ = nullptr;
      size_ = 0;
      check(cudaMalloc(&data_, bytes), "cudaMalloc");
      size_ = bytes;
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Pairs packed on the host, flushed to the device in batches of whole blocks.
class CudaBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda"; }

  void measure(DType type, double scale, std::span<const RunPair> runs,
               Metrics& total) const override {
    const std::lock_guard lock(mutex_);
    const std::size_t size = size_of(type);
    const std::uint64_t batch = kBatchBytes / size / kBlockElements * kBlockElements;
    begin_batch();
    std::uint64_t packed = 0;
    for (const RunPair& run : runs) {
      for (std::uint64_t done = 0; done < run.count;) {
        const std::uint64_t count = std::min(run.count - done, batch - packed);
        pack(run, done, count, packed, size);
        packed += count;
        done += count;
        if (packed == batch) {
          flush(type, scale, packed, total);
          packed = 0;
        }
      }
    }
    if (packed != 0) flush(type, scale, packed, total);
  }

 private:
  void begin_batch() const {
    reference_.clear();
    candidate_.clear();
    runs_.clear();
  }

  void pack(const RunPair& run, std::uint64_t done, std::uint64_t count, std::uint64_t packed,
            std::size_t size) const {
    const std::byte* reference = run.reference + done * size;
    const std::byte* candidate = run.candidate + done * size;
    reference_.insert(reference_.end(), reference, reference + count * size);
    candidate_.insert(candidate_.end(), candidate, candidate + count * size);
    runs_.push_back({packed, run.first + done});
  }

  void flush(DType type, double scale, std::uint64_t count, Metrics& total) const {
    visit_dtype(type,
                [&](auto sample) { launch<TileStorage<decltype(sample)>>(scale, count, total); });
    begin_batch();
  }

  template <class T>
  void launch(double scale, std::uint64_t count, Metrics& total) const {
    const auto tiles = static_cast<unsigned>((count + kBlockElements - 1) / kBlockElements);
    void* reference = device_reference_.reserve(reference_.size());
    void* candidate = device_candidate_.reserve(candidate_.size());
    void* runs = device_runs_.reserve(runs_.size() * sizeof(PackedRun));
    void* records = device_records_.reserve(tiles * sizeof(Metrics));
    check(cudaMemcpy(reference, reference_.data(), reference_.size(), cudaMemcpyHostToDevice),
          "copy");
    check(cudaMemcpy(candidate, candidate_.data(), candidate_.size(), cudaMemcpyHostToDevice),
          "copy");
    check(cudaMemcpy(runs, runs_.data(), runs_.size() * sizeof(PackedRun), cudaMemcpyHostToDevice),
          "copy");
    const PackedPairs<T> pairs{static_cast<const T*>(reference),
                               static_cast<const T*>(candidate),
                               count,
                               static_cast<const PackedRun*>(runs),
                               runs_.size(),
                               scale};
    measure_kernel<T><<<tiles, kTileThreads>>>(pairs, static_cast<Metrics*>(records));
    check(cudaGetLastError(), "launch");
    std::vector<Metrics> host(tiles);
    check(cudaMemcpy(host.data(), records, tiles * sizeof(Metrics), cudaMemcpyDeviceToHost),
          "copy");
    for (const Metrics& record : host) merge(total, record);
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::byte> reference_, candidate_;
  mutable std::vector<PackedRun> runs_;
  mutable DeviceBuffer device_reference_, device_candidate_, device_runs_, device_records_;
};

}  // namespace

std::string cuda_unavailable() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaSuccess && devices > 0) return {};
  return std::string("no CUDA device: ") + cudaGetErrorName(code) + " (" +
         cudaGetErrorString(code) + ")";
}

std::unique_ptr<Backend> make_cuda_backend() { return std::make_unique<CudaBackend>(); }

}  // namespace ttrace
