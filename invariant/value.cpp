// SPDX-License-Identifier: Apache-2.0
#include "invariant/value.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <limits>
#include <unordered_map>
#include <vector>

#include "invariant/interned.hpp"

namespace ttrace::invariant {

namespace {

// What a list or an object is not equal to itself for: a NaN, or absent, somewhere within.
constexpr std::uint32_t unequal_to_itself = 1;

std::uint64_t content_bits(Value value) {
  switch (value.kind) {
    case Kind::boolean:
      return value.boolean ? 1 : 0;
    case Kind::integer:
    case Kind::real:
      return value.bits;
    case Kind::string:
    case Kind::list:
    case Kind::object:
      return value.ref;
    default:
      return 0;
  }
}

// Without what lies between and beside the fields, so that bytes can be hashed and compared.
struct Packed {
  std::uint64_t head = 0, content = 0;
};
Packed packed(Value value, Name name = 0) {
  return {std::uint64_t{name} << 8U | static_cast<std::uint64_t>(value.kind), content_bits(value)};
}

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  const std::array<std::uint64_t, 2> pair{a, b};
  return XXH3_64bits(pair.data(), sizeof pair);
}

constexpr double two63 = 9223372036854775808.0;

// The integer that a real is equal to.
bool as_integer(double value, std::int64_t& result) {
  if (!(value >= -two63 && value < two63) || value != std::trunc(value)) return false;
  result = static_cast<std::int64_t>(value);
  return true;
}

std::int64_t whole(Value value) {
  return value.kind == Kind::boolean ? std::int64_t{value.boolean} : value.integer;
}

// Exact, as Python compares int with float.
std::partial_ordering compare_numbers(Value a, Value b) {
  if (a.kind == Kind::real && b.kind == Kind::real) return a.real <=> b.real;
  if (a.kind != Kind::real && b.kind != Kind::real) return whole(a) <=> whole(b);
  if (a.kind == Kind::real) return 0 <=> compare_numbers(b, a);
  if (std::isnan(b.real)) return std::partial_ordering::unordered;
  if (b.real >= two63) return std::partial_ordering::less;
  if (b.real < -two63) return std::partial_ordering::greater;
  const double floor = std::floor(b.real);
  const auto order = whole(a) <=> static_cast<std::int64_t>(floor);
  return order == 0 && b.real > floor ? std::partial_ordering::less : order;
}

int sign(std::partial_ordering order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }
template <class T>
int order_of(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

// NaNs after all others; of equal numbers boolean, integer, real.
int compare_all_numbers(Value a, Value b) {
  const bool a_nan = a.kind == Kind::real && std::isnan(a.real);
  const bool b_nan = b.kind == Kind::real && std::isnan(b.real);
  if (a_nan != b_nan) return a_nan ? 1 : -1;
  if (!a_nan) {
    if (const int order = sign(compare_numbers(a, b))) return order;
    if (a.kind != b.kind) return order_of(a.kind, b.kind);
  }
  return order_of(content_bits(a), content_bits(b));
}

int rank_of(Kind kind) {
  switch (kind) {
    case Kind::absent:
      return 0;
    case Kind::none:
      return 1;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return 2;
    case Kind::string:
      return 3;
    case Kind::list:
      return 4;
    default:
      return 5;
  }
}

struct SameText {
  bool operator()(std::span<const char> a, std::span<const char> b) const {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
  }
};
struct SameValues {
  bool operator()(std::span<const Value> a, std::span<const Value> b) const {
    return std::ranges::equal(a, b, identical);
  }
};
struct SameMembers {
  bool operator()(std::span<const Member> a, std::span<const Member> b) const {
    return std::ranges::equal(a, b, [](const Member& one, const Member& other) {
      return one.name == other.name && identical(one.value, other.value);
    });
  }
};

}  // namespace

Value none() { return {Kind::none, {.bits = 0}}; }
Value boolean(bool value) { return {Kind::boolean, {.bits = value ? 1U : 0U}}; }
Value integer(std::int64_t value) { return {Kind::integer, {.integer = value}}; }
Value real(double value) { return {Kind::real, {.real = value}}; }

double as_double(Value number) {
  switch (number.kind) {
    case Kind::boolean:
      return number.boolean ? 1 : 0;
    case Kind::integer:
      return static_cast<double>(number.integer);
    default:
      return number.real;
  }
}

bool identical(Value a, Value b) { return a.kind == b.kind && content_bits(a) == content_bits(b); }

class Values::Impl {
 public:
  using Entries = std::span<const Value>;

