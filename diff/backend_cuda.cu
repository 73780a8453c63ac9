// SPDX-License-Identifier: Apache-2.0
// A CUDA device as the pipeline (tile_pipeline.hpp) wants it: pinned slots, a stream for each, the
// launch; nothing else.
#include <array>
#include <vector>

#include "diff/cuda_kernel.cuh"
#include "diff/tile_pipeline.hpp"

namespace ttrace {
namespace {

constexpr std::size_t kMostTiles = kSlotBytes / 2 / kBlockElements + 1;  // of 1-byte elements

// Memory of the device or pinned memory of the host, released by `release`.
class Buffer {
 public:
  using Release = cudaError_t (*)(void*);
  Buffer() = default;
  Buffer(void* data, Release release) : data_(data), release_(release) {}
  ~Buffer() {
    if (data_ != nullptr) release_(data_);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), release_(other.release_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(release_, other.release_);
    return *this;
  }
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  Release release_ = nullptr;
};

Buffer on_device(std::size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMalloc(&data, bytes), "cudaMalloc");
  return {data, cudaFree};
}

Buffer pinned(std::size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMallocHost(&data, bytes), "cudaMallocHost");
  return {data, cudaFreeHost};
}

struct Slot {
  Buffer host, device, host_records, device_records;
  cudaStream_t stream = nullptr;
  std::uint64_t tiles = 0;
};

class CudaDevice final : public TileDevice {
 public:
  ~CudaDevice() override {
    for (Slot& slot : slots_) {
      if (slot.stream != nullptr) cudaStreamDestroy(slot.stream);
    }
  }
  [[nodiscard]] std::string_view name() const override { return "cuda"; }

  [[nodiscard]] std::byte* slot(unsigned number) override {
    Slot& slot = slots_[number];
    if (slot.stream == nullptr) {  // a small comparison needs one slot only
      slot.host = pinned(kSlotBytes);
      slot.device = on_device(kSlotBytes);
      slot.host_records = pinned(kMostTiles * sizeof(TileRecord));
      slot.device_records = on_device(kMostTiles * sizeof(TileRecord));
      check_cuda(cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking), "stream");
    }
    return static_cast<std::byte*>(slot.host.data());
  }

  void start(unsigned number, const SlotContents& contents) override {
    Slot& slot = slots_[number];
    slot.tiles = contents.tiles();
    auto* records = static_cast<TileRecord*>(slot.device_records.data());
    check_cuda(cudaMemcpyAsync(slot.device.data(), slot.host.data(), contents.bytes(),
                               cudaMemcpyHostToDevice, slot.stream),
               "copy to the device");
    visit_dtype(contents.type, [&](auto sample) {
      using T = TileStorage<decltype(sample)>;
      const auto* data = static_cast<const std::byte*>(slot.device.data());
      launch_tiles(pairs_of<T>(data, contents), 0, slot.tiles, records, slot.stream);
    });
    check_cuda(cudaMemcpyAsync(slot.host_records.data(), records, slot.tiles * sizeof(TileRecord),
                               cudaMemcpyDeviceToHost, slot.stream),
               "copy from the device");
  }

  [[nodiscard]] std::vector<TileRecord> wait(unsigned number) override {
    const Slot& slot = slots_[number];
    check_cuda(cudaStreamSynchronize(slot.stream), "measure");
    const auto* records = static_cast<const TileRecord*>(slot.host_records.data());
    return {records, records + slot.tiles};
  }

 private:
  std::array<Slot, kSlots> slots_;
};

}  // namespace

std::string cuda_unavailable() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaSuccess && devices > 0) return {};
  return std::string("no CUDA device: ") + cudaGetErrorName(code) + " (" +
         cudaGetErrorString(code) + ")";
}

std::unique_ptr<Backend> make_cuda_backend() {
  return make_tile_backend(std::make_unique<CudaDevice>());
}

}  // namespace ttrace
