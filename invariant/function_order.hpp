// SPDX-License-Identifier: Apache-2.0
// What FunctionLead and FunctionCover share: which functions have an order that says something,
// and when their calls on a thread began and ended.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "invariant/relation.hpp"

namespace ttrace::invariant {

// Pairs of functions (A, B) that both occur on a thread. A function all of whose calls lie within
// calls of another one has no order of its own: APIContain speaks of it.
[[nodiscard]] std::unique_ptr<Proposer> propose_orders(World& world, Name relation);

// Calls of the functions that invariants name, of each thread. Calls within a call of the same
// function do not count.
class CallTimes {
 public:
  struct Last {
    std::uint64_t began = 0;  // of the last call that ended; 0: there was none
    std::uint64_t ended = 0;
    std::uint32_t open = 0;  // calls that have begun and not ended
  };

  void watch(Name function) { functions_.try_emplace(function, functions_.size()); }
  // SIZE_MAX: not watched.
  [[nodiscard]] std::size_t number(Name function) const {
    const auto entry = functions_.find(function);
    return entry == functions_.end() ? SIZE_MAX : entry->second;
  }
  [[nodiscard]] Last& of(std::uint32_t thread, std::size_t function);
  // True for a call that counts, after noting it.
  bool enter(const Call& call, std::size_t function);
  bool leave(const Call& call, std::size_t function);

 private:
  std::unordered_map<Name, std::size_t> functions_;
  std::vector<std::vector<Last>> threads_;
};

// What both relations are alike in.
class FunctionOrder : public Relation {
 public:
  // Two functions that are called now and then alternate two or three times by chance.
  [[nodiscard]] std::uint64_t least_support() const override { return 4; }
  [[nodiscard]] std::vector<std::string_view> skip() const override { return {"function"}; }
  [[nodiscard]] std::unique_ptr<Proposer> proposer(World& world) const override {
    return propose_orders(world, world.name(name()));
  }

 protected:
  static std::string function(const Values& values, const Invariant& invariant, std::size_t at) {
    return short_name(values.text(invariant.params[at].api));
  }
};

// Params [A, B] of two functions.
[[nodiscard]] bool is_pair(const Invariant& invariant);

}  // namespace ttrace::invariant
