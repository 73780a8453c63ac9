// SPDX-License-Identifier: Apache-2.0
// See trainer.hpp.
#include "samples/cpp/trainer.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "samples/cpp/model.hpp"
#include "samples/cpp/optimizer.hpp"
#include "samples/cpp/pipeline.hpp"
#include "samples/cpp/trace.hpp"

namespace {

constexpr int kSamples = 4;  // of an iteration; each is one micro-batch
constexpr std::size_t kTokens = 32;

constexpr const char* kHelp =
    "usage: trainer [--tp N] [--dp N] [--pp N] [--zero 0|1] [--layers N] [--iters N] [--bug NAME]\n"
    "Starts tp * dp * pp processes, or is one of them when RANK and WORLD_SIZE are set.\n"
    "--zero 1: each dp rank keeps the optimizer's state of its part of every parameter.\n"
    "Bugs: ";

struct Settings {
  MeshSizes sizes;
  int zero = 0;
  int layers = 4;
  int iterations = 2;
  Bug bug = Bug::none;
};

void refuse_what_does_not_fit(const Settings& settings) {
  if (kTokens % static_cast<std::size_t>(settings.sizes.tp) != 0 ||
      kSamples % settings.sizes.dp != 0) {
    throw std::invalid_argument("tp must divide 32 and dp must divide 4");
  }
  if (settings.layers % settings.sizes.pp != 0) {
    throw std::invalid_argument("pp must divide the number of layers");
  }
  if (settings.bug == Bug::layers_lost && settings.layers == settings.sizes.pp) {
    throw std::invalid_argument("layers-lost needs stages of more than one layer");
  }
  const bool mixes =
      settings.bug == Bug::wrong_group || settings.bug == Bug::wrong_activation_group;
  if (mixes && settings.sizes.tp != settings.sizes.dp) {
    throw std::invalid_argument("this bug is silent only where tp and dp are of one size");
  }
}

Settings parse(int argc, char** argv, bool nccl) {
  Settings settings;
  const std::map<std::string, int*> numbers = {{"--tp", &settings.sizes.tp},
                                               {"--dp", &settings.sizes.dp},
                                               {"--pp", &settings.sizes.pp},
                                               {"--layers", &settings.layers},
                                               {"--iters", &settings.iterations}};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = numbers.find(name);
    if (number != numbers.end() && std::atoi(value.c_str()) > 0) {
      *number->second = std::atoi(value.c_str());
    } else if (name == "--zero" && (value == "0" || value == "1")) {
      settings.zero = value == "1" ? 1 : 0;
    } else if (name == "--bug") {
      settings.bug = bug_of(value, nccl);
    } else {
      throw std::invalid_argument(name + " " + value + " is not understood, see --help");
    }
  }
  refuse_what_does_not_fit(settings);
  return settings;
}

// The same in every layout: a hash of its number. Each token has one right successor to learn.
Sample make_sample(int number) {
  Sample sample;
  for (std::size_t i = 0; i < kTokens; ++i) {
    const std::uint64_t index = static_cast<std::uint64_t>(number) * kTokens + i;
    const auto token = static_cast<std::int64_t>(hash(index + 12345) % kVocabulary);
    sample.tokens.push_back(token);
    sample.targets.push_back((token * 7 + 3) % static_cast<std::int64_t>(kVocabulary));
  }
  return sample;
}

int train(const Settings& settings, const Mesh& mesh) {
  Model model(settings.layers, mesh, settings.bug);
  std::vector<Parameter*> parameters = model.parameters();
  Optimizer optimizer(parameters, mesh, kSamples, settings.zero == 1, settings.bug);
  const int share = kSamples / mesh.dp.size();
  trace_open(mesh, model.modules(), parameters, share);
  for (int iteration = 0; iteration < settings.iterations; ++iteration) {
    trace_begin(iteration);
    trace_values(parameters);
    const int first = iteration * kSamples + mesh.dp.member() * share;
    const float loss = run_pipeline(model, mesh, share, kTokens, [&](int microbatch) {
      return make_sample(first + microbatch);
    });
    optimizer.reduce_gradients();
    trace_reduced(parameters);
    float sums[] = {mesh.tp.member() == 0 ? loss : 0, optimizer.squared_norm()};
    mesh.world.sum(sums);
    trace_before_step(parameters);
    optimizer.step();
    trace_step(parameters);
    if (mesh.rank == 0) {
      std::printf("iteration %d loss %a grad_norm %a\n", iteration,
                  static_cast<double>(sums[0] / kSamples), static_cast<double>(std::sqrt(sums[1])));
    }
  }
  trace_close();
  return 0;
}

}  // namespace

int trainer_main(int argc, char** argv, const Connect& connect, bool nccl) {
  try {
    if (argc == 2 && std::string(argv[1]) == "--help") {
      std::printf("%s%s\n", kHelp, bug_names(nccl).c_str());
      return 0;
    }
    const Settings settings = parse(argc, argv, nccl);
    return run_ranks(settings.sizes, [&](const Mesh& mesh) {
      return train(settings, connect(mesh, settings.bug));
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer: %s\n", error.what());
    return 2;
  }
}
