// SPDX-License-Identifier: Apache-2.0
// Lines of files that still grow, and of any length.
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "invariant/line_file.hpp"
#include "libttrace/core/trouble.hpp"
#include "test/catch.hpp"
#include "test/invariant/trace_folder.hpp"

using namespace ttrace::invariant;
using trace_folder::Folder;

TEST_CASE("a line is handed on when its end is there") {
  const Folder folder;
  const auto path = folder.write("log", "one\ntw");
  LineFile file(path);
  std::string_view line;
  REQUIRE(file.next(line));
  CHECK(line == "one");
  CHECK_FALSE(file.next(line));
  CHECK(file.rest() == "tw");
  std::ofstream(path, std::ios::app) << "o\n\nlast\n";
  REQUIRE(file.next(line));
  CHECK(line == "two");
  CHECK(file.number() == 2);
  REQUIRE(file.next(line));
  CHECK(line.empty());
  REQUIRE(file.next(line));
  CHECK(line == "last");
  CHECK(file.number() == 4);
  CHECK_FALSE(file.next(line));
  CHECK(file.rest().empty());
}

TEST_CASE("lines of all lengths, across the pieces that are read") {
  const Folder folder;
  std::mt19937 random(3);
  std::vector<std::string> lines;
  std::string text;
  for (int number = 0; number < 300; ++number) {
    const std::size_t limit = number % 50 == 7 ? 900000 : 3000;
    lines.emplace_back(random() % limit, static_cast<char>('a' + number % 26));
    text += lines.back() + "\n";
  }
  LineFile file(folder.write("log", text));
  std::string_view line;
  for (const std::string& expected : lines) {
    REQUIRE(file.next(line));
    REQUIRE(line == expected);
  }
  CHECK_FALSE(file.next(line));
}

TEST_CASE("what cannot be read is Trouble") {
  const Folder folder;
  std::string_view line;
  CHECK_THROWS_AS(LineFile(folder.path() / "none"), ttrace::Trouble);
  CHECK_THROWS_AS(LineFile(folder.path()).next(line), ttrace::Trouble);
}

TEST_CASE("copies of lines are found") {
  LineHashes hashes;
  for (int round = 0; round < 2; ++round) {
    for (int number = 0; number < 5000; ++number)
      REQUIRE(hashes.add("line " + std::to_string(number)) == (round == 0));
  }
  CHECK(hashes.add(""));
  CHECK_FALSE(hashes.add(""));
}
