// SPDX-License-Identifier: Apache-2.0
// See bug.hpp.
#include "samples/cpp/bug.hpp"

#include <stdexcept>

namespace {

struct Name {
  const char* name;
  Bug bug;
  bool nccl = false;
};

constexpr Name kNames[] = {{"norm-grad-sync", Bug::norm_grad_sync},
                           {"embedding-mask", Bug::embedding_mask},
                           {"layers-lost", Bug::layers_lost},
                           {"grad-factor", Bug::grad_factor},
                           {"missing-all-reduce", Bug::missing_all_reduce},
                           {"doubled-reduction", Bug::doubled_reduction},
                           {"wrong-activation-group", Bug::wrong_activation_group},
                           {"wrong-group", Bug::wrong_group, true},
                           {"swapped-slices", Bug::swapped_slices, true},
                           {"stale-buffer", Bug::stale_buffer, true},
                           {"missing-wait", Bug::missing_wait, true}};

}  // namespace

Bug bug_of(const std::string& name, bool nccl) {
  for (const Name& known : kNames) {
    if (known.name == name && (nccl || !known.nccl)) return known.bug;
  }
  throw std::invalid_argument("there is no bug " + name + ", but " + bug_names(nccl));
}

std::string bug_names(bool nccl) {
  std::string all;
  for (const Name& known : kNames) {
    if (nccl || !known.nccl) all += (all.empty() ? "" : ", ") + std::string(known.name);
  }
  return all;
}
