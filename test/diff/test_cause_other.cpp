// SPDX-License-Identifier: Apache-2.0
// Causes that are another tensor, another order or a step left out: each once where it is the
// cause, and once where it nearly is.
#include <cmath>

#include "test/catch.hpp"
#include "test/diff/cause_trace.hpp"

namespace ttrace {
namespace {

using testing::add_to;
using testing::causes_between;
using testing::causes_of;
using testing::columns_over_tp;
using testing::compare_runs;
using testing::kOutput;
using testing::kReduced;
using testing::part;
using testing::random_tensor;
using testing::range;
using testing::Ranks;
using testing::says;
using testing::scaled;
using testing::StepTrace;
using testing::take;
using testing::Tensor;
using testing::text_of;
using testing::TraceBuilder;
using testing::with_noise_where;

Tensor in_order(const Tensor& tensor, std::size_t dim, const std::vector<std::uint64_t>& blocks) {
  const std::uint64_t size = tensor.shape[dim] / blocks.size();
  testing::Indices indices;
  for (const std::uint64_t block : blocks) {
    indices = testing::joined(indices, range(block * size, (block + 1) * size));
  }
  return take(tensor, dim, indices);
}

// ---- order ----

TEST_CASE("blocks in another order are told by that order") {
  const Tensor whole = random_tensor({24, 12}, 1);
  const auto causes = [&](std::size_t dim, const std::vector<std::uint64_t>& order) {
    return text_of(causes_between(whole, in_order(whole, dim, order)));
  };
  const std::string is = "the candidate is the reference ";
  const std::string all = " (288 of 288 sampled elements are equal)\n";
  CHECK(causes(0, {1, 0}) == is + "with the two halves along dimension 0 swapped" + all);
  CHECK(causes(0, {0, 3, 1, 2}) ==
        is + "with the 4 equal blocks along dimension 0 in the order 0 3 1 2" + all);
  CHECK(causes(1, {2, 1, 0}) ==
        is + "with the 3 equal blocks along dimension 1 in reverse order" + all);
  CHECK(causes(1, {0, 2, 1, 3}) ==
        is + "with blocks 1 and 2 of 4 equal blocks along dimension 1 swapped" + all);
  CHECK(causes(0, {2, 0, 1}) == is + "rolled by 8 along dimension 0 (of 24)" + all);
}

TEST_CASE("a block that is there twice is told") {
  // As positions that start anew on each rank.
  const Tensor whole = random_tensor({24, 12}, 1);
  CHECK(says(causes_between(whole, in_order(whole, 0, {0, 0})),
             "with block 0 of 2 equal blocks along dimension 0 again where another belongs"));
  const Tensor nearly = with_noise_where(in_order(whole, 0, {0, 0}),
                                         [](auto row, auto) { return row % 12 == 3 && row > 12; });
  CHECK_FALSE(says(causes_between(whole, nearly), "again"));
}

TEST_CASE("blocks that are only nearly the reference's are no other order") {
  const Tensor whole = random_tensor({24, 12}, 1);
  const Tensor swapped = in_order(whole, 0, {1, 0});
  CHECK(says(causes_between(whole, testing::noisy(swapped, 1e-8, 3)), "halves"));
  CHECK(says(causes_between(whole, testing::noisy(swapped, 1e-7, 3)), "perhaps the candidate is"));
  CHECK_FALSE(says(causes_between(whole, testing::noisy(swapped, 1e-4, 3)), "halves"));
  // One of the two blocks is something else.
  CHECK_FALSE(says(
      causes_between(whole, with_noise_where(swapped, [](auto row, auto) { return row >= 12; })),
      "halves"));
}

TEST_CASE("rolled and shifted are told from each other") {
  const Tensor whole = random_tensor({101, 6}, 1);
  const Tensor rolled = take(whole, 0, testing::joined(range(100, 101), range(0, 100)));
  CHECK(says(causes_between(whole, rolled), "the reference rolled by 1 along dimension 0"));
  Tensor shifted = rolled;
  for (std::size_t i = 0; i < 6; ++i) shifted.values[i] = 7;
  CHECK(says(causes_between(whole, shifted), "the reference shifted by 1 along dimension 0"));
  const Tensor back = take(whole, 0, testing::joined(range(3, 101), range(0, 3)));
  CHECK(says(causes_between(whole, back), "the reference rolled by -3 along dimension 0"));
  // A smooth tensor beside its shifted self is not equal to it.
  Tensor smooth = whole;
  for (std::size_t i = 0; i < smooth.values.size(); ++i) {
    smooth.values[i] = std::sin(static_cast<float>(i) * 1e-3f);
  }
  Tensor later = smooth;
  for (std::size_t i = 0; i < later.values.size(); ++i) {
    later.values[i] = std::sin(static_cast<float>(i + 5) * 1e-3f);
  }
  CHECK_FALSE(says(causes_between(smooth, later), "shifted"));
}

TEST_CASE("interleaved, transposed and shuffled rows are told") {
  const Tensor whole = random_tensor({12, 12}, 1);
  testing::Indices interleaved;
  for (std::uint64_t i = 0; i < 6; ++i) interleaved = testing::joined(interleaved, {i, i + 6});
  // Of twelve single columns the order is a list; of many it is a rule.
  const Tensor wide = random_tensor({4, 256}, 2);
  testing::Indices halves;
  for (std::uint64_t i = 0; i < 128; ++i) halves = testing::joined(halves, {i, i + 128});
  CHECK(says(causes_between(wide, take(wide, 1, halves)),
             "with its 2 equal blocks along dimension 1 interleaved element by element"));
  CHECK(says(causes_between(whole, take(whole, 1, interleaved)), "in the order 0 6 1 7"));
  Tensor transposed = whole;
  for (std::size_t i = 0; i < 144; ++i) transposed.values[i] = whole.values[i % 12 * 12 + i / 12];
  CHECK(says(causes_between(whole, transposed), "with dimensions 0 and 1 transposed"));

  const Tensor tall = random_tensor({211, 5}, 3);
  testing::Indices order;
  for (std::uint64_t i = 0; i < 211; ++i) order.push_back(i * 37 % 211);
  const Tensor shuffled = take(tall, 0, order);
  CHECK(says(causes_between(tall, shuffled),
             "the rows are the reference's in another order (all 211 are there, 210 elsewhere"));
  Tensor nearly = shuffled;
  nearly.values[500] += 0.5f;
  CHECK_FALSE(says(causes_between(tall, nearly), "another order"));
}

TEST_CASE("the order within one rank's part is told as that rank's") {
  const Tensor whole = random_tensor({16, 8}, 1);
  const Report report = columns_over_tp(whole, [](std::int32_t rank, Tensor& mine) {
    if (rank % 2 == 1) mine = in_order(mine, 0, {1, 0});
  });
  CHECK(
      says(causes_of(report, kOutput),
           "the candidate is rank 1's part of the reference with the two halves along dimension 0 "
           "swapped"));
}

// ---- origin ----

TEST_CASE("the value of another micro-batch is told") {
  const std::string other = "it0/mb1/forward/layers.0.fc/output.0";
  StepTrace reference;
  for (unsigned i = 0; i < 2; ++i) {
    const std::string key = "it0/mb" + std::to_string(i) + "/forward/";
    reference.add(key + "@root/input.0", testing::constant_tensor({4}, static_cast<float>(i)),
                  DType::int64);
    reference.add(key + "layers.0.fc/output.0", random_tensor({16, 8}, 10 + i));
  }
  StepTrace stale = reference;
  stale.set(other, reference.get(kOutput));
  const auto causes = causes_of(testing::compare_steps(reference, stale), other);
  INFO(text_of(causes));
  REQUIRE(causes.size() == 1);
  CHECK(causes[0].what == "the candidate is its own value of micro-batch 0");
  CHECK_FALSE(causes[0].guess);
  StepTrace close = reference;
  close.set(other, testing::noisy(reference.get(kOutput), 1e-3, 5));
  CHECK_FALSE(says(causes_of(testing::compare_steps(reference, close), other), "micro-batch"));
}

TEST_CASE("an update that was not made is told, and one that neither side makes is not") {
  const std::string before = "it0/param/layers.0.fc.weight/value";
  const std::string after = "it0/step/layers.0.fc.weight/param";
  StepTrace reference;
  reference.add(before, random_tensor({16, 8}, 1));
  reference.add(kReduced, random_tensor({16, 8}, 2));
  Tensor updated = random_tensor({16, 8}, 1);
  for (float& value : updated.values) value += 0.01f;
  reference.add(after, updated);
  StepTrace candidate = reference;
  candidate.set(after, reference.get(before));
  const auto causes = causes_of(testing::compare_steps(reference, candidate), after);
  INFO(text_of(causes));
  CHECK(says(causes, "its own value before the step: it was not updated"));
  Tensor further = updated;
  for (float& value : further.values) value += 0.01f;
  candidate.set(after, further);
  CHECK_FALSE(says(causes_of(testing::compare_steps(reference, candidate), after), "updated"));
}

TEST_CASE("an update that one share alone did not get is told, if nothing else differs") {
  const std::string before = "it0/param/layers.0.fc.weight/value";
  const std::string after = "it0/step/layers.0.fc.weight/param";
  StepTrace reference;
  reference.add(before, random_tensor({16, 8}, 1));
  reference.add(kReduced, random_tensor({16, 8}, 2));
  Tensor updated = random_tensor({16, 8}, 1);
  for (float& value : updated.values) value += 0.01f;
  reference.add(after, updated);
  Tensor stale = updated;
  for (std::size_t i = 40; i < 100; ++i) stale.values[i] = reference.get(before).values[i];
  StepTrace candidate = reference;
  candidate.set(after, stale);
  const auto causes = causes_of(testing::compare_steps(reference, candidate), after);
  INFO(text_of(causes));
  CHECK(
      says(causes, "its own value before the step where it differs: not updated there (60 of 60"));
  stale.values[7] += 0.01f;
  candidate.set(after, stale);
  CHECK_FALSE(says(causes_of(testing::compare_steps(reference, candidate), after), "not updated"));
}

TEST_CASE("an update that one rank did not get is told as that rank's, not as a mean") {
  const std::string before = "it0/param/layers.0.fc.weight/value";
  const std::string after = "it0/step/layers.0.fc.weight/param";
  const Tensor start = random_tensor({16, 8}, 1);
  Tensor updated = start;
  for (float& value : updated.values) value += 0.01f;
  StepTrace reference;
  reference.add(before, start).add(kReduced, random_tensor({16, 8}, 2)).add(after, updated);
  const Ranks run{{{"dp", 2}}, [&](TraceBuilder& builder) {
                    for (std::int32_t rank = 0; rank < 2; ++rank) {
                      add_to(builder, rank, before, start);
                      add_to(builder, rank, kReduced, random_tensor({16, 8}, 2));
                      add_to(builder, rank, after, rank == 0 ? updated : start);
                    }
                  }};
  const auto causes = causes_of(compare_runs(reference, run), after);
  INFO(text_of(causes));
  CHECK(says(causes, "on rank 1: the candidate is its own value before the step"));
  CHECK_FALSE(says(causes, "not reduced"));
}

TEST_CASE("the value of the previous iteration is told") {
  const std::string key = "it1/mb0/forward/layers.0.fc/output.0";
  const auto causes = [&](const Tensor& mine) {
    TraceBuilder left("reference.trace"), right("candidate.trace");
    for (TraceBuilder* builder : {&left, &right}) {
      builder->mesh({});
      add_to(*builder, 0, kOutput, random_tensor({16, 8}, 1));
      add_to(*builder, 0, key, builder == &left ? random_tensor({16, 8}, 2) : mine);
    }
    CompareOptions options;
    options.iteration = 1;
    options.limits = [](const Alignment& alignment, const Flow& flow) {
      return bound_limits(alignment, flow, std::nullopt);
    };
    const Trace left_trace = left.write();
    const Trace right_trace = right.write();
    return causes_of(compare(left_trace, right_trace, *make_cpu_backend(), options), key);
  };
  CHECK(says(causes(random_tensor({16, 8}, 1)), "its own value of iteration 0 (128 of 128"));
  CHECK_FALSE(says(causes(random_tensor({16, 8}, 3)), "iteration"));
}

TEST_CASE("another block's value and an input that passes through are told") {
  const std::string input = "it0/mb0/forward/layers.0.fc/input.0";
  const std::string next = "it0/mb0/forward/layers.1.fc/output.0";
  StepTrace reference;
  reference.add(input, random_tensor({16, 8}, 1));
  reference.add(kOutput, random_tensor({16, 8}, 2));
  reference.add(next, random_tensor({16, 8}, 3));
  StepTrace candidate = reference;
  candidate.set(next, reference.get(kOutput));
  CHECK(says(causes_of(testing::compare_steps(reference, candidate), next),
             "value of `layers.0.fc`"));
  candidate = reference;
  candidate.set(kOutput, reference.get(input));
  CHECK(says(causes_of(testing::compare_steps(reference, candidate), kOutput),
             "its own input.0: the module passes it through"));
  // Where the reference passes it through, too, that is no cause.
  reference.set(kOutput, reference.get(input));
  candidate = reference;
  candidate.set(input, random_tensor({16, 8}, 9)).set(kOutput, random_tensor({16, 8}, 9));
  CHECK_FALSE(says(causes_of(testing::compare_steps(reference, candidate), kOutput), "passes"));
}

TEST_CASE("a gradient to which one micro-batch alone contributed is told") {
  const Tensor first = random_tensor({16, 8}, 1), second = random_tensor({16, 8}, 2);
  Tensor sum = first;
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += second.values[i];
  StepTrace reference;
  reference.add("it0/mb0/grad/layers.0.fc.weight/local", first);
  reference.add("it0/mb1/grad/layers.0.fc.weight/local", second);
  reference.add(kReduced, sum);
  StepTrace candidate = reference;
  candidate.set(kReduced, second);
  CHECK(says(causes_of(testing::compare_steps(reference, candidate), kReduced),
             "its own local gradient of micro-batch 1 alone: the others were not added"));
  candidate.set(kReduced, testing::noisy(second, 1e-2, 3));
  CHECK_FALSE(says(causes_of(testing::compare_steps(reference, candidate), kReduced), "alone"));
}

TEST_CASE("a reduction that is missing is told by the axis and by what the ranks add up to") {
  const Tensor whole = random_tensor({16, 8}, 1), addend = random_tensor({16, 8}, 2);
  const auto causes = [&](float scale, float wrong) {
    Tensor rest = whole;
    for (std::size_t i = 0; i < rest.values.size(); ++i) {
      rest.values[i] = wrong * whole.values[i] - addend.values[i];
    }
    StepTrace reference;
    reference.add(kReduced, whole);
    return causes_of(compare_runs(reference, {{{"dp", 2}, {"tp", 2}},
                                              [&](TraceBuilder& builder) {
                                                for (std::int32_t rank = 0; rank < 4; ++rank) {
                                                  add_to(builder, rank, kReduced,
                                                         scaled(rank < 2 ? addend : rest, scale));
                                                }
                                              }}),
                     kReduced);
  };
  const auto sum = causes(1, 1);
  INFO(text_of(sum));
  CHECK(says(sum, "not reduced over dp: the sum of what the ranks hold is the reference"));
  CHECK(says(causes(2, 1), "not reduced over dp: the mean of what the ranks hold"));
  CHECK_FALSE(says(causes(1, 1.01f), "not reduced"));
}

TEST_CASE("only the first few findings are explained, those that stand for themselves first") {
  StepTrace reference, candidate;
  for (unsigned i = 0; i < 8; ++i) {
    const std::string key = "it0/mb0/forward/block" + std::to_string(i) + "/output.0";
    reference.add(key, random_tensor({16, 8}, i));
    candidate.add(key, scaled(random_tensor({16, 8}, i), -1));
  }
  std::size_t explained = 0;
  for (const OrderedFinding& entry : testing::compare_steps(reference, candidate).findings) {
    explained += !entry.causes.empty();
  }
  CHECK(explained == kExplained);
}

}  // namespace
}  // namespace ttrace
