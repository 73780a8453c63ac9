// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline, told by what they hand on: what the model of one rank puts out is bit for
// bit what that of another is given. Stages may have parameters of the same names, and programs
// that seed all ranks alike begin with the same bits in them; they are no copies.
#pragma once

#include <cstdint>
#include <map>

namespace ttrace::builtin {

class Evidence;

class PipelineStages {
 public:
  explicit PipelineStages(const Evidence& evidence);
  // Both are in a pipeline, in different stages.
  [[nodiscard]] bool apart(std::int32_t one, std::int32_t other) const;

 private:
  std::map<std::int32_t, std::size_t> stage_;  // by rank
};

}  // namespace ttrace::builtin