  Name name(std::string_view text) {
    bool added = false;
    const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
    const std::uint32_t number = strings.find_or_add({text.data(), text.size()}, hash, added);
    if (added) strings.entry(number).hash = hash;
    return number;
  }

  std::uint32_t list(std::span<const Value> elements) {
    scratch.clear();
    for (const Value value : elements) scratch.push_back(packed(value));
    bool added = false;
    const std::uint32_t number = lists.find_or_add(elements, scratch_hash(), added);
    if (added) {
      std::uint64_t sum = mixed(4, elements.size());
      bool equal_to_itself = true;
      for (const Value value : elements) {
        sum = mixed(sum, hash(value));
        equal_to_itself = equal_to_itself && equal(value, value);
      }
      lists.entry(number).hash = sum;
      lists.entry(number).flags = equal_to_itself ? 0 : unequal_to_itself;
    }
    return number;
  }

  std::uint32_t object(std::span<const Member> given) {
    const std::span<const Member> members = repeats(given) ? without_repeats(given) : given;
    scratch.clear();
    for (const Member& member : members) scratch.push_back(packed(member.value, member.name));
    bool added = false;
    const std::uint32_t number = objects.find_or_add(members, scratch_hash(), added);
    if (added) {
      std::uint64_t sum = mixed(5, members.size());
      bool equal_to_itself = true;
      for (const Member& member : members) {  // a sum, whatever the order
        sum += mixed(strings.entry(member.name).hash, hash(member.value));
        equal_to_itself = equal_to_itself && equal(member.value, member.value);
      }
      objects.entry(number).hash = sum;
      objects.entry(number).flags = equal_to_itself ? 0 : unequal_to_itself;
    }
    return number;
  }

  [[nodiscard]] std::string_view text(Name name) const {
    const std::span<const char> view = strings.view(name);
    return {view.data(), view.size()};
  }

  [[nodiscard]] std::uint64_t hash(Value value) const {
    std::int64_t number = 0;
    switch (value.kind) {
      case Kind::absent:
        return 0;
      case Kind::none:
        return mixed(1, 0);
      case Kind::boolean:
      case Kind::integer:
        return mixed(2, static_cast<std::uint64_t>(whole(value)));
      case Kind::real:
        return as_integer(value.real, number) ? mixed(2, static_cast<std::uint64_t>(number))
                                              : mixed(3, value.bits);
      case Kind::string:
        return strings.entry(value.ref).hash;
      case Kind::list:
        return lists.entry(value.ref).hash;
      default:
        return objects.entry(value.ref).hash;
    }
  }

  [[nodiscard]] bool equal(Value a, Value b) const {
    if (a.number() && b.number()) return compare_numbers(a, b) == 0;
    if (a.kind != b.kind || a.kind == Kind::absent) return false;
    switch (a.kind) {
      case Kind::none:
        return true;
      case Kind::string:
        return a.ref == b.ref;
      case Kind::list:
        return equal_in(lists, a.ref, b.ref);
      default:
        return equal_in(objects, a.ref, b.ref);
    }
  }

  [[nodiscard]] int compare(Value a, Value b) const {
    if (const int order = order_of(rank_of(a.kind), rank_of(b.kind))) return order;
    switch (a.kind) {
      case Kind::absent:
      case Kind::none:
        return 0;
      case Kind::string:
        return a.ref == b.ref ? 0 : order_of(text(a.ref), text(b.ref));
      case Kind::list:
        return compare_lists(lists.view(a.ref), lists.view(b.ref));
      case Kind::object:
        return a.ref == b.ref ? 0 : compare_objects(a.ref, b.ref);
      default:
        return compare_all_numbers(a, b);
    }
  }

  Interned<char, SameText> strings;
  Interned<Value, SameValues> lists;
  Interned<Member, SameMembers> objects;

 private:
  [[nodiscard]] std::uint64_t scratch_hash() const {
    return XXH3_64bits(scratch.data(), scratch.size() * sizeof(Packed));
  }

  bool repeats(std::span<const Member> members) {
    ++stamp;
    for (const Member& member : members) {
      if (member.name >= stamps.size()) stamps.resize(std::size_t{member.name} * 2 + 64);
      if (stamps[member.name] == stamp) return true;
      stamps[member.name] = stamp;
    }
    return false;
  }

