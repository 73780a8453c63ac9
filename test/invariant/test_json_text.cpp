// SPDX-License-Identifier: Apache-2.0
// JSON as Python reads and writes it. What Python does was looked up with Python 3.11.
#include <cmath>
#include <string>

#include "invariant/json_text.hpp"
#include "test/catch.hpp"

using namespace ttrace::invariant;

namespace {

// The text written again; "" when it is no JSON.
std::string again(const std::string& text) {
  Values values;
  const std::optional<Value> value = parse_json(text, values);
  return value ? to_json(values, *value) : "";
}

}  // namespace

TEST_CASE("text that Python wrote is written again as it was") {
  for (const char* text : {
           R"({"a": 1, "b": [true, false, null], "c": {}, "d": [], "e": "x"})",
           R"("\u2264 \" \\ \n \r \t \b \f \u0000 \u007f / \ud83d\ude00")",
           R"(["\ud800", "\udc00 \ud800", "\ud800A"])",
           "[0.1, 1e-05, 0.0001, 1e+16, 1000000000000000.0, 1e+23, 5e-324, -0.0]",
           "[1.7976931348623157e+308, 123456.789, 2.0, -2.5e-07]",
           "[NaN, Infinity, -Infinity]",
           "[9223372036854775807, -9223372036854775808]",
       }) {
    CHECK(again(text) == text);
  }
}

TEST_CASE("other spellings become Python's") {
  CHECK(again("{\"a\":1,\"b\":[ ]}") == "{\"a\": 1, \"b\": []}");
  CHECK(again(" \t\r\n[1 , 2]\n") == "[1, 2]");
  CHECK(again("\"\xe2\x89\xa4\xf0\x9f\x98\x80\"") == R"("\u2264\ud83d\ude00")");
  CHECK(again("[1E5, 1.50, -0, 1e400, -1e400, 1e-400]") ==
        "[100000.0, 1.5, 0, Infinity, -Infinity, 0.0]");
  CHECK(again(R"("\u00E9\/\ud800\u0041")") == R"("\u00e9/\ud800A")");
  CHECK(again(R"({"a": 1, "b": 2, "a": 3})") == R"({"a": 3, "b": 2})");
}

TEST_CASE("integers beyond 64 bits become the nearest real") {
  CHECK(again("[9223372036854775808, -9223372036854775809]") ==
        "[9.223372036854776e+18, -9.223372036854776e+18]");
  CHECK(again("18446744073709551615") == "1.8446744073709552e+19");
}

TEST_CASE("what Python refuses is refused") {
  for (const char* text :
       {"",        " ",          "{",           "[",     "]",        "{]",
        "[1,]",    "{\"a\":1,}", "{,}",         "[1 2]", "01",       "-",
        "1.",      ".5",         "+1",          "1e",    "--1",      "nan",
        "inf",     "-NaN",       "tru",         "nulll", "'a'",      "\"a",
        "\"\\x\"", "\"\\u12\"",  "\"\\u-123\"", "\"\\",  "\"a\nb\"", "{1:2}",
        "{\"a\"}", "{\"a\":}",   "[1]]",        "1 2",   "0x10",     "\"\\u 123\""}) {
    INFO(text);
    CHECK(again(text).empty());
  }
  CHECK(again(std::string("[1]\0", 4)).empty());
  CHECK(again("\"\xff\"").empty());
  CHECK(again("\"\xed\xa0\x80\"").empty());  // half a pair as it is
  CHECK(again("\"\xc0\xaf\"").empty());
}

TEST_CASE("a fault says where") {
  Values values;
  JsonFault fault;
  CHECK_FALSE(parse_json("{\"a\": 1, \"b\": tru}", values, &fault));
  CHECK(fault.at == 14);
  CHECK(std::string(fault.why) == "holds an unknown word");
}

TEST_CASE("deep nesting is refused, not followed") {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  CHECK(again(nested(deepest_json)) == nested(deepest_json));
  CHECK(again(nested(deepest_json + 1)).empty());
  CHECK(again(std::string(1000000, '[')).empty());
  std::string objects;
  for (int depth = 0; depth < 100000; ++depth) objects += "{\"a\":";
  CHECK(again(objects).empty());
}

TEST_CASE("indented as json.dumps with indent=4") {
  Values values;
  const Value value = *parse_json(R"({"a": [1, {"b": []}], "c": {}})", values);
  std::string text;
  append_json(text, values, value, 4);
  CHECK(text ==
        "{\n    \"a\": [\n        1,\n        {\n            \"b\": []\n        }\n    ],\n"
        "    \"c\": {}\n}");
}
