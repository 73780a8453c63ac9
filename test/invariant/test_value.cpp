// SPDX-License-Identifier: Apache-2.0
// The pool of values: Python's equality, hashes that go with it, an order that does not depend on
// the pool.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "invariant/value.hpp"
#include "test/catch.hpp"

using namespace ttrace::invariant;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t two53 = std::int64_t{1} << 53;

Value list(Values& values, std::vector<Value> elements) { return values.list(elements); }
Value object(Values& values, std::vector<Member> members) { return values.object(members); }

}  // namespace

TEST_CASE("numbers are equal across kinds, exactly") {
  Values values;
  CHECK(values.equal(integer(1), real(1.0)));
  CHECK(values.equal(integer(1), boolean(true)));
  CHECK(values.equal(real(0.0), boolean(false)));
  CHECK(values.equal(real(-0.0), integer(0)));
  CHECK_FALSE(values.equal(integer(2), boolean(true)));
  // 2^53 + 1 is no double; Python: 2**53 + 1 != 2.0**53.
  CHECK_FALSE(values.equal(integer(two53 + 1), real(9007199254740992.0)));
  CHECK(values.equal(integer(two53), real(9007199254740992.0)));
  // The largest int64 is not 2^63.
  CHECK_FALSE(values.equal(integer(INT64_MAX), real(9223372036854775808.0)));
  CHECK(values.equal(integer(INT64_MIN), real(-9223372036854775808.0)));
  CHECK_FALSE(values.equal(integer(0), none()));
  CHECK_FALSE(values.equal(integer(1), values.string("1")));
}

TEST_CASE("absent and NaN equal nothing, also within") {
  Values values;
  CHECK_FALSE(values.equal(Value{}, Value{}));
  CHECK_FALSE(values.equal(real(nan_value), real(nan_value)));
  CHECK(values.equal(none(), none()));
  const Value holds_nan = list(values, {integer(1), real(nan_value)});
  CHECK(identical(holds_nan, list(values, {integer(1), real(nan_value)})));
  CHECK_FALSE(values.equal(holds_nan, holds_nan));
  const Value outer = object(values, {{values.name("a"), holds_nan}});
  CHECK_FALSE(values.equal(outer, outer));
}

TEST_CASE("lists and objects are equal by content") {
  Values values;
  const Name a = values.name("a"), b = values.name("b");
  CHECK(values.equal(list(values, {integer(1), none()}), list(values, {real(1), none()})));
  CHECK_FALSE(values.equal(list(values, {integer(1)}), list(values, {integer(1), integer(1)})));
  const Value one = object(values, {{a, integer(1)}, {b, values.string("x")}});
  const Value other = object(values, {{b, values.string("x")}, {a, boolean(true)}});
  CHECK_FALSE(identical(one, other));
  CHECK(values.equal(one, other));
  CHECK(values.hash(one) == values.hash(other));
  CHECK_FALSE(values.equal(one, object(values, {{a, integer(1)}})));
  CHECK_FALSE(values.equal(one, object(values, {{a, integer(1)}, {b, values.string("y")}})));
  CHECK_FALSE(values.equal(list(values, {}), object(values, {})));
}

TEST_CASE("equal values have equal hashes") {
  Values values;
  CHECK(values.hash(integer(1)) == values.hash(real(1)));
  CHECK(values.hash(integer(1)) == values.hash(boolean(true)));
  CHECK(values.hash(real(-0.0)) == values.hash(integer(0)));
  CHECK(values.hash(list(values, {integer(7)})) == values.hash(list(values, {real(7)})));
  CHECK(values.hash(integer(1)) != values.hash(integer(2)));
  CHECK(values.hash(values.string("a")) != values.hash(values.string("b")));
}

TEST_CASE("an object keeps its order, the last of equal names wins") {
  Values values;
  const Name a = values.name("a"), b = values.name("b");
  const Value made = object(values, {{b, integer(1)}, {a, integer(2)}, {b, integer(3)}});
  const auto members = values.members(made);
  REQUIRE(members.size() == 2);
  CHECK(members[0].name == b);
  CHECK(members[0].value.integer == 3);
  CHECK(members[1].name == a);
  CHECK(values.member(made, a).integer == 2);
  CHECK_FALSE(values.member(made, values.name("c")).present());
}

TEST_CASE("what is the same lies in the pool once, and views stay valid") {
  Values values;
  std::vector<std::string_view> views;
  std::vector<Value> strings;
  for (int number = 0; number < 20000; ++number) {
    strings.push_back(values.string("text " + std::to_string(number)));
    views.push_back(values.text(strings.back()));
  }
  for (int number = 0; number < 20000; ++number) {
    const std::string text = "text " + std::to_string(number);
    const auto place = static_cast<std::size_t>(number);
    REQUIRE(identical(values.string(text), strings[place]));
    REQUIRE(views[place] == text);
  }
  CHECK(values.name("") == 0);
  const std::string with_nul("a\0b", 3);
  CHECK(values.text(values.name(with_nul)) == with_nul);
  CHECK(values.text(values.string(std::string(3 << 20, 'x'))).size() == 3U << 20U);
}

TEST_CASE("the wrong kind has no content") {
  Values values;
  values.string("something");
  CHECK(values.text(integer(1)).empty());
  CHECK(values.elements(integer(0)).empty());
  CHECK(values.members(list(values, {})).empty());
}

TEST_CASE("the order is total and does not depend on the pool") {
  // In ascending order, as the header describes it.
  const auto ascending = [](Values& values) {
    const Name a = values.name("a"), b = values.name("b");
    return std::vector<Value>{
        Value{},
        none(),
        real(-std::numeric_limits<double>::infinity()),
        integer(INT64_MIN),
        integer(-1),
        boolean(false),
        integer(0),
        boolean(true),
        integer(1),
        real(1.0),
        real(1.5),
        integer(2),
        integer(two53),
        real(9007199254740992.0),
        integer(two53 + 1),
        integer(INT64_MAX),
        real(9223372036854775808.0),
        real(nan_value),
        values.string(""),
        values.string("B"),
        values.string("a"),
        values.string("ab"),
        list(values, {}),
        list(values, {integer(1)}),
        list(values, {integer(1), none()}),
        list(values, {values.string("a")}),
        object(values, {}),
        object(values, {{a, integer(1)}}),
        object(values, {{a, integer(1)}, {b, integer(0)}}),
        object(values, {{b, integer(0)}, {a, integer(1)}}),
        object(values, {{a, integer(2)}}),
        object(values, {{b, integer(0)}}),
    };
  };
  Values plain, filled;
  for (const char* text : {"b", "ab", "zz", "a", "B"}) filled.name(text);
  for (Values* values : {&plain, &filled}) {
    const std::vector<Value> sorted = ascending(*values);
    for (std::size_t one = 0; one < sorted.size(); ++one) {
      for (std::size_t other = 0; other < sorted.size(); ++other) {
        INFO(one << " and " << other);
        const int expected = one < other ? -1 : one > other ? 1 : 0;
        CHECK(values->compare(sorted[one], sorted[other]) == expected);
      }
    }
  }
}
