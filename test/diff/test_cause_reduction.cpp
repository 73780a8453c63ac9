// SPDX-License-Identifier: Apache-2.0
// Copies that differ because something was not reduced: all of it, or the last elements only.
#include "test/catch.hpp"
#include "test/diff/cause_trace.hpp"

namespace ttrace {
namespace {

using testing::add_to;
using testing::causes_of;
using testing::compare_runs;
using testing::kReduced;
using testing::random_tensor;
using testing::says;
using testing::StepTrace;
using testing::Tensor;
using testing::text_of;
using testing::TraceBuilder;

constexpr std::size_t kElements = 32 * 24;

// 32 x 24 on dp 2 x tp 2. From element `from` on each rank holds its addend, `scale` times, before
// it what both make together. Those at which `zero` says so are zero in all.
struct Reduced {
  StepTrace reference;
  Tensor first = random_tensor({32, 24}, 1), second = random_tensor({32, 24}, 2), whole = first;

  explicit Reduced(bool mean, std::size_t zeros = 0) {
    for (std::size_t i = 0; i < kElements; ++i) {
      if (i < zeros) first.values[i] = second.values[i] = 0;
      const double sum = static_cast<double>(first.values[i]) + second.values[i];
      whole.values[i] = static_cast<float>(mean ? sum / 2 : sum);
    }
    reference.add(kReduced, whole);
  }

  [[nodiscard]] Report report(std::size_t from, float wrong = 0) const {
    return compare_runs(reference, {{{"dp", 2}, {"tp", 2}}, [&](TraceBuilder& builder) {
                                      for (std::int32_t rank = 0; rank < 4; ++rank) {
                                        Tensor mine = whole;
                                        mine.values[3] += wrong;
                                        for (std::size_t i = from; i < kElements; ++i) {
                                          mine.values[i] = (rank < 2 ? first : second).values[i];
                                        }
                                        add_to(builder, rank, kReduced, mine);
                                      }
                                    }});
  }
};

std::vector<Cause> causes(const Report& report) { return causes_of(report, kReduced); }

}  // namespace

TEST_CASE("the last elements of a sum or mean were not reduced") {
  for (const bool mean : {false, true}) {
    const Report report = Reduced(mean).report(753);
    INFO(text_of(causes(report)));
    CHECK(says(causes(report), std::string("not reduced over dp in 15 of 768 elements, from number "
                                           "753 on: there the ") +
                                   (mean ? "mean" : "sum")));
    const Finding& finding = report.findings.front().finding;
    CHECK(finding.kind == FindingKind::replica_conflict);
    CHECK(finding.message.find("ranks 0, 1 against ranks 2, 3, evenly split: either may be wrong "
                               "(in 15 of 768 elements, from number 753 on)") != std::string::npos);
    std::string evidence;
    for (const auto& [name, value] : finding.evidence) evidence += name + ": " + value + "\n";
    INFO(evidence);
    CHECK(evidence.find("elements that differ: 15 of 768, the first is [31, 9]\n") !=
          std::string::npos);
    CHECK(evidence.find("ranks 0, 1: relative error to the reference") != std::string::npos);
    CHECK(evidence.find("ranks 2, 3: relative error to the reference") != std::string::npos);
    CHECK(finding.ranks == std::vector<std::int32_t>{0, 1, 2, 3});
  }
}

TEST_CASE("all of it was not reduced") {
  const auto all = causes(Reduced(true).report(0));
  INFO(text_of(all));
  CHECK(says(all, "not reduced over dp: the mean of what the ranks hold is the reference"));
}

TEST_CASE("elements that are zero on all ranks were not reduced by anybody") {
  const auto sparse = causes(Reduced(false, 700).report(0));  // an embedding's gradient
  INFO(text_of(sparse));
  CHECK(says(sparse, "not reduced over dp: the sum of what the ranks hold is the reference"));
}

TEST_CASE("where the rest is wrong as well, a few that differ explain nothing") {
  const auto wrong = causes(Reduced(true).report(753, 0.5F));
  INFO(text_of(wrong));
  CHECK_FALSE(says(wrong, "not reduced"));
}

TEST_CASE("an addend on top of a gradient that goes around the module") {
  const std::string here = "it0/mb0/backward/layers.0/grad_output.0";
  const std::string around = "it0/mb0/backward/layers.1/grad_output.0";
  const Tensor kept = random_tensor({16, 8}, 1);
  const std::vector<Tensor> addends{random_tensor({16, 8}, 2), random_tensor({16, 8}, 3)};
  const auto summed = [](Tensor one, const Tensor& other) {
    for (std::size_t i = 0; i < one.values.size(); ++i) one.values[i] += other.values[i];
    return one;
  };
  const auto causes = [&](float gone) {
    StepTrace reference;
    reference.add(around, kept).add(here, summed(summed(kept, addends[0]), addends[1]));
    return causes_of(
        compare_runs(reference, {{{"tp", 2}},
                                 [&](TraceBuilder& builder) {
                                   for (std::int32_t rank = 0; rank < 2; ++rank) {
                                     const Tensor& addend = addends[static_cast<std::size_t>(rank)];
                                     add_to(builder, rank, around, kept);
                                     add_to(builder, rank, here,
                                            summed(kept, testing::scaled(addend, gone)));
                                   }
                                 }}),
        here);
  };
  const auto found = causes(1);
  INFO(text_of(found));
  CHECK(says(found,
             "not reduced over tp: each rank holds its addend on top of the gradient of "
             "`layers.1`, which goes around"));
  CHECK_FALSE(says(causes(1.01F), "not reduced"));
}

}  // namespace ttrace
