// SPDX-License-Identifier: Apache-2.0
// The choice of a backend by name. See backend.hpp.
#include "diff/backend.hpp"

#include "libttrace/core/trouble.hpp"

namespace ttrace {

void Backend::measure(DType type, double scale, std::span<const RunPair> runs,
                      Metrics& total) const {
  std::vector<Sums> blocks;
  measure_blocks(type, scale, runs, total, blocks);
  for (const Sums& block : blocks) add(total.sums, block);
}

std::unique_ptr<Backend> choose_backend(std::string_view name) {
  if (name == "auto" || name == "cpu") return make_cpu_backend();
  if (name == "scalar") return make_scalar_backend();
  if (name != "cuda") throw Trouble("--backend", std::string(name), "is none of auto, cpu, cuda");
  const std::string why = cuda_unavailable();
  if (!why.empty()) throw Trouble("--backend", "cuda", why + "; use --backend cpu");
  return make_cuda_backend();
}

}  // namespace ttrace
