// SPDX-License-Identifier: Apache-2.0
// Micro-batches are paired by what was in them, whatever the number, the order or the split.
#include "test/catch.hpp"
#include "test/libttrace/microbatch_runs.hpp"

namespace ttrace::testing {

TEST_CASE("data parallel ranks are matched to the micro-batches that they compute") {
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 2}, {"tp", 2}});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const unsigned dp = rank / 2 == 0 ? 0 : 2;
    candidate.data(rank, 0, {dp, dp + 1});
    candidate.data(rank, 1, {4 + dp, 5 + dp});
  }

  const MicrobatchMatch found = match(reference_of(4), candidate);

  CHECK(found.by_content);
  CHECK(found.findings.empty());
  CHECK(numbers_of(found.reference, 0) == Numbers{0, 1, 2, 3});
  CHECK(numbers_of(found.candidate, 0) == Numbers{0, 2});
  CHECK(numbers_of(found.candidate, 1) == Numbers{0, 2});
  CHECK(numbers_of(found.candidate, 2) == Numbers{1, 3});
}

TEST_CASE("another order of the same micro-batches is no difference") {
  Run candidate("candidate");
  candidate.builder.place(0, {});
  candidate.data(0, 0, {4, 5});
  candidate.data(0, 1, {0, 1});
  candidate.data(0, 2, {2, 3});

  const MicrobatchMatch found = match(reference_of(3), candidate);

  CHECK(numbers_of(found.candidate, 0) == Numbers{2, 0, 1});
  CHECK(found.findings.empty());
}

TEST_CASE("equal contents match in order") {
  Run reference("reference");
  reference.builder.place(0, {});
  Run candidate("candidate");
  candidate.builder.place(0, {});
  std::int32_t i = 0;
  for (const unsigned sample : {7U, 7U, 8U}) reference.data(0, i++, {sample});
  i = 0;
  for (const unsigned sample : {8U, 7U, 7U}) candidate.data(0, i++, {sample});

  const MicrobatchMatch found = match(reference, candidate);

  CHECK(numbers_of(found.candidate, 0) == Numbers{2, 0, 1});
  CHECK(found.findings.empty());
}

TEST_CASE("pipeline stages are matched by the inputs they see, inner ones by their neighbours") {
  Run reference = reference_of(3);
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 1}, {"pp", 3}, {"tp", 2}});
  const Tensor mask = constant_tensor({16, 16}, 1);
  for (std::int32_t i = 0; i < 3; ++i) reference.input(0, i, "input.mask", mask, DType::boolean);
  for (std::int32_t i = 0; i < 3; ++i) {
    const auto first = static_cast<unsigned>(2 * (2 - i));  // the last micro-batch comes first
    for (std::int32_t rank = 0; rank < 6; ++rank) {
      candidate.input(rank, i, "input.mask", mask, DType::boolean);
      candidate.activation(rank, i);
    }
    for (const std::int32_t rank : {0, 1}) {
      candidate.input(rank, i, "input.0", tokens({first, first + 1}));
    }
    for (const std::int32_t rank : {4, 5}) {
      candidate.input(rank, i, "input.labels", tokens({first, first + 1}, 1));
    }
  }

  const MicrobatchMatch found = match(reference, candidate);

  CHECK(found.findings.empty());
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    CHECK(numbers_of(found.candidate, rank) == Numbers{2, 1, 0});
  }
}

TEST_CASE("inner stages follow the stage of their own data parallel rank") {
  Run candidate("candidate");
  candidate.builder.mesh({{"stage", 2}, {"replica", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const auto first = static_cast<unsigned>(2 * rank);
    candidate.input(rank, 0, "input.0", tokens({first, first + 1}));
    candidate.activation(rank + 2, 0);
  }

  const MicrobatchMatch found = match(reference_of(2), candidate);

  CHECK(found.findings.empty());
  CHECK(numbers_of(found.candidate, 2) == Numbers{0});
  CHECK(numbers_of(found.candidate, 3) == Numbers{1});
}

TEST_CASE("context parallel ranks hold parts of one micro-batch") {
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 2}, {"ctx", 2}});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const auto first = static_cast<unsigned>(2 * (rank / 2));
    const auto part = static_cast<std::uint64_t>(rank % 2);
    candidate.input(rank, 0, "input.0", zigzag(tokens({first, first + 1}), 1, part, 2));
  }

  const MicrobatchMatch found = match(reference_of(2), candidate);

  CHECK(found.findings.empty());
  CHECK(numbers_of(found.candidate, 0) == Numbers{0});
  CHECK(numbers_of(found.candidate, 1) == Numbers{0});
  CHECK(numbers_of(found.candidate, 2) == Numbers{1});
  CHECK(numbers_of(found.candidate, 3) == Numbers{1});
}

