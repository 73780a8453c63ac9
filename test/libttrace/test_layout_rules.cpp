// SPDX-License-Identifier: Apache-2.0
// Rule files: which keys a rule is for, and what is told about a mistake. What rules do to shards
// is in test_placement.cpp.
#include <fstream>
#include <string>

#include "libttrace/core/trouble.hpp"
#include "libttrace/logical.hpp"
#include "test/catch.hpp"
#include "test/libttrace/trace_builder.hpp"

using namespace ttrace;
using ttrace::testing::TemporaryFolder;

namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a rule with a slash matches phase/module/slot, one without the module") {
  const Layout tp = parse_dims("[tp]");
  const auto matches = [&tp](const std::string& pattern, const Key& key) {
    return find_rule({{pattern, tp}}, key) != nullptr;
  };
  const Key key{3, 1, Phase::forward, "decoder.layers.12.mlp", 2, "output.0"};
  CHECK(matches("decoder.layers.*.mlp", key));
  CHECK(matches("*mlp", key));
  CHECK(matches("decoder.layers.[0-9][0-9].mlp", key));
  CHECK(matches("forward/decoder.*/output.?", key));
  CHECK(matches("*/decoder.layers.12.mlp/output.0", key));
  CHECK_FALSE(matches("backward/decoder.*/output.?", key));
  CHECK_FALSE(matches("decoder.layers.*", Key{0, 0, Phase::forward, "decoder", 0, "output.0"}));
  CHECK_FALSE(matches("mlp", key));
}

TEST_CASE("a mistake in a rule file is trouble that names the line") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "rules";
  for (const std::string line : {"name", "name h[tp] d", "name \"h[tp]", "name h[tp 4",
                                 "name \"h d\" 4", "name h 4x", "name h 4 5", "name \"h\"4"}) {
    CAPTURE(line);
    write_file(path, "good h\n" + line + "\n");
    CHECK_THROWS_WITH(read_layout_rules(path.string()), Catch::Contains("rules, line 2"));
  }
  CHECK_THROWS_AS(read_layout_rules((folder.path() / "absent").string()), Trouble);
}

TEST_CASE("rules that say nothing about a trace are told") {
  ttrace::testing::TraceBuilder builder("trace");
  builder.mesh({{"tp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    builder.add(rank,
                {ttrace::testing::key_of("it0/param/fc.weight/value"), DType::float32,
                 RecordKind::full, "", 0},
                ttrace::testing::random_tensor({4, 4}, 1));
  }
  const Trace trace = builder.write();
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "rules";
  write_file(path,
             "fc.weight \"[tp] -\"\nfd.weight \"[tp] -\"\nparam/fc.weight/value \"[tp] -\"\n");
  std::vector<std::string> told = idle_rules(read_layout_rules(path.string()), {&trace});
  REQUIRE(told.size() == 2);  // no such tensor; one that an earlier rule has
  CHECK(told[0].find("rules, line 2: \"fd.weight\" matches no tensor") != std::string::npos);
  CHECK(told[1].find("line 3") != std::string::npos);
  write_file(path, "fc.weight \"[cp/inner2] -\"\n");
  told = idle_rules(read_layout_rules(path.string()), {&trace});
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("no rank has an axis \"cp/inner2\"; axes are tp") != std::string::npos);
}
