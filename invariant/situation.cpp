// SPDX-License-Identifier: Apache-2.0
// See situation.hpp. Equal means identical here: 1 and 1.0 are two situations, because a clause
// states a type, too.
#include "invariant/situation.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace ttrace::invariant {
namespace {

void mix(std::uint64_t& hash, std::uint64_t part) {
  hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
}

std::uint64_t hash_of(const Situation& situation) {
  std::uint64_t hash = situation.fields.size();
  for (const Field& field : situation.fields) {
    mix(hash, field.column);
    mix(hash, static_cast<std::uint64_t>(field.value.kind));
    mix(hash, field.value.bits);
  }
  for (const Active& active : situation.managers) {
    mix(hash, active.manager);
    mix(hash, active.arguments.bits);
  }
  return hash;
}

bool same(const Situation& a, const Situation& b) {
  return std::ranges::equal(a.fields, b.fields,
                            [](const Field& x, const Field& y) {
                              return x.column == y.column && identical(x.value, y.value);
                            }) &&
         std::ranges::equal(a.managers, b.managers, [](const Active& x, const Active& y) {
           return x.manager == y.manager && identical(x.arguments, y.arguments);
         });
}

}  // namespace

bool may_name(std::string_view column) {
  static constexpr std::string_view kBegins[] = {"process_id", "thread_id", "meta_vars",
                                                 "var_name",   "function",  "exception",
                                                 "attributes", "var_type"};
  return std::ranges::any_of(
      kBegins, [column](std::string_view begin) { return column.starts_with(begin); });
}

class Situations::Impl {
 public:
  SituationId add(Situation situation) {
    const std::uint64_t hash = hash_of(situation);
    const auto [begin, end] = ids_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
      if (same(all_[entry->second], situation)) return entry->second;
    }
    const auto id = static_cast<SituationId>(all_.size());
    all_.push_back(std::move(situation));
    ids_.emplace(hash, id);
    return id;
  }

  [[nodiscard]] const Situation& at(SituationId id) const { return all_[id]; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }

 private:
  std::deque<Situation> all_;  // references stay valid
  std::unordered_multimap<std::uint64_t, SituationId> ids_;
};

Situations::Situations() : impl_(std::make_unique<Impl>()) {}
Situations::~Situations() = default;
Situations::Situations(Situations&&) noexcept = default;
Situations& Situations::operator=(Situations&&) noexcept = default;
SituationId Situations::add(Situation situation) { return impl_->add(std::move(situation)); }
const Situation& Situations::operator[](SituationId id) const { return impl_->at(id); }
std::size_t Situations::size() const { return impl_->size(); }

}  // namespace ttrace::invariant
