// SPDX-License-Identifier: Apache-2.0
// The kernel: one CUDA block measures one tile and writes one record, so results do not depend on
// scheduling. Integers are added atomically in shared memory, floats never.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <string>

#include "diff/cuda_tile.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {

inline void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    throw Trouble("cuda", what, std::string(cudaGetErrorString(code)) + "; compare on the CPU instead (--backend cpu)");
  }
}

struct MergeShares {
  __device__ Share operator()(const Share& left, const Share& right) const {
    return merged(left, right);
  }
};

// So many blocks must fit on a multiprocessor at once: enough loads are then under way, and enough
// registers left (128) that none is spilled.
constexpr unsigned kResidentBlocks = 4;

template <class T>
__global__ void __launch_bounds__(kTileThreads, kResidentBlocks)
    measure_tiles(PackedPairs<T> pairs, bool aligned, std::uint64_t first_tile,
                  TileRecord* records) {
  using Reduce = cub::BlockReduce<Share, kTileThreads, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  __shared__ typename Reduce::TempStorage scratch;
  __shared__ std::uint32_t histogram[kHistogramSize];
  for (unsigned i = threadIdx.x; i < kHistogramSize; i += kTileThreads) histogram[i] = 0;
  __syncthreads();
  ShareCounts mine;
  mine.column = histogram + threadIdx.x % kHistogramColumns;
  measure_share(pairs, aligned, first_tile + blockIdx.x, threadIdx.x, kTileThreads, mine);
  __shared__ Share all;
  const Share reduced = Reduce(scratch).Reduce(static_cast<Share&>(mine), MergeShares{});
  if (threadIdx.x == 0) all = reduced;
  __syncthreads();  // and all buckets are counted
  TileRecord& record = records[blockIdx.x];
  if (threadIdx.x == 0) record.share = all;
  if (threadIdx.x < kUlpBuckets) {
    record.ulp[threadIdx.x] = fold_bucket(all, histogram, threadIdx.x);
  }
}

// Launches for tiles [first, first + count); records[0] is that of `first`.
template <class T>
void launch_tiles(const PackedPairs<T>& pairs, std::uint64_t first, std::uint64_t count,
                  TileRecord* records, cudaStream_t stream) {
  measure_tiles<T><<<static_cast<unsigned>(count), kTileThreads, 0, stream>>>(
      pairs, pairs.aligned(), first, records);
  check_cuda(cudaGetLastError(), "launch");
}

}  // namespace ttrace
