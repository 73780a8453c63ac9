// SPDX-License-Identifier: Apache-2.0
// Where the elements are looped over. A backend gets runs of both sides that lie in host memory and
// measures the blocks they form (metrics.hpp); counts, maxima and indices are equal on every
// backend, sums bit by bit on every loop of a CPU and within rounding on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diff/metrics.hpp"
#include "libttrace/core/dtype.hpp"

namespace ttrace {

// `count` elements of both sides that belong together, packed.
struct RunPair {
  const std::byte* reference = nullptr;
  const std::byte* candidate = nullptr;
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // flat index of the first in the logical tensor
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Both sides have `type`. The runs hold a multiple of kBlockElements elements, but in the last
  // call of a part. Appends the sums of each block, in order, and adds all else to `counts`. May be
  // called from several threads at once.
  virtual void measure_blocks(DType type, double scale, std::span<const RunPair> runs,
                              Metrics& counts, std::vector<Sums>& blocks) const = 0;
  // Adds the blocks to `total`.
  void measure(DType type, double scale, std::span<const RunPair> runs, Metrics& total) const;
};

// The fastest loop that this processor can run, every one of them, the scalar one last, and the
// scalar one.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend();
[[nodiscard]] std::vector<std::unique_ptr<Backend>> make_cpu_backends();
[[nodiscard]] std::unique_ptr<Backend> make_scalar_backend();

// "" when this build has CUDA and this machine a device; else why not, in one line.
[[nodiscard]] std::string cuda_unavailable();
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend();

// "auto", "cpu" or "cuda"; "scalar" is for tests. Throws Trouble for anything else and for a device
// that is not there. auto is the CPU: traces are files, and files reach a device more slowly than a
// few cores.
[[nodiscard]] std::unique_ptr<Backend> choose_backend(std::string_view name);

}  // namespace ttrace
