// SPDX-License-Identifier: Apache-2.0
// Causes that are a size or a place: each once where it is the cause, and once where it nearly is.
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
using testing::Mesh;
using testing::part;
using testing::random_tensor;
using testing::range;
using testing::Ranks;
using testing::says;
using testing::scaled;
using testing::StepTrace;
using testing::Tensor;
using testing::text_of;
using testing::TraceBuilder;
using testing::with_noise_where;

// The upper 16 bits, rounded to nearest.
Tensor to_bfloat16(Tensor tensor) {
  for (float& value : tensor.values) {
    auto bits = __builtin_bit_cast(std::uint32_t, value);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    value = __builtin_bit_cast(float, bits);
  }
  return tensor;
}

// ---- size ----

TEST_CASE("a factor that is the size of an axis is named after it") {
  const Tensor gradient = random_tensor({8, 6}, 1);
  const auto causes = [&](float factor, const Mesh& mesh) {
    StepTrace reference;
    reference.add(kReduced, gradient);
    const Report report =
        compare_runs(reference, {mesh, [&](TraceBuilder& builder) {
                                   for (const auto& [rank, where] : builder.places()) {
                                     add_to(builder, rank, kReduced, scaled(gradient, factor));
                                   }
                                 }});
    return causes_of(report, kReduced);
  };
  const std::vector<Cause> twice = causes(2, {{"dp", 2}});
  INFO(text_of(twice));
  REQUIRE(twice.size() == 1);
  CHECK(twice[0].what.find("times 2, the size of axis dp: a sum for a mean") != std::string::npos);
  CHECK_FALSE(twice[0].guess);
  CHECK(says(causes(0.5f, {{"dp", 2}}), "divided by 2, the size of axis dp: a mean for a sum"));
  CHECK(says(causes(8, {{"dp", 2}, {"tp", 4}}), "times 8, the sizes of axis dp and axis tp"));
  CHECK(says(causes(2, {{"dp", 2}, {"tp", 2}}),
             "perhaps the candidate is the reference times 2, the size of axis dp, or the size of "
             "axis tp"));
  CHECK(says(causes(-1, {{"dp", 2}}), "the sign is wrong"));
  CHECK(causes(3, {{"dp", 2}}).empty());
  CHECK(causes(2.01f, {{"dp", 2}}).empty());
}

TEST_CASE("a factor that is the number of micro-batches is named after it") {
  const auto causes = [](std::size_t microbatches) {
    StepTrace reference;
    for (std::size_t i = 0; i < microbatches; ++i) {
      reference.add("it0/mb" + std::to_string(i) + "/forward/layers.0.fc/output.0",
                    random_tensor({4, 4}, static_cast<unsigned>(i)));
    }
    reference.add(kReduced, random_tensor({8, 6}, 1));
    StepTrace candidate = reference;
    candidate.set(kReduced, scaled(reference.get(kReduced), 3));
    return causes_of(testing::compare_steps(reference, candidate), kReduced);
  };
  CHECK(says(causes(3), "times 3, the number of micro-batches"));
  CHECK(causes(4).empty());
}

TEST_CASE("one rank's part that carries the error is named, with its share") {
  const Tensor whole = random_tensor({16, 8}, 1);
  const auto causes = [&](const std::function<float(std::int32_t)>& factor) {
    return causes_of(columns_over_tp(whole,
                                     [&](std::int32_t rank, Tensor& mine) {
                                       const Tensor noise = random_tensor(mine.shape, 7);
                                       for (std::size_t i = 0; i < noise.values.size(); ++i) {
                                         mine.values[i] += factor(rank) * noise.values[i];
                                       }
                                     }),
                     kOutput);
  };
  const auto one = causes([](std::int32_t rank) { return rank % 2 == 1 ? 1.0f : 0.01f; });
  INFO(text_of(one));
  CHECK(says(one, "rank 1's part carries 100 % of the squared error (50.0 % of the elements)"));
  CHECK_FALSE(says(causes([](std::int32_t rank) { return rank % 2 == 1 ? 1.0f : 0.5f; }), "part"));
}

