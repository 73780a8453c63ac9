// SPDX-License-Identifier: Apache-2.0
// One line of TrainCheck's files as a record: by the template of a line before it; else by
// simdjson; else, as with a bare NaN, by the parser of what Python reads.
#pragma once

#include <cstddef>
#include <memory>

#include "invariant/record_form.hpp"

namespace ttrace::invariant {

// So many bytes behind a line can be read, whatever they are.
constexpr std::size_t line_padding = 64;

class TraincheckLine {
 public:
  TraincheckLine(Values& values, const ReadOptions& options);
  ~TraincheckLine();
  // False when the line is no record. Sets all of `record` but its file and line.
  [[nodiscard]] bool read(const char* line, std::size_t size, Record& record);
  // The same by the last of the three ways alone; for tests.
  [[nodiscard]] bool read_slowly(const char* line, std::size_t size, Record& record);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ttrace::invariant