TEST_CASE("ranks may hold other numbers of rows than torch.chunk gives them") {
  Run reference("reference");
  reference.builder.place(0, {});
  reference.data(0, 0, {0, 1, 2, 3, 4, 5, 6});
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 3}});
  candidate.data(0, 0, {0, 1, 2});
  candidate.data(1, 0, {3, 4});
  candidate.data(2, 0, {5, 6});

  const MicrobatchMatch found = match(reference, candidate);

  CHECK(found.by_content);
  CHECK(found.findings.empty());
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    CHECK(numbers_of(found.candidate, rank) == Numbers{0});
  }
}

TEST_CASE("a batch that is dealt out row by row is still one micro-batch") {
  Run reference("reference");
  reference.builder.place(0, {});
  reference.data(0, 0, {0, 1, 2, 3});
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 2}});
  candidate.data(0, 0, {0, 2});
  candidate.data(1, 0, {1, 3});

  const MicrobatchMatch found = match(reference, candidate);

  CHECK(found.findings.empty());
  CHECK(numbers_of(found.candidate, 1) == Numbers{0});
}

TEST_CASE("other data are a finding, and keep a number of their own") {
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 2}});
  candidate.data(0, 0, {0, 1});
  candidate.data(1, 0, {20, 21});

  const MicrobatchMatch found = match(reference_of(2), candidate);

  REQUIRE(found.findings.size() == 2);
  CHECK(found.findings[0].kind == FindingKind::different_data);
  CHECK(found.findings[0].ranks == std::vector<std::int32_t>{1});
  CHECK(found.findings[0].message.find("rank 1 micro-batch 0") == 0);
  CHECK(found.findings[1].message ==
        "no rank of the candidate computed micro-batch 1 of the reference");
  CHECK(numbers_of(found.candidate, 1) == Numbers{2});
}

TEST_CASE("the same data on two ranks that should differ is a finding") {
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 4}});
  const Samples firsts{0, 2, 4, 4};
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const unsigned first = firsts[static_cast<std::size_t>(rank)];
    candidate.data(rank, 0, {first, first + 1});
  }

  const MicrobatchMatch found = match(reference_of(4), candidate);

  REQUIRE(found.findings.size() == 2);
  CHECK(found.findings[0].message ==
        "no rank of the candidate computed micro-batch 3 of the reference");
  CHECK(found.findings[1].ranks == std::vector<std::int32_t>{2, 3});
}

TEST_CASE("tensor parallel ranks with equal data are no finding") {
  Run candidate("candidate");
  candidate.builder.mesh({{"tp", 4}});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    candidate.data(rank, 0, {0, 1});
    candidate.data(rank, 1, {2, 3});
  }

  CHECK(match(reference_of(2), candidate).findings.empty());
}

TEST_CASE("wrong labels do not hide which micro-batch it is") {
  Run candidate("candidate");
  candidate.builder.place(0, {});
  for (std::int32_t i = 0; i < 2; ++i) {
    const auto first = static_cast<unsigned>(2 * (1 - i));
    candidate.input(0, i, "input.0", tokens({first, first + 1}));
    candidate.input(0, i, "input.labels", tokens({first, first + 1}));  // not shifted
  }

  const MicrobatchMatch found = match(reference_of(2), candidate);

  CHECK(numbers_of(found.candidate, 0) == Numbers{1, 0});
}

TEST_CASE("without integer inputs micro-batches match by position") {
  Run reference("reference");
  reference.builder.place(0, {});
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 2}, {"tp", 2}});
  for (std::int32_t i = 0; i < 4; ++i) reference.activation(0, i);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    for (std::int32_t i = 0; i < 2; ++i) candidate.activation(rank, i);
  }

  const MicrobatchMatch found = match(reference, candidate);

  CHECK_FALSE(found.by_content);
  CHECK(numbers_of(found.candidate, 1) == Numbers{0, 2});
  CHECK(numbers_of(found.candidate, 3) == Numbers{1, 3});
}

