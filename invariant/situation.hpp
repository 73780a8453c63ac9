// SPDX-License-Identifier: Apache-2.0
// Situations: what a precondition may ask of an example. An example is one record or two; of each
// the fields count that a clause may name, and the context managers that were active. Thousands of
// examples share a few situations, so that preconditions are searched among those.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "invariant/invariant.hpp"
#include "invariant/record.hpp"

namespace ttrace::invariant {

struct Active {     // a context manager
  Name manager;     // "torch.amp.autocast_mode.autocast"
  Value arguments;  // object: parameter -> value without its type tag
};

// Whether a clause may name the column: who and where, settings, attributes of variables.
[[nodiscard]] bool may_name(std::string_view column);

// Fields that a clause may name, in the order of the record, without those whose value is absent,
// a list or an object.
struct Situation {
  std::vector<Field> fields;
  std::vector<Active> managers;
};

using SituationId = std::uint32_t;

// Equal situations have equal numbers, given in the order of first appearance.
class Situations {
 public:
  Situations();
  ~Situations();
  Situations(Situations&&) noexcept;
  Situations& operator=(Situations&&) noexcept;
  SituationId add(Situation situation);
  [[nodiscard]] const Situation& operator[](SituationId id) const;
  [[nodiscard]] std::size_t size() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// One record, or two of which `second` is the other one's situation. Of two, both hold the context
// managers of the first.
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
