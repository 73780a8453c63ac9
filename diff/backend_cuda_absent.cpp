// SPDX-License-Identifier: Apache-2.0
// Stands in for the CUDA backend in builds without a CUDA toolkit. It must refuse, never pretend.
#include "diff/backend.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {

std::string cuda_unavailable() { return "this build has no CUDA backend"; }

std::unique_ptr<Backend> make_cuda_backend() {
  throw Trouble("backend", "cuda", cuda_unavailable());
}

}  // namespace ttrace
