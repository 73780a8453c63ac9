// SPDX-License-Identifier: Apache-2.0
// What the scenarios stand on: ranks that find each other, device buffers, checks that say what is
// wrong and where.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace rig {

inline int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}
inline int rank() { return number_of("RANK", 0); }
inline int world() { return number_of("WORLD_SIZE", 1); }

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "rank %d: %s\n", rank(), what.c_str());
  std::_Exit(1);
}
inline void expect(bool good, const std::string& what) {
  if (!good) fail(what);
}
inline void nccl(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) fail(std::string(what) + ": " + ncclGetErrorString(result));
}
#define NCCL(call) rig::nccl(call, #call)
#define CUDA(call) rig::expect((call) == cudaSuccess, #call)

// Rank 0 writes its id to a file of that name in $NCCL_ID_DIR, the others wait for it.
inline ncclUniqueId passed_id(const std::string& name, ncclUniqueId id) {
  const char* directory = std::getenv("NCCL_ID_DIR");
  const std::string path = std::string(directory != nullptr ? directory : ".") + "/" + name;
  if (rank() == 0) {
    std::FILE* file = std::fopen((path + ".part").c_str(), "wb");
    expect(file != nullptr && std::fwrite(&id, sizeof id, 1, file) == 1, "cannot write " + path);
    std::fclose(file);
    std::rename((path + ".part").c_str(), path.c_str());
    return id;
  }
  for (;;) {
    if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
      expect(std::fread(&id, sizeof id, 1, file) == 1, "cannot read " + path);
      std::fclose(file);
      return id;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

inline ncclUniqueId shared_id(const std::string& name) {
  ncclUniqueId id{};
  if (rank() == 0) NCCL(ncclGetUniqueId(&id));
  return passed_id(name, id);
}

inline ncclComm_t world_comm() {
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRank(&comm, world(), shared_id("world"), rank()));
  return comm;
}

// Numbers on the "device".
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : count_(count) {
    CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  template <class Value>
  Buffer(std::size_t count, const Value& value) : Buffer(count) {
    fill(value);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return data_; }
  std::size_t count() const { return count_; }

  template <class Value>
  void fill(const Value& value) {
    std::vector<T> host(count_);
    for (std::size_t i = 0; i < count_; ++i) host[i] = T(value(i));
    CUDA(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  // After the stream has been synchronised.
  template <class Value>
  void check(const char* what, const Value& value) {
    std::vector<T> host(count_);
    CUDA(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < count_; ++i) {
      const double found = static_cast<double>(host[i]), wanted = static_cast<double>(T(value(i)));
      if (found != wanted) {
        fail(std::string(what) + ": element " + std::to_string(i) + " is " + std::to_string(found) +
             ", not " + std::to_string(wanted));
      }
    }
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { CUDA(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(handle); }
  void wait() { CUDA(cudaStreamSynchronize(handle)); }
};

struct Scenario {
  const char* name;
  void (*run)();
};
std::vector<Scenario> data_scenarios();     // scenarios.cpp
std::vector<Scenario> process_scenarios();  // scenarios_process.cpp
std::vector<Scenario> thread_scenarios();   // scenarios_threads.cpp

}  // namespace rig

// Runs a scenario by its name; 0 when all was right. Exported for programs that dlopen this.
extern "C" __attribute__((visibility("default"))) int run_scenario(const char* name);
