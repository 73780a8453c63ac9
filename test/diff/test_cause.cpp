// SPDX-License-Identifier: Apache-2.0
// Each cause once where it is the cause, and once where it nearly is.
#include <cmath>
#include <functional>

#include "diff/cause.hpp"
#include "test/catch.hpp"
#include "test/diff/step_trace.hpp"

namespace ttrace {
namespace {

using testing::Field;
using testing::key_of;
using testing::part;
using testing::random_tensor;
using testing::range;
using testing::scaled;
using testing::StepTrace;
using testing::take;
using testing::Tensor;
using testing::TraceBuilder;

const std::string kOutput = "it0/mb0/forward/layers.0.fc/output.0";
const std::string kReduced = "it0/grad/layers.0.fc.weight/reduced";

std::vector<Cause> causes_of(const Report& report, const std::string& key) {
  std::vector<Cause> causes;
  for (const OrderedFinding& entry : report.findings) {
    if (to_string(entry.finding.key) != key) continue;
    causes.insert(causes.end(), entry.causes.begin(), entry.causes.end());
  }
  return causes;
}

// All of them in one text, for messages and for searching.
std::string text_of(const std::vector<Cause>& causes) {
  std::string text;
  for (const Cause& cause : causes) {
    text += std::string(cause.guess ? "perhaps " : "") + cause.what + " (" + cause.evidence + ")\n";
  }
  return text;
}

bool says(const std::vector<Cause>& causes, const std::string& what) {
  return text_of(causes).find(what) != std::string::npos;
}

// What is said of one output that is `mine` where it should be `theirs`.
std::vector<Cause> causes_between(const Tensor& theirs, const Tensor& mine,
                                  const std::string& key = kOutput) {
  StepTrace reference, candidate;
  reference.add(key, theirs);
  candidate.add(key, mine);
  return causes_of(testing::compare_steps(reference, candidate), key);
}

// ---- several ranks ----

using Mesh = std::vector<std::pair<std::string, std::uint64_t>>;

struct Ranks {
  Mesh mesh;
  std::function<void(TraceBuilder&)> fill;
};

Report compare_runs(const StepTrace& reference, const Ranks& run) {
  TraceBuilder left("reference.trace"), right("candidate.trace");
  left.mesh({});
  for (const auto& [field, tensor] : reference.fields()) left.add(0, field, tensor);
  right.mesh(run.mesh);
  run.fill(right);
  CompareOptions options;
  options.limits = [](const Alignment& alignment, const Flow& flow) {
    return bound_limits(alignment, flow, std::nullopt);
  };
  const Trace left_trace = left.write();
  const Trace right_trace = right.write();
  return compare(left_trace, right_trace, *make_cpu_backend(), options);
}

void add_to(TraceBuilder& builder, std::int32_t rank, const std::string& key, const Tensor& tensor,
            const std::string& layout = "") {
  builder.add(rank, {key_of(key), DType::float32, RecordKind::full, layout, 0}, tensor);
}

// One output cut by columns over tp = 2 and replicated over dp = 2: `change` may change a part.
Report columns_over_tp(const Tensor& whole,
                       const std::function<void(std::int32_t, Tensor&)>& change) {
  StepTrace reference;
  reference.add(kOutput, whole);
  const std::string layout = R"({"dims":"- [tp]","shape":[)" + std::to_string(whole.shape[0]) +
                             "," + std::to_string(whole.shape[1]) + "]}";
  return compare_runs(reference, {{{"dp", 2}, {"tp", 2}}, [&](TraceBuilder& builder) {
                                    for (std::int32_t rank = 0; rank < 4; ++rank) {
                                      Tensor mine = part(whole, 1, rank % 2, 2);
                                      change(rank, mine);
                                      add_to(builder, rank, kOutput, mine, layout);
                                    }
                                  }});
}

// ---- changes ----

Tensor with_noise_where(Tensor tensor,
                        const std::function<bool(std::uint64_t, std::uint64_t)>& where) {
  const Tensor noise = random_tensor(tensor.shape, 99);
  const std::uint64_t width = tensor.shape.back();
  for (std::uint64_t i = 0; i < tensor.values.size(); ++i) {
    if (where(i / width, i % width)) tensor.values[i] += noise.values[i];
  }
  return tensor;
}

Tensor in_order(const Tensor& tensor, std::size_t dim, const std::vector<std::uint64_t>& blocks) {
  const std::uint64_t size = tensor.shape[dim] / blocks.size();
  testing::Indices indices;
  for (const std::uint64_t block : blocks) {
    indices = testing::joined(indices, range(block * size, (block + 1) * size));
  }
  return take(tensor, dim, indices);
}

// The upper 16 bits, rounded to nearest.
Tensor to_bfloat16(Tensor tensor) {
  for (float& value : tensor.values) {
    auto bits = __builtin_bit_cast(std::uint32_t, value);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    value = __builtin_bit_cast(float, bits);
  }
  return tensor;
}

}  // namespace

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

}  // namespace ttrace
