// SPDX-License-Identifier: Apache-2.0
// Parameters of Python functions by dotted name, so that positional arguments get names. They come
// from a table that a Python with the same libraries wrote ("signatures.json").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "invariant/value.hpp"

namespace ttrace::invariant {

struct Parameter {
  enum class Passing : std::uint8_t { positional, either, rest, keyword, keywords };
  Name name = 0;
  Passing passing = Passing::either;
  Value fallback;  // the default, as a typed value; absent when there is none
};

class Signatures {
 public:
  // Throws Trouble: unreadable, not a table of signatures.
  static Signatures read(const std::filesystem::path& file, Values& values);
  // `list`: of a function as in such a file, none included. False: it is no such list.
  bool add(Name function, Value list, const Values& values);
  // Writes such a file. Throws Trouble.
  void write(const std::filesystem::path& file, const Values& values) const;
  void adopt(const Signatures& others);  // what is known already stays
  [[nodiscard]] bool empty() const { return functions_.empty(); }
  // nullptr: unknown, or not to be had from Python (built-in functions).
  [[nodiscard]] const std::vector<Parameter>* find(Name function) const;
  // The same for a class's __init__ by the rule for context managers.
  [[nodiscard]] const std::vector<Parameter>* find_manager(Name init) const;

 private:
  std::unordered_map<Name, std::vector<Parameter>> functions_;
  std::unordered_map<Name, std::vector<Parameter>> managers_;
};

}  // namespace ttrace::invariant
