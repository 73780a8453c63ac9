// SPDX-License-Identifier: Apache-2.0
// Tensors among a call's arguments and results, as objects with their attributes.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "invariant/compat/hypothesis.hpp"
#include "invariant/compat/trace.hpp"

namespace ttrace::invariant::compat {

// Those given by position, then those by name.
[[nodiscard]] std::vector<Value> input_tensors(Trace& trace, const Record& pre);
// The result, or those in a tuple. Their address is no attribute: see is_attribute.
[[nodiscard]] std::vector<Value> output_tensors(Trace& trace, const Record& post);
[[nodiscard]] bool is_output_attribute(const Trace& trace, Name attribute);
// Whether a call by position gave a tensor.
[[nodiscard]] bool takes_tensor(Trace& trace, const Record& pre);

// A place in one of the tensors: an attribute, or an element of a list that is one.
struct Place {
  std::uint32_t tensor = 0;
  Name attribute = 0;
  std::int32_t element = -1;
  bool operator==(const Place&) const = default;
};

struct Found {
  Place place;
  Value value;
};

// Everything in the tensors that can be compared, in order.
[[nodiscard]] std::vector<Found> places_in(const Trace& trace, const std::vector<Value>& tensors,
                                           bool output);
// Absent when there is no such place.
[[nodiscard]] Value value_at(const Values& values, const std::vector<Value>& tensors,
                             const Place& place);

[[nodiscard]] Param place_param(Values& values, Name function, const Place& place, bool input);
// nullopt: no place in a tensor.
[[nodiscard]] std::optional<Place> place_of(Values& values, const Param& param);

// Of each name in an order that grows; for tables of places.
class PlaceTable {
 public:
  std::uint32_t number_of(const Place& place);
  [[nodiscard]] const std::vector<Place>& places() const { return places_; }

 private:
  std::vector<Place> places_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> numbers_;
};

}  // namespace ttrace::invariant::compat
