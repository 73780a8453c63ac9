// SPDX-License-Identifier: Apache-2.0
// Keys as text and in order.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "libttrace/core/key.hpp"
#include "test/catch.hpp"

using namespace ttrace;
using namespace std::string_literals;

namespace {

const Key kLinear{.iteration = 0,
                  .microbatch = 1,
                  .phase = Phase::forward,
                  .module = "decoder.layers.3.mlp.linear_fc1",
                  .slot = "output.0"};

Key with_module(const std::string& module) {
  Key key = kLinear;
  key.module = module;
  return key;
}

}  // namespace

TEST_CASE("a key is spelled as the format says") {
  CHECK(to_string(kLinear) == "it0/mb1/forward/decoder.layers.3.mlp.linear_fc1/output.0");
  CHECK(hdf5_path(kLinear) == "mb1/forward/decoder.layers.3.mlp.linear_fc1/output.0");

  const Key gradient{
      .iteration = 12, .phase = Phase::grad, .module = "w.weight", .slot = "reduced"};
  CHECK(to_string(gradient) == "it12/grad/w.weight/reduced");

  Key second = kLinear;
  second.module = kRootModule;
  second.call = 2;
  CHECK(to_string(second) == "it0/mb1/forward/@root#2/output.0");
}

TEST_CASE("separators in names are escaped") {
  CHECK(to_string(with_module("a/b#1%")) == "it0/mb1/forward/a%2Fb%231%25/output.0");
  CHECK(to_string(with_module(".")) == "it0/mb1/forward/%2E/output.0");
  CHECK(to_string(with_module("..")) == "it0/mb1/forward/../output.0");
  CHECK(to_string(with_module("a\0b"s)) == "it0/mb1/forward/a%00b/output.0");
}

TEST_CASE("every key comes back from its text") {
  std::vector<std::string> names{
      "@root", "a",     ".",       "..",       "%",  "/",     "#",   "a#2", "100%",
      "%2F",   "a/b/c", "layer 1", "\xc3\xa9", "\n", "a\0b"s, "mb0", "it0", std::string(5000, 'x')};
  for (const std::string& module : names) {
    for (const std::string& slot : names) {
      for (const std::int32_t microbatch : {-1, 0, 2147483647}) {
        for (const std::uint32_t call : {0u, 1u, 4294967295u}) {
          const Key key{.iteration = 9223372036854775807,
                        .microbatch = microbatch,
                        .phase = Phase::backward,
                        .module = module,
                        .call = call,
                        .slot = slot};
          REQUIRE(parse_key(to_string(key)) == key);
        }
      }
    }
  }
}

TEST_CASE("each phase has its name") {
  const std::vector<std::string> names{"param", "forward", "recompute", "backward",
                                       "grad",  "step",    "comm"};
  REQUIRE(names.size() == kPhaseCount);
  for (std::uint8_t code = 0; code < kPhaseCount; ++code) {
    CHECK(name_of(static_cast<Phase>(code)) == names[code]);
    CHECK(phase_from_name(names[code]) == static_cast<Phase>(code));
  }
  CHECK(!phase_from_name("Forward"));
}

TEST_CASE("text that does not follow the grammar is no key") {
  const std::string text = GENERATE(
      as<std::string>{}, "", "/", "it0", "it0/forward", "it0/forward/a", "it0/forward/a/",
      "it0/forward//b", "it0//a/b", "/forward/a/b", "0/forward/a/b", "it/forward/a/b",
      "it-1/forward/a/b", "it+1/forward/a/b", "it01/forward/a/b", "it0x/forward/a/b",
      "it 0/forward/a/b", "it9223372036854775808/forward/a/b", "it0/backwards/a/b",
      "it0/mb/forward/a/b", "it0/mb-1/forward/a/b", "it0/mb2147483648/forward/a/b",
      "it0/mb0/mb0/forward/a/b", "it0/xx0/forward/a/b", "it0/forward/a/b/c", "it0/forward/a#/b",
      "it0/forward/a#0/b", "it0/forward/a#01/b", "it0/forward/a#x/b", "it0/forward/a#1#2/b",
      "it0/forward/#1/b", "it0/forward/a#4294967296/b", "it0/forward/a/b#1", "it0/forward/a%/b",
      "it0/forward/a%2/b", "it0/forward/a%2f/b", "it0/forward/a%GG/b", "it0/forward/a%41/b",
      "it0/forward/./b", "it0/forward/a/.", "it0/forward/a%-1/b", " it0/forward/a/b",
      "it0/forward/a/b/", "it0/mb0/forward/a/b/c");
  CAPTURE(text);
  CHECK(!parse_key(text));
}

TEST_CASE("numbers in names are ordered by value") {
  const std::vector<std::string> sorted{"",
                                        "%",
                                        "layers.02",
                                        "layers.2",
                                        "layers.2.mlp",
                                        "layers.9",
                                        "layers.10",
                                        "layers.10.a",
                                        "layers.10a",
                                        "layers.99999999999999999999999",
                                        "layers.100000000000000000000000",
                                        "layers.x",
                                        "layers0",
                                        "mlp",
                                        "mlp2",
                                        "mlp10"};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      CAPTURE(sorted[i], sorted[j]);
      CHECK(compare_names(sorted[i], sorted[j]) == (i <=> j));
    }
  }
}

TEST_CASE("comparing names is a total order") {
  std::mt19937 random(7);
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) {
    std::string name;
    for (auto length = random() % 6; length != 0; --length) name += "01a.9%"[random() % 6];
    names.push_back(name);
  }
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      REQUIRE((compare_names(a, b) == 0) == (a == b));
      REQUIRE((compare_names(a, b) < 0) == (compare_names(b, a) > 0));
      for (const std::string& c : names) {
        if (compare_names(a, b) < 0 && compare_names(b, c) < 0) {
          REQUIRE((compare_names(a, c) < 0));
        }
      }
    }
  }
}

TEST_CASE("keys are ordered by iteration, phase, micro-batch, then names") {
  const std::vector<std::string> sorted{
      "it0/param/layers.2.weight/value",     "it0/param/layers.10.weight/value",
      "it0/mb0/forward/layers.2/input.0",    "it0/mb0/forward/layers.2/output.0",
      "it0/mb0/forward/layers.2#1/output.0", "it0/mb0/forward/layers.2#10/output.0",
      "it0/mb0/forward/layers.10/output.0",  "it0/mb2/forward/layers.2/output.0",
      "it0/mb10/forward/layers.2/output.0",  "it0/mb0/backward/layers.2/grad_output.0",
      "it0/grad/layers.2.weight/clipped",    "it0/mb0/grad/layers.2.weight/local",
      "it0/step/layers.2.weight/exp_avg",    "it2/param/layers.2.weight/value",
      "it10/param/layers.2.weight/value"};
  std::vector<Key> keys;
  for (const std::string& text : sorted) keys.push_back(parse_key(text).value());

  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < keys.size(); ++j) {
      CAPTURE(sorted[i], sorted[j]);
      CHECK((keys[i] < keys[j]) == (i < j));
      CHECK((keys[i] == keys[j]) == (i == j));
    }
  }
}
