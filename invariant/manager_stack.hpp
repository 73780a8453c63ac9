// SPDX-License-Identifier: Apache-2.0
// Context managers: an object is made, entered and left. A thread's active ones are a stack, so
// that a manager within another of its class hides that one until it is left.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "invariant/world.hpp"

namespace ttrace::invariant {

// With what arguments objects of a process were made. Few objects are entered ever, and which
// ones is not known when they are made, so that only the newest are kept of the other classes.
class ManagerObjects {
 public:
  void made(std::int64_t process, std::int64_t object, Name type, Value arguments);
  // An empty object's arguments when its making was not recorded.
  [[nodiscard]] Value entered(World& world, std::int64_t process, std::int64_t object, Name type);

 private:
  struct Object {
    Name type;
    Value arguments;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Object> objects_;
  std::unordered_set<Name> entered_;
};

class ManagerStack {
 public:
  void push(std::int64_t object, Active active);
  void pop(std::int64_t object, Name type);
  [[nodiscard]] std::uint64_t version() const { return version_; }
  // The innermost of each class, ordered by the classes' names.
  [[nodiscard]] std::vector<Active> active(const Values& values) const;

 private:
  struct Entry {
    std::int64_t object;
    Active active;
  };
  std::vector<Entry> entries_;
  std::uint64_t version_ = 0;
};

// The class of "torch.amp.autocast_mode.autocast.__enter__" for `method` "__enter__"; empty for
// other functions, and for managers that say nothing about training.
[[nodiscard]] std::string_view manager_class(std::string_view function, std::string_view method);

}  // namespace ttrace::invariant