TEST_CASE("zeros are named, on one rank, too") {
  const Tensor whole = random_tensor({16, 8}, 1);
  const Tensor zero = testing::constant_tensor({16, 8}, 0);
  CHECK(says(causes_between(whole, zero), "the candidate is all zero (128 elements)"));
  CHECK(says(causes_between(zero, whole), "the reference is all zero"));
  Tensor nearly = zero;
  nearly.values[5] = 1;
  CHECK_FALSE(says(causes_between(whole, nearly), "all zero"));
  const Report report = columns_over_tp(whole, [](std::int32_t rank, Tensor& mine) {
    if (rank % 2 == 1) mine = scaled(mine, 0);
  });
  CHECK(says(causes_of(report, kOutput), "the candidate is all zero on rank 1 (1 of 2 parts"));
}

// ---- place ----

TEST_CASE("a row, a column or a block of columns that carries the error is named") {
  const Tensor whole = random_tensor({24, 32}, 1);
  const auto causes = [&](const std::function<bool(std::uint64_t, std::uint64_t)>& where) {
    return causes_between(whole, with_noise_where(whole, where));
  };
  CHECK(says(causes([](auto row, auto) { return row == 5; }),
             "row 5 carries 100 % of the squared error (1 of 24, 4.2 % of the elements)"));
  CHECK(says(causes([](auto, auto column) { return column == 9; }), "column 9 carries 100 %"));
  const auto head = causes([](auto, auto column) { return column / 8 == 2; });
  INFO(text_of(head));
  CHECK(says(head, "columns 16-23 carry 100 % of the squared error (one of 4 equal blocks"));
  CHECK_FALSE(says(head, "row"));
  CHECK(says(causes([](auto, auto column) { return column == 2 || column == 29; }),
             "columns 2, 29 carry 100 % of the squared error (2 of 32"));
  // Too many that do not lie side by side; and all.
  CHECK(causes([](auto, auto column) { return column % 5 == 0; }).empty());
  CHECK(causes([](auto row, auto) { return row < 13; }).empty());
  CHECK(causes([](auto, auto) { return true; }).empty());
}

TEST_CASE("an index of any dimension that carries the error is named") {
  const Tensor whole = random_tensor({6, 5, 8}, 1);  // rows are [6, 5]
  const auto causes = [&](const std::function<bool(std::uint64_t, std::uint64_t)>& where) {
    return causes_between(whole, with_noise_where(whole, where));
  };
  CHECK(
      says(causes([](auto row, auto) { return row % 5 == 3; }), "index 3 of dimension 1 carries"));
  CHECK(
      says(causes([](auto row, auto) { return row / 5 == 4; }), "index 4 of dimension 0 carries"));
  CHECK(says(causes([](auto row, auto) { return row == 17; }), "row 17 carries"));
  CHECK(causes([](auto row, auto) { return row == 2 || row == 25; }).empty());
}

TEST_CASE("shards with their dimensions in another order are looked at like others") {
  // As an embedding that leaves [sequence, batch] where one rank alone leaves [batch, sequence].
  const Tensor whole = random_tensor({16, 8}, 1);
  const Tensor mine = with_noise_where(whole, [](auto row, auto) { return row == 9; });
  StepTrace reference;
  reference.add(kOutput, whole);
  const Ranks run{{{"tp", 2}}, [&](TraceBuilder& builder) {
                    for (std::int32_t rank = 0; rank < 2; ++rank) {
                      Tensor turned = random_tensor({8, 8}, 2);
                      for (std::size_t i = 0; i < 64; ++i) {
                        const std::size_t row = static_cast<std::size_t>(rank) * 8 + i % 8;
                        turned.values[i] = mine.values[row * 8 + i / 8];
                      }
                      add_to(builder, rank, kOutput, turned,
                             R"json({"dims":"[tp] - swap(0,1)","shape":[16,8]})json");
                    }
                  }};
  const auto causes = causes_of(compare_runs(reference, run), kOutput);
  INFO(text_of(causes));
  CHECK(says(causes, "row 9 carries 100 % of the squared error"));
}

TEST_CASE("rows that are zero on one side only are named") {
  const Tensor whole = random_tensor({16, 8}, 1);
  const auto zeroed = [&](std::uint64_t first, std::uint64_t end) {
    Tensor tensor = whole;
    for (std::uint64_t i = first * 8; i < end * 8; ++i) tensor.values[i] = 0;
    return tensor;
  };
  const auto mine = causes_between(whole, zeroed(13, 16));
  INFO(text_of(mine));
  REQUIRE(mine.size() == 1);
  CHECK(mine[0].what == "rows 13-15 are zero in the candidate only");
  CHECK_FALSE(mine[0].guess);
  CHECK(says(causes_between(zeroed(4, 5), whole), "row 4 is zero in the reference only"));
  Tensor nearly = zeroed(13, 16);
  for (std::uint64_t row = 13; row < 16; ++row) nearly.values[row * 8 + 2] = 1e-20f;
  CHECK_FALSE(says(causes_between(whole, nearly), "zero"));
  // Zeros that both have are no padding.
  CHECK_FALSE(says(causes_between(zeroed(13, 16), scaled(zeroed(13, 16), 1.5f)), "zero"));
}