  // At the place of the first with the value of the last, as Python does it.
  std::span<const Member> without_repeats(std::span<const Member> members) {
    single.clear();
    std::unordered_map<Name, std::size_t> places;
    for (const Member& member : members) {
      const auto [place, first] = places.try_emplace(member.name, single.size());
      if (first) {
        single.push_back(member);
      } else {
        single[place->second].value = member.value;
      }
    }
    return single;
  }

  template <class Pool>
  [[nodiscard]] bool equal_in(const Pool& pool, std::uint32_t a, std::uint32_t b) const {
    const auto &one = pool.entry(a), &other = pool.entry(b);
    if (((one.flags | other.flags) & unequal_to_itself) != 0) return false;
    if (a == b) return true;
    return one.hash == other.hash && one.count == other.count &&
           equal_content(pool.view(a), pool.view(b));
  }
  [[nodiscard]] bool equal_content(std::span<const Value> a, std::span<const Value> b) const {
    return std::ranges::equal(a, b, [&](Value one, Value other) { return equal(one, other); });
  }
  [[nodiscard]] bool equal_content(std::span<const Member> a, std::span<const Member> b) const {
    return std::ranges::all_of(a, [&](const Member& one) {
      const auto found = std::ranges::find(b, one.name, &Member::name);
      return found != b.end() && equal(one.value, found->value);
    });
  }

  [[nodiscard]] int compare_lists(std::span<const Value> a, std::span<const Value> b) const {
    for (std::size_t at = 0; at < std::min(a.size(), b.size()); ++at) {
      if (const int order = compare(a[at], b[at])) return order;
    }
    return order_of(a.size(), b.size());
  }

  // By names and values in the order of names; else by the order of the members.
  [[nodiscard]] int compare_objects(std::uint32_t a, std::uint32_t b) const {
    const std::span<const Member> one = objects.view(a), other = objects.view(b);
    std::vector<Member> first(one.begin(), one.end()), second(other.begin(), other.end());
    const auto by_name = [&](const Member& left, const Member& right) {
      return text(left.name) < text(right.name);
    };
    std::ranges::sort(first, by_name);
    std::ranges::sort(second, by_name);
    if (const int order = compare_members(first, second)) return order;
    return compare_members(one, other);
  }
  [[nodiscard]] int compare_members(std::span<const Member> a, std::span<const Member> b) const {
    for (std::size_t at = 0; at < std::min(a.size(), b.size()); ++at) {
      if (a[at].name != b[at].name) return order_of(text(a[at].name), text(b[at].name));
      if (const int order = compare(a[at].value, b[at].value)) return order;
    }
    return order_of(a.size(), b.size());
  }

  std::vector<Packed> scratch;
  std::vector<Member> single;
  std::vector<std::uint32_t> stamps;  // by name: in which object it was last seen
  std::uint32_t stamp = 0;
};

Values::Values() : impl_(std::make_unique<Impl>()) { impl_->name(""); }  // the name 0
Values::~Values() = default;
Values::Values(Values&&) noexcept = default;
Values& Values::operator=(Values&&) noexcept = default;

Name Values::name(std::string_view text) { return impl_->name(text); }
Value Values::string(std::string_view text) { return {Kind::string, {.bits = impl_->name(text)}}; }
Value Values::list(std::span<const Value> elements) {
  return {Kind::list, {.bits = impl_->list(elements)}};
}
Value Values::object(std::span<const Member> members) {
  return {Kind::object, {.bits = impl_->object(members)}};
}

std::string_view Values::text(Name name) const { return impl_->text(name); }
std::string_view Values::text(Value string) const {
  return string.kind == Kind::string ? impl_->text(string.ref) : std::string_view();
}
std::span<const Value> Values::elements(Value list) const {
  if (list.kind != Kind::list) return {};
  return impl_->lists.view(list.ref);
}
std::span<const Member> Values::members(Value object) const {
  if (object.kind != Kind::object) return {};
  return impl_->objects.view(object.ref);
}
Value Values::member(Value object, Name name) const {
  for (const Member& member : members(object)) {
    if (member.name == name) return member.value;
  }
  return {};
}

bool Values::equal(Value a, Value b) const { return impl_->equal(a, b); }
std::uint64_t Values::hash(Value value) const { return impl_->hash(value); }
int Values::compare(Value a, Value b) const { return impl_->compare(a, b); }

}  // namespace ttrace::invariant
