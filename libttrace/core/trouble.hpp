// SPDX-License-Identifier: Apache-2.0
// Trouble is what stops a command (exit code 2): unreadable input, a broken trace, a full disk.
// A difference between two runs is never Trouble; it is a Finding, a value.
#pragma once

#include <stdexcept>
#include <string>

namespace ttrace {

// Printed by every command as "<command>: <what>: <where>: <why>"; `why` ends with what to do.
class Trouble : public std::runtime_error {
 public:
  Trouble(const std::string& what, const std::string& where, const std::string& why)
      : std::runtime_error(what + ": " + where + ": " + why) {}
};

}  // namespace ttrace
