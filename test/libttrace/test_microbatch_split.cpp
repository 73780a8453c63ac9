// SPDX-License-Identifier: Apache-2.0
// Micro-batches of other sizes on the two sides: turns that make up one, and samples that do not.
#include "test/catch.hpp"
#include "test/libttrace/microbatch_runs.hpp"

namespace ttrace::testing {

TEST_CASE("a batch that is split in time is put together, on either side") {
  // Two micro-batches of four samples; turns of two, one after the other or dealt out.
  const bool dealt = GENERATE(false, true);
  Run whole("whole");
  whole.builder.place(0, {});
  whole.data(0, 0, {0, 1, 2, 3});
  whole.data(0, 1, {4, 5, 6, 7});
  Run turns("turns");
  turns.builder.place(0, {});
  const std::vector<unsigned> firsts =
      dealt ? std::vector<unsigned>{0, 4, 2, 6} : std::vector<unsigned>{0, 2, 4, 6};
  for (std::int32_t i = 0; i < 4; ++i) {
    const unsigned first = firsts[static_cast<std::size_t>(i)];
    turns.data(0, i, {first, first + 1});
  }
  const bool reference_is_whole = GENERATE(true, false);
  const MicrobatchMatch found = reference_is_whole ? match(whole, turns) : match(turns, whole);
  const MicrobatchNumbers& split = reference_is_whole ? found.candidate : found.reference;
  const MicrobatchNumbers& joined = reference_is_whole ? found.reference : found.candidate;

  CHECK(found.findings.empty());
  CHECK(numbers_of(joined, 0) == Numbers{0, 1});
  CHECK(joined.parts.empty());
  CHECK(numbers_of(split, 0) == (dealt ? Numbers{0, 1, 0, 1} : Numbers{0, 0, 1, 1}));
  REQUIRE(split.parts.size() == 4);
  CHECK(split.parts.at({0, 1}) == AxisPosition{dealt ? 0u : 1u, 2});
  CHECK(split.parts.at({0, 2}) == AxisPosition{dealt ? 1u : 0u, 2});
}

TEST_CASE("turns of data parallel ranks make up micro-batches with those of others") {
  Run whole("whole");
  whole.builder.place(0, {});
  whole.data(0, 0, {0, 1, 2, 3});
  Run turns("turns");
  turns.builder.mesh({{"dp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    for (std::int32_t i = 0; i < 2; ++i) {
      turns.data(rank, i, {static_cast<unsigned>(2 * rank + i)});
    }
  }
  const MicrobatchMatch found = match(whole, turns);
  CHECK(found.findings.empty());
  CHECK(numbers_of(found.candidate, 1) == Numbers{0, 0});
  CHECK(found.candidate.parts.at({1, 1}) == AxisPosition{1, 2});
}

TEST_CASE("a split batch with a sample that is lost, repeated or in another place is a finding") {
  const Samples second = GENERATE(Samples{2, 9}, Samples{2, 2}, Samples{3, 2});
  Run reference("reference");
  reference.builder.place(0, {});
  reference.data(0, 0, {0, 1, 2, 3});
  Run candidate("candidate");
  candidate.builder.place(0, {});
  candidate.data(0, 0, {0, 1});
  candidate.data(0, 1, second);

  const MicrobatchMatch found = match(reference, candidate);

  REQUIRE_FALSE(found.findings.empty());
  CHECK(found.findings[0].message.find("it is [2, 16], the reference's is [4, 16]") !=
        std::string::npos);
  std::string evidence;
  for (const auto& [name, value] : found.findings[0].evidence)
    evidence += name + ": " + value + "\n";
  const bool lost = second != Samples{3, 2};
  CHECK((evidence.find("nobody computed: micro-batch 0 row 3\n") != std::string::npos) == lost);
  CHECK((evidence.find("other data: rank 0 micro-batch 1 row 1\n") != std::string::npos) ==
        (second == Samples{2, 9}));
  CHECK((evidence.find("twice: rank 0 micro-batch 1 row 1\n") != std::string::npos) ==
        (second == Samples{2, 2}));
}

}  // namespace ttrace::testing
