// SPDX-License-Identifier: Apache-2.0
// One line of TrainCheck's files as a record, fast: lines resemble those before them, so each name
// and each short text is first compared with the one that stood there last.
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
  // The same, slower: through an object of the pool. For what the fast way does not know, which
  // leaves it to this one, and for tests.
  [[nodiscard]] bool read_slowly(const char* line, std::size_t size, Record& record);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ttrace::invariant
