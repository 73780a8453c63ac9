// SPDX-License-Identifier: Apache-2.0
// See pipeline.hpp.
#include "samples/cpp/pipeline.hpp"

#include <algorithm>

#include "samples/cpp/trace.hpp"

namespace {

class Stage {
 public:
  Stage(Model& model, const Mesh& mesh, std::size_t tokens,
        const std::function<Sample(int)>& sample)
      : model_(model),
        pp_(mesh.pp),
        first_(mesh.pp.member() == 0),
        last_(mesh.pp.member() == mesh.pp.size() - 1),
        sample_(sample) {
    const auto share = tokens / static_cast<std::size_t>(mesh.tp.size());
    activation_ = local_tokens(share, kWidth, mesh.tp);
    gradient_ = activation_;
  }

  float run(int microbatches) {
    const int ahead = std::min(pp_.size() - pp_.member() - 1, microbatches);
    for (int i = 0; i < ahead; ++i) {
      pass({}, activation_from_before());
      forward();
      pass(activation_to_next(), {});
    }
    if (ahead < microbatches) pass({}, activation_from_before());
    for (int i = ahead; i < microbatches; ++i) {
      forward();
      pass(activation_to_next(), gradient_from_next());
      backward();
      const bool more = i + 1 < microbatches;
      pass(gradient_to_before(), more ? activation_from_before() : std::nullopt);
    }
    for (int i = 0; i < ahead; ++i) {
      pass({}, gradient_from_next());
      backward();
      pass(gradient_to_before(), {});
    }
    trace_microbatch(-1);
    return loss_;
  }

 private:
  void pass(const std::optional<Outgoing>& out, const std::optional<Incoming>& in) const {
    pp_.exchange(out, in);
  }

  void forward() {
    trace_microbatch(begun_);
    activation_made_ = activation_;
    loss_ += model_.forward(sample_(begun_), activation_made_);
    ++begun_;
  }

  void backward() {
    trace_microbatch(ended_);
    model_.backward(gradient_);
    ++ended_;
  }

  std::optional<Incoming> activation_from_before() {
    if (first_) return {};
    return Incoming{pp_.member() - 1, begun_, model_.first_block(), activation_.values};
  }
  std::optional<Outgoing> activation_to_next() const {
    if (last_) return {};
    return Outgoing{pp_.member() + 1, begun_ - 1, model_.last_block(), activation_made_.values};
  }
  std::optional<Incoming> gradient_from_next() {
    if (last_) return {};
    return Incoming{pp_.member() + 1, ended_, model_.last_block(), gradient_.values};
  }
  std::optional<Outgoing> gradient_to_before() const {
    if (first_) return {};
    return Outgoing{pp_.member() - 1, ended_ - 1, model_.first_block(), gradient_.values};
  }

  Model& model_;
  Group pp_;
  bool first_;
  bool last_;
  const std::function<Sample(int)>& sample_;
  Tensor activation_;       // what the stage before has sent
  Tensor activation_made_;  // what this one has made of it
  Tensor gradient_;
  float loss_ = 0;
  int begun_ = 0;
  int ended_ = 0;
};

}  // namespace

float run_pipeline(Model& model, const Mesh& mesh, int microbatches, std::size_t tokens,
                   const std::function<Sample(int)>& sample) {
  return Stage(model, mesh, tokens, sample).run(microbatches);
}
