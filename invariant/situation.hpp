// SPDX-License-Identifier: Apache-2.0
// Situations: what a precondition may ask of an example. An example is one record or two; of each
// the fields count that a clause may name, and the context managers that were active. Thousands of
// examples share a few situations, so that preconditions are searched among those.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "invariant/invariant.hpp"
#include "invariant/record.hpp"

namespace ttrace::invariant {

struct Active {     // a context manager
  Name manager;     // "torch.amp.autocast_mode.autocast"
  Value arguments;  // object: parameter -> value without its type tag
};

// Fields in the order of the record, without those whose value is absent, a list or an object.
struct Situation {
  std::vector<Field> fields;
  std::vector<Active> managers;
};

using SituationId = std::uint32_t;

// Equal situations have equal numbers, given in the order of first appearance.
class Situations {
 public:
  explicit Situations(const Values& values);
  ~Situations();
  SituationId add(Situation situation);
  [[nodiscard]] const Situation& operator[](SituationId id) const;
  [[nodiscard]] std::size_t size() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// One record, or two of which `second` is the other one's situation.
struct Example {
  SituationId first = 0;
  SituationId second = 0;
  bool pair = false;
};

struct CountedExample {
  Example example;
  std::uint64_t count = 1;
};

// Examples of a hypothesis, each situation once, in the order of first appearance.
struct Examples {
  std::vector<CountedExample> positive;
  std::vector<CountedExample> negative;
};

}  // namespace ttrace::invariant
