// SPDX-License-Identifier: Apache-2.0
// Writes logical tensors as a trace of one rank. It grows beside its final place and is renamed at
// the end, so that a merge that fails leaves nothing behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

class LogicalTraceWriter {
 public:
  // Throws Trouble when `output` is there and not empty, as all members do when writing fails.
  LogicalTraceWriter(const Trace& source, const std::filesystem::path& output);
  ~LogicalTraceWriter();  // removes everything when finish() was not called
  LogicalTraceWriter(const LogicalTraceWriter&) = delete;
  LogicalTraceWriter& operator=(const LogicalTraceWriter&) = delete;

  // Writes the proved tensors of an iteration in execution order and returns those that were proved
  // but kept without bytes. `advance` is called with the bytes of each block written; it may throw.
  std::vector<Finding> write(std::int64_t iteration, const LogicalTensors& tensors,
                             const std::function<void(std::uint64_t)>& advance);
  // Throws Trouble when no tensor was written.
  void finish();

  [[nodiscard]] std::uint64_t tensors() const { return tensors_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void write_bytes(SegmentWriter& segment, const LogicalTensor& tensor,
                   const std::function<void(std::uint64_t)>& advance);
  [[nodiscard]] std::string rank_json() const;
  [[nodiscard]] std::string trace_json() const;

  const Trace& source_;
  std::filesystem::path output_;
  std::filesystem::path staging_;
  std::map<std::string, std::pair<Shape, DType>> parameters_;  // as merged
  std::vector<std::byte> block_;
  std::uint64_t tensors_ = 0;
  std::uint64_t bytes_ = 0;
  bool finished_ = false;
};

}  // namespace ttrace
