// SPDX-License-Identifier: Apache-2.0
#include "invariant/manager_stack.hpp"

#include <algorithm>

namespace ttrace::invariant {
namespace {

constexpr std::size_t kObjects = 4096;

}  // namespace

std::string_view manager_class(std::string_view function, std::string_view method) {
  if (!function.ends_with(method)) return {};
  function.remove_suffix(method.size());
  if (!function.ends_with('.')) return {};
  function.remove_suffix(1);
  for (const std::string_view other :
       {"torch.autograd.grad_mode", "torch.autograd.profiler.record_function"}) {
    if (function.find(other) != std::string_view::npos) return {};
  }
  return function;
}

void ManagerObjects::made(std::int64_t process, std::int64_t object, Name type, Value arguments) {
  if (objects_.size() >= kObjects) {
    std::erase_if(objects_,
                  [this](const auto& entry) { return !entered_.contains(entry.second.type); });
  }
  objects_[{process, object}] = {type, arguments};
}

Value ManagerObjects::entered(World& world, std::int64_t process, std::int64_t object, Name type) {
  entered_.insert(type);
  const auto entry = objects_.find({process, object});
  if (entry == objects_.end() || entry->second.type != type) return world.values.object({});
  return entry->second.arguments;
}

void ManagerStack::push(std::int64_t object, Active active) {
  entries_.push_back({object, active});
  ++version_;
}

void ManagerStack::pop(std::int64_t object, Name type) {
  const auto last = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
    return entry.object == object && entry.active.manager == type;
  });
  if (last == entries_.rend()) return;
  entries_.erase(std::next(last).base());
  ++version_;
}

std::vector<Active> ManagerStack::active(const Values& values) const {
  std::vector<Active> result;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    const bool hidden = std::any_of(result.begin(), result.end(), [&](const Active& other) {
      return other.manager == entry->active.manager;
    });
    if (!hidden) result.push_back(entry->active);
  }
  std::sort(result.begin(), result.end(), [&](const Active& a, const Active& b) {
    return values.text(a.manager) < values.text(b.manager);
  });
  return result;
}

}  // namespace ttrace::invariant
