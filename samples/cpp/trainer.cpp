// SPDX-License-Identifier: Apache-2.0
// Trains a small residual MLP in dp x tp processes. Every layout starts from the same weights and
// sees the same samples, so the printed losses agree up to rounding; they are printed with %a, so
// that two runs of one layout can be compared bit for bit.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "samples/cpp/model.hpp"
#include "samples/cpp/parallel.hpp"
#include "samples/cpp/trace.hpp"

namespace {

constexpr int kSamples = 4;  // of an iteration; each is one micro-batch
constexpr std::size_t kTokens = 32;
constexpr float kLearningRate = 0.1f;
constexpr float kMomentum = 0.9f;

constexpr const char* kHelp =
    "usage: trainer [--tp N] [--dp N] [--layers N] [--iters N] [--bug NAME]\n"
    "Starts tp * dp processes, or is one of them when RANK and WORLD_SIZE are set.\n"
    "Bugs: norm-grad-sync, embedding-mask, layers-lost, grad-factor\n";

struct Settings {
  int tp = 1;
  int dp = 1;
  int layers = 4;
  int iterations = 2;
  Bug bug = Bug::none;
};

const std::map<std::string, Bug> kBugs = {{"norm-grad-sync", Bug::norm_grad_sync},
                                          {"embedding-mask", Bug::embedding_mask},
                                          {"layers-lost", Bug::layers_lost},
                                          {"grad-factor", Bug::grad_factor}};

Settings parse(int argc, char** argv) {
  Settings settings;
  const std::map<std::string, int*> numbers = {{"--tp", &settings.tp},
                                               {"--dp", &settings.dp},
                                               {"--layers", &settings.layers},
                                               {"--iters", &settings.iterations}};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = numbers.find(name);
    const auto bug = kBugs.find(value);
    if (number != numbers.end() && std::atoi(value.c_str()) > 0) {
      *number->second = std::atoi(value.c_str());
    } else if (name == "--bug" && bug != kBugs.end()) {
      settings.bug = bug->second;
    } else {
      throw std::invalid_argument(name + " " + value + " is not understood, see --help");
    }
  }
  if (kTokens % static_cast<std::size_t>(settings.tp) != 0 || kSamples % settings.dp != 0) {
    throw std::invalid_argument("tp must divide 32 and dp must divide 4");
  }
  return settings;
}

struct Sample {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;
};

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

// Local sums become means over all samples.
void reduce_gradients(std::vector<Parameter*>& parameters, const Mesh& mesh, Bug bug) {
  const int samples = bug == Bug::grad_factor ? kSamples / mesh.dp.size() : kSamples;
  for (Parameter* parameter : parameters) {
    if (parameter->sequence_parallel) mesh.tp.sum(parameter->gradient);
    mesh.dp.sum(parameter->gradient);
    for (float& value : parameter->gradient) value /= static_cast<float>(samples);
  }
}

float gradient_norm(const std::vector<Parameter*>& parameters, const Mesh& mesh) {
  float cut = 0;    // squares of parameters that tp shares
  float whole = 0;  // of those that all its ranks have
  for (const Parameter* parameter : parameters) {
    float& sum = parameter->shape == parameter->global ? whole : cut;
    for (const float value : parameter->gradient) sum += value * value;
  }
  if (mesh.tp.size() > 1) mesh.tp.sum({&cut, 1});
  return std::sqrt(cut + whole);
}

void step(std::vector<Parameter*>& parameters) {
  for (Parameter* parameter : parameters) {
    for (std::size_t i = 0; i < parameter->values.size(); ++i) {
      float& momentum = parameter->momentum[i];
      momentum = kMomentum * momentum + parameter->gradient[i];
      parameter->values[i] -= kLearningRate * momentum;
      parameter->gradient[i] = 0;
    }
  }
}

int train(const Settings& settings, const Mesh& mesh) {
  Model model(settings.layers, mesh.tp, settings.bug);
  std::vector<Parameter*> parameters = model.parameters();
  const int share = kSamples / mesh.dp.size();
  trace_open(mesh, model.modules(), parameters, share);
  for (int iteration = 0; iteration < settings.iterations; ++iteration) {
    trace_begin(iteration);
    trace_values(parameters);
    float loss = 0;
    for (int microbatch = 0; microbatch < share; ++microbatch) {
      const int number = iteration * kSamples + mesh.dp.member() * share + microbatch;
      const Sample sample = make_sample(number);
      loss += model.forward(microbatch, sample.tokens, sample.targets);
      model.backward(microbatch);
    }
    reduce_gradients(parameters, mesh, settings.bug);
    trace_reduced(parameters);
    mesh.dp.sum({&loss, 1});
    const float norm = gradient_norm(parameters, mesh);
    trace_before_step(parameters);
    step(parameters);
    trace_step(parameters);
    if (mesh.rank == 0) {
      std::printf("iteration %d loss %a grad_norm %a\n", iteration,
                  static_cast<double>(loss / kSamples), static_cast<double>(norm));
    }
  }
  trace_close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string(argv[1]) == "--help") return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
    const Settings settings = parse(argc, argv);
    return run_ranks(settings.dp, settings.tp,
                     [&](const Mesh& mesh) { return train(settings, mesh); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer: %s\n", error.what());
    return 2;
  }
}
