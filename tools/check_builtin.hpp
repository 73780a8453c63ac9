// SPDX-License-Identifier: Apache-2.0
// The part of ttrace-check that needs no invariants: built-in checks on a trace of ttrace-capture.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ttrace {

struct BuiltinOptions {
  std::string trace;
  std::vector<std::string> checks;  // empty: all
  std::string json, junit;          // files; "-": stdout; "": none
  std::size_t top = 5;              // violations of each check to print
  bool quiet = false;
};

// The exit code. Throws Trouble, as all do.
[[nodiscard]] int check_builtin(const BuiltinOptions& options);
void list_builtin();

}  // namespace ttrace