TEST_CASE("floating inputs identify micro-batches when there are no integer ones") {
  Run reference("reference");
  reference.builder.place(0, {});
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 2}});
  for (std::int32_t i = 0; i < 2; ++i) {
    const Tensor images = random_tensor({4, 8}, static_cast<unsigned>(i));
    reference.input(0, i, "input.0", images, DType::float32);
    candidate.input(1 - i, 0, "input.0", images, DType::float32);
  }

  const MicrobatchMatch found = match(reference, candidate);

  CHECK(found.by_content);
  CHECK(numbers_of(found.candidate, 0) == Numbers{1});
}

TEST_CASE("a reference that is data parallel itself is numbered in the order of its samplers") {
  Run reference("reference");
  reference.builder.mesh({{"dp", 2}, {"tp", 2}});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    for (std::int32_t i = 0; i < 2; ++i) {
      const auto first = static_cast<unsigned>(2 * (2 * i + rank / 2));
      reference.data(rank, i, {first, first + 1});
    }
  }
  const MicrobatchNumbers alone = number_microbatches(reference.builder.write(), 0);
  CHECK(numbers_of(alone, 0) == Numbers{0, 2});
  CHECK(numbers_of(alone, 1) == Numbers{0, 2});
  CHECK(numbers_of(alone, 2) == Numbers{1, 3});

  const MicrobatchMatch found = match(reference, reference_of(4));
  CHECK(numbers_of(found.reference, 3) == Numbers{1, 3});
  CHECK(numbers_of(found.candidate, 0) == Numbers{0, 1, 2, 3});
}

TEST_CASE("one trace alone: last stages and context parallel ranks follow the first ones") {
  Run run("run");
  run.builder.mesh({{"dp", 2}, {"pp", 2}, {"cp", 2}});
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    const auto first = static_cast<unsigned>(rank / 4);
    const auto cp = static_cast<std::uint64_t>(rank % 2);
    const bool last = rank / 2 % 2 == 1;
    const Tensor rows = zigzag(tokens({first}, last ? 1 : 0), 1, cp, 2);
    run.input(rank, 0, last ? "input.labels" : "input.0", rows);
  }

  const MicrobatchNumbers numbers = number_microbatches(run.builder.write(), 0);

  for (std::int32_t rank = 0; rank < 8; ++rank) {
    CHECK(numbers_of(numbers, rank) == Numbers{rank / 4});
  }
}

TEST_CASE("one trace alone: ranks that declare their input to be cut share a micro-batch") {
  Run run("run");
  run.builder.mesh({{"dp", 2}, {"tp", 2}});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const Tensor row = tokens({static_cast<unsigned>(rank / 2)});
    run.input(rank, 0, "input.0", row, DType::int64, R"({"dims":"b[dp] s"})");
  }
  const MicrobatchNumbers numbers = number_microbatches(run.builder.write(), 0);
  for (std::int32_t rank = 0; rank < 4; ++rank) CHECK(numbers_of(numbers, rank) == Numbers{0});
}

TEST_CASE("records are grouped under logical numbers, the rest as they are") {
  Run candidate("candidate");
  candidate.builder.mesh({{"dp", 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    candidate.activation(rank, 0);
    Field field;
    field.key = key_of("it0/param/w/value");
    candidate.builder.add(rank, field, random_tensor({4}, 2));
  }
  const Trace trace = candidate.builder.write();

  const ShardGroups groups = group_shards(trace, 0, {{{0, 0}, 5}, {{1, 0}, 6}});

  REQUIRE(groups.size() == 3);
  CHECK(groups.at(key_of("it0/param/w/value")).size() == 2);
  CHECK(groups.at(key_of("it0/mb5/forward/layers.3/output.0")).front().rank == 0);
  CHECK(groups.at(key_of("it0/mb6/forward/layers.3/output.0")).front().rank == 1);
  CHECK(group_shards(trace, 0, {{{0, 0}, 5}}).size() == 2);
}

}  // namespace ttrace::testing
