// SPDX-License-Identifier: Apache-2.0
// Values in the records of a traced program: what JSON can hold, and "absent" for what a record
// does not have. Small values lie in the Value itself; strings, lists and objects lie once in a
// pool, so that a trace that repeats them stays small and two of them are compared by number.
//
// Values are equal as Python's == has it: 1 == 1.0 == true, 0 == 0.0 == false, none equals none
// only, strings exactly, lists element by element, objects whatever the order of their members.
// Absent equals nothing, itself included, and neither does a NaN.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace ttrace::invariant {

enum class Kind : std::uint8_t { absent, none, boolean, integer, real, string, list, object };

using Name = std::uint32_t;  // a string of the pool

struct Value {
  Kind kind = Kind::absent;
  union {
    bool boolean;
    std::int64_t integer;
    double real;
    std::uint32_t ref;  // string, list, object: its number in the pool
    std::uint64_t bits = 0;
  };
  [[nodiscard]] bool present() const { return kind != Kind::absent; }
  [[nodiscard]] bool number() const {
    return kind == Kind::boolean || kind == Kind::integer || kind == Kind::real;
  }
};

struct Member {
  Name name;
  Value value;
};

[[nodiscard]] Value none();
[[nodiscard]] Value boolean(bool value);
[[nodiscard]] Value integer(std::int64_t value);
[[nodiscard]] Value real(double value);

[[nodiscard]] double as_double(Value number);  // of a boolean 0 or 1

// Bit for bit the same: 1 and 1.0 differ.
[[nodiscard]] bool identical(Value a, Value b);

// The pool. Views that it returns stay valid as long as it lives. Not for several threads.
class Values {
 public:
  Values();
  ~Values();
  Values(Values&&) noexcept;
  Values& operator=(Values&&) noexcept;

  Name name(std::string_view text);
  Value string(std::string_view text);
  Value list(std::span<const Value> elements);
  Value object(std::span<const Member> members);  // keeps their order; the last of equal names wins

  [[nodiscard]] std::string_view text(Name name) const;
  [[nodiscard]] std::string_view text(Value string) const;
  [[nodiscard]] std::span<const Value> elements(Value list) const;
  [[nodiscard]] std::span<const Member> members(Value object) const;
  [[nodiscard]] Value member(Value object, Name name) const;  // absent when it has none

  [[nodiscard]] bool equal(Value a, Value b) const;
  [[nodiscard]] std::uint64_t hash(Value value) const;  // equal values have equal hashes
  // A total order that does not depend on the order in which the pool was filled: by kind (numbers
  // together, by size), then content. Output is sorted by it.
  [[nodiscard]] int compare(Value a, Value b) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ttrace::invariant