TEST_CASE("values that went through a coarser type are seen") {
  const Tensor whole = random_tensor({16, 16}, 1);
  const Tensor coarse = to_bfloat16(whole);
  const auto cast = causes_between(whole, coarse);
  INFO(text_of(cast));
  REQUIRE(cast.size() == 1);
  CHECK(cast[0].what == "the values have gone through bfloat16");
  CHECK(says(cast, "256 of 256 are the reference's, rounded"));
  CHECK_FALSE(cast[0].guess);
  // One value that bfloat16 does not hold; coarse values of other numbers; both sides coarse.
  Tensor nearly = coarse;
  nearly.values[77] = std::nextafter(nearly.values[77], 10.0f);
  CHECK_FALSE(says(causes_between(whole, nearly), "gone through"));
  const auto other = causes_between(whole, to_bfloat16(random_tensor({16, 16}, 2)));
  CHECK(says(other, "perhaps the values have gone through bfloat16"));
  CHECK_FALSE(
      says(causes_between(coarse, to_bfloat16(random_tensor({16, 16}, 2))), "gone through"));
}

TEST_CASE("float16 and TF32 are told from each other by their range") {
  // 10 bits of mantissa; float16 ends at 65504.
  Tensor whole = random_tensor({16, 16}, 1);
  const auto rounded = [](Tensor tensor) {
    for (float& value : tensor.values) {
      int exponent = 0;
      std::frexp(value, &exponent);
      const float spacing = std::ldexp(1.0f, exponent - 11);
      value = std::nearbyint(value / spacing) * spacing;
    }
    return tensor;
  };
  for (float& value : whole.values) value += value > 0 ? 0.5f : -0.5f;  // far from subnormals
  CHECK(says(causes_between(whole, rounded(whole)), "gone through float16"));
  const Tensor large = scaled(whole, 0x1p20f);
  CHECK(says(causes_between(large, rounded(large)), "gone through TF32"));
}

TEST_CASE("where ranks hold addends, their sums are looked at") {
  // As an embedding whose vocabulary is cut: each row comes from one rank, the other has zeros.
  const Tensor whole = random_tensor({16, 8}, 1);
  const auto addend = [&](std::int32_t rank, std::uint64_t lost) {
    Tensor mine = whole;
    for (std::uint64_t i = 0; i < 128; ++i) {
      const bool own = (i / 8 % 2 == 1) == (rank == 1);
      if (!own || i / 8 == lost) mine.values[i] = 0;
    }
    return mine;
  };
  const auto causes = [&](std::uint64_t lost) {
    StepTrace reference;
    reference.add(kOutput, whole);
    const Ranks run{{{"tp", 2}}, [&](TraceBuilder& builder) {
                      for (std::int32_t rank = 0; rank < 2; ++rank) {
                        add_to(builder, rank, kOutput, addend(rank, lost),
                               R"json({"dims":"- - partial(tp)","shape":[16,8]})json");
                      }
                    }};
    return causes_of(compare_runs(reference, run), kOutput);
  };
  CHECK(says(causes(5), "row 5 is zero in the candidate only"));
  CHECK(causes(16).empty());
}

}  // namespace
TEST_CASE("each rank has scaled its part by a factor of its own") {
  const Tensor whole = random_tensor({16, 8}, 1);
  const auto clipped = [&](float one, float other) {
    return causes_of(columns_over_tp(whole,
                                     [&](std::int32_t rank, Tensor& mine) {
                                       mine = scaled(mine, rank % 2 == 0 ? one : other);
                                     }),
                     kOutput);
  };
  const auto two = clipped(0.5F, 0.8F);
  INFO(text_of(two));
  CHECK(says(two, "scaled by a factor that differs between ranks: 0.5 on rank 0, 0.8 on rank 1"));
  CHECK_FALSE(says(clipped(0.8F, 0.8F), "differs between ranks"));
  CHECK(says(clipped(0.8F, 1), "differs between ranks: 0.8 on rank 0, 1 on rank 1"));
}

}  // namespace ttrace
