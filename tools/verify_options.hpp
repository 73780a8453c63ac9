// SPDX-License-Identifier: Apache-2.0
// What the user asked ttrace-verify for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ttrace {

struct VerifyOptions {
  std::string reference;       // commands, as a shell reads them
  std::string reference_high;  // "": none
  std::vector<std::string> candidates;
  std::vector<std::string> names;  // of the candidates; completed by check_options
  std::filesystem::path output = "ttrace-verify-out";
  std::string iterations = "0";
  bool own_weights = false;  // --no-init-from: the candidate starts from its own weights
  std::string layout;        // "", or a file of layout rules
  std::string json;
  std::string junit;
  std::size_t top = 10;
  std::uint64_t timeout = 0;  // seconds a command; 0: none
  bool fresh = false;
  bool keep_going = false;
  bool quiet = false;
  bool verbose = false;
};

// Gives candidates without a --name one, and throws Trouble that names the option which is wrong.
void check_options(VerifyOptions& options);

}  // namespace ttrace
