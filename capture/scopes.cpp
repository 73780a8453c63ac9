// SPDX-License-Identifier: Apache-2.0
// See scopes.hpp.
#include "capture/scopes.hpp"

#include <memory>
#include <vector>

namespace ttrace {
namespace {

using Stack = std::vector<std::string>;

// A plain pointer can be read even when the thread's other destructors run after ours.
thread_local Stack* stack = nullptr;

struct Owner {
  ~Owner() {
    delete stack;
    stack = nullptr;
  }
};

}  // namespace

void push_scope(std::string_view module) {
  if (stack == nullptr) {
    thread_local const Owner owner;
    (void)owner;
    stack = new Stack;
  }
  stack->emplace_back(module);
}

bool pop_scope() {
  if (stack == nullptr || stack->empty()) return false;
  stack->pop_back();
  return true;
}

const char* innermost_scope() {
  return stack == nullptr || stack->empty() ? "" : stack->back().c_str();
}

}  // namespace ttrace
