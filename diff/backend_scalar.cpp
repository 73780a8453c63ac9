// SPDX-License-Identifier: Apache-2.0
// The functor of metrics.hpp, applied one by one: what every other loop must agree with.
#include "diff/block_walk.hpp"

namespace ttrace {
namespace {

class ScalarBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "scalar"; }

  void measure_blocks(DType type, double scale, std::span<const RunPair> runs, Metrics& counts,
                      std::vector<Sums>& blocks) const override {
    visit_dtype(type, [&](auto sample) {
      using T = Storage<decltype(sample)>;
      const Accumulate<T> functor{scale};
      walk_blocks(
          runs, blocks,
          [&](const RunPair& run, std::uint64_t begin, std::uint64_t count, OpenBlock& block) {
            add_one_by_one<T>(functor, run, begin, count, block, counts);
          });
    });
  }
};

}  // namespace

std::unique_ptr<Backend> make_scalar_backend() { return std::make_unique<ScalarBackend>(); }

}  // namespace ttrace
