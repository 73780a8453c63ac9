// SPDX-License-Identifier: Apache-2.0
// JUnit's XML, which test dashboards read: testsuites of testcases. A testcase fails once, however
// much is wrong with it, so the counts add up: tests = passed + failures + errors + skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::junit {

using Attributes = std::vector<std::pair<std::string, std::string>>;

// Text and attribute values as XML 1.0 can hold them.
[[nodiscard]] std::string escaped(const std::string& text);
[[nodiscard]] std::string tag(const std::string& name, const Attributes& attributes,
                              const char* end = ">");

enum class Result : std::uint8_t { passed, skipped, failed, error };

struct Testcase {
  std::string module;
  std::string name;
  Result result = Result::passed;
  std::string body = {};  // elements
};

struct Suite {
  std::string name;
  Attributes properties;
  std::vector<Testcase> cases;

  [[nodiscard]] std::size_t count(Result result) const {
    std::size_t number = 0;
    for (const Testcase& entry : cases) number += entry.result == result;
    return number;
  }
};

[[nodiscard]] std::string print(const std::vector<Suite>& suites,
                                const std::string& program = "ttrace-diff");

}  // namespace ttrace::junit
