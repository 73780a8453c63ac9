// SPDX-License-Identifier: Apache-2.0
// The steps of the method, as command lines of the sibling programs, and where their output lies:
//   OUT/reference.trace
//   OUT/NAME/candidate.trace, candidate.pack, own.trace, high.trace
//   OUT/NAME/end-to-end.{txt,json,xml}, local.{txt,json,xml}
// with a log and a stamp for each.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/verify_options.hpp"
#include "tools/verify_steps.hpp"

namespace ttrace {

class VerifyPlan {
 public:
  // Throws Trouble when a sibling program is not there.
  explicit VerifyPlan(const VerifyOptions& options);

  [[nodiscard]] std::size_t steps() const;                // in all
  [[nodiscard]] std::size_t steps_after_capture() const;  // of one candidate

  // `id`s are of earlier steps: what the step depends on.
  [[nodiscard]] Step reference() const;
  [[nodiscard]] Step candidate(std::size_t index, const std::string& reference_id) const;
  [[nodiscard]] Step end_to_end(std::size_t index, const std::string& reference_id,
                                const std::string& candidate_id) const;
  [[nodiscard]] Step pack(std::size_t index, const std::string& reference_id,
                          const std::string& candidate_id) const;
  [[nodiscard]] Step replay(std::size_t index, bool high, const std::string& pack_id) const;
  [[nodiscard]] Step local(std::size_t index, const std::string& candidate_id,
                           const std::string& own_id, const std::string& high_id) const;

  [[nodiscard]] std::filesystem::path folder(std::size_t index) const;
  [[nodiscard]] std::filesystem::path reference_trace() const;

 private:
  [[nodiscard]] Step capture(const std::string& owner, const std::string& what,
                             const std::string& command, const std::filesystem::path& trace,
                             std::vector<std::string> arguments) const;
  [[nodiscard]] Step compare(std::size_t index, const std::string& what, const std::string& name,
                             std::vector<std::string> arguments) const;
  [[nodiscard]] std::string program(const std::string& name) const;

  const VerifyOptions& options_;
  std::filesystem::path programs_;
};

}  // namespace ttrace
