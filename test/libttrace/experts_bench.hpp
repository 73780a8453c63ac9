// SPDX-License-Identifier: Apache-2.0
// A layer of experts, made from index lists: which expert takes which row is drawn at random, the
// reference works on one micro-batch at a time, and the ranks of the candidate share the calls of
// their experts. Tests know each row, so they ask nothing of the code under test.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/logical.hpp"
#include "test/libttrace/trace_builder.hpp"

namespace ttrace::testing {

constexpr std::uint64_t kRows = 16, kWidth = 8, kExperts = 4;

inline std::string microbatch_text(std::int32_t number) {
  return "it0/mb" + std::to_string(number);
}
inline std::string mark_key(std::int32_t number) {
  return microbatch_text(number) + "/forward/layers.0.gate/output.1";
}
inline std::string sorted_key(std::int32_t number) {
  return microbatch_text(number) + "/forward/layers.0.experts/input.0";
}
inline std::string expert_key(std::int32_t number, std::uint64_t expert,
                              const std::string& slot = "forward/%/output.0") {
  std::string name = slot;
  return microbatch_text(number) + "/" +
         name.replace(name.find('%'), 1, "layers.0.experts.each." + std::to_string(expert));
}

inline std::string hidden_key(std::int32_t number, std::uint64_t expert) {
  return expert_key(number, expert, "forward/%.up/output.0");
}

// Rows of one tensor after those of another.
inline Tensor stacked(const std::vector<Tensor>& parts) {
  Tensor all{parts.front().shape, {}};
  all.shape[0] = 0;
  for (const Tensor& part : parts) {
    all.shape[0] += part.shape[0];
    all.values.insert(all.values.end(), part.values.begin(), part.values.end());
  }
  return all;
}

// What one micro-batch brings: the rows each expert takes, and what it makes of them.
struct Batch {
  std::vector<Indices> rows_of;  // by expert
  Tensor marks, input, output;

  explicit Batch(unsigned seed) : rows_of(kExperts) {
    std::mt19937 random(seed);
    marks = constant_tensor({kRows, kExperts}, 0);
    input = random_tensor({kRows, kWidth}, seed + 100);
    output = random_tensor({kRows, kWidth}, seed + 200);
    for (std::uint64_t row = 0; row < kRows; ++row) {
      const std::uint64_t first = random() % kExperts;
      for (const std::uint64_t expert : {first, (first + 1 + random() % 3) % kExperts}) {
        marks.values[row * kExperts + expert] = 1;
      }
    }
    sort();
  }
  void sort() {
    for (std::uint64_t expert = 0; expert < kExperts; ++expert) {
      rows_of[expert].clear();
      for (std::uint64_t row = 0; row < kRows; ++row) {
        if (marks.values[row * kExperts + expert] != 0) rows_of[expert].push_back(row);
      }
    }
  }
  [[nodiscard]] Tensor taken(std::uint64_t expert) const { return take(input, 0, rows_of[expert]); }
  [[nodiscard]] Tensor made(std::uint64_t expert) const { return take(output, 0, rows_of[expert]); }
  [[nodiscard]] Tensor sorted() const {
    std::vector<Tensor> parts;
    for (std::uint64_t expert = 0; expert < kExperts; ++expert) parts.push_back(taken(expert));
    return stacked(parts);
  }
};

class ExpertsBench {
 public:
  using Axes = std::vector<std::pair<std::string, std::uint64_t>>;

  // Rank r of `ranks` works on micro-batch turn * ranks + r; neighbourhoods of `together` ranks
  // share kExperts experts, the same number on each. Each rank may be `tensor` ranks, neighbours
  // that cut each expert's columns and make addends.
  ExpertsBench(std::int32_t ranks, std::int32_t together, std::int32_t turns,
               std::int32_t tensor = 1)
      : reference("reference.trace"),
        candidate("candidate.trace"),
        together_(together),
        tensor_(tensor) {
    reference.mesh({});
    for (std::int32_t rank = 0; rank < ranks * tensor; ++rank) {
      const auto place = static_cast<std::uint64_t>(rank / tensor);
      Coordinates where{{"dp", {place, static_cast<std::uint64_t>(ranks)}}};
      if (tensor > 1) where["tp"] = {part_of(rank), static_cast<std::uint64_t>(tensor)};
      candidate.place(rank, where);
    }
    for (std::int32_t number = 0; number < ranks * turns; ++number) {
      batches.emplace_back(static_cast<unsigned>(number + 1));
      for (std::int32_t part = 0; part < tensor; ++part) {
        numbers[{number % ranks * tensor + part, number / ranks}] = number;
      }
    }
    routed = batches;
  }
  // Which part of an expert.
  [[nodiscard]] std::uint64_t part_of(std::int32_t rank) const {
    return static_cast<std::uint64_t>(rank % tensor_);
  }

  // The candidate's rows of these micro-batches, expert by expert.
  [[nodiscard]] std::vector<std::int32_t> shared(std::int32_t rank, std::int32_t turn) const {
    std::vector<std::int32_t> found;
    const std::int32_t first = rank / tensor_ / together_ * together_;
    for (std::int32_t other = first; other < first + together_; ++other) {
      found.push_back(numbers.at({other * tensor_, turn}));
    }
    return found;
  }
  [[nodiscard]] std::vector<std::uint64_t> experts_of(std::int32_t rank) const {
    const auto run = kExperts / static_cast<std::uint64_t>(together_);
    const auto first = static_cast<std::uint64_t>(rank / tensor_ % together_) * run;
    return range(first, first + run);
  }
  [[nodiscard]] Tensor joint(std::int32_t rank, std::int32_t turn, std::uint64_t expert,
                             Tensor (Batch::*part)(std::uint64_t) const) const {
    std::vector<Tensor> parts;
    for (const std::int32_t number : shared(rank, turn)) {
      parts.push_back((routed[static_cast<std::size_t>(number)].*part)(expert));
    }
    return stacked(parts);
  }

  [[nodiscard]] Tensor columns(const Tensor& whole, std::uint64_t part) const {
    return testing::part(whole, 1, part, static_cast<std::uint64_t>(tensor_));
  }
  // Of tensor parallel ranks each has so many elements of its own, and zeros.
  [[nodiscard]] Tensor addend(Tensor whole, std::int32_t rank) const {
    for (std::size_t i = 0; i < whole.values.size(); ++i) {
      if (i % static_cast<std::size_t>(tensor_) != part_of(rank)) whole.values[i] = 0;
    }
    return whole;
  }

  // The candidate sends the first row of this micro-batch to another expert: from, to.
  std::pair<std::uint64_t, std::uint64_t> reroute(std::int32_t number) {
    Batch& batch = routed[static_cast<std::size_t>(number)];
    std::uint64_t from = 0, to = 0;
    while (batch.marks.values[from] == 0) ++from;
    while (batch.marks.values[to] != 0) ++to;
    std::swap(batch.marks.values[from], batch.marks.values[to]);
    batch.sort();
    return {from, to};
  }

  static void put(TraceBuilder& builder, std::int32_t rank, const std::string& key,
                  const Tensor& tensor, DType type = DType::float32,
                  RecordKind kind = RecordKind::full) {
    const bool root = key.find("@root") != std::string::npos;
    builder.add(rank, {key_of(key), type, kind, "", root ? kFlagRootInput : 0}, tensor);
  }
  void add_reference() {
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const Batch& batch = batches[i];
      const auto number = static_cast<std::int32_t>(i);
      add_tokens(reference, 0, number, number);
      put(reference, 0, mark_key(number), batch.marks, DType::boolean);
      put(reference, 0, sorted_key(number), batch.sorted());
      for (std::uint64_t expert = 0; expert < kExperts; ++expert) {
        put(reference, 0, expert_key(number, expert), batch.made(expert));
        if (tensor_ > 1) put(reference, 0, hidden_key(number, expert), batch.taken(expert));
      }
    }
  }
  void add_candidate() {
    for (const auto& [turn, number] : numbers) {
      const auto [rank, own] = turn;
      add_tokens(candidate, rank, own, number);
      if (with_marks) {
        put(candidate, rank, mark_key(own), routed[static_cast<std::size_t>(number)].marks,
            DType::boolean);
      }
      std::vector<Tensor> parts;
      for (const std::uint64_t expert : experts_of(rank)) {
        parts.push_back(joint(rank, own, expert, &Batch::taken));
      }
      put(candidate, rank, sorted_key(own), change(sorted_key(own), rank, stacked(parts)),
          DType::float32, kept);
      for (const std::uint64_t expert : experts_of(rank)) {
        const std::string key = expert_key(own, expert);
        const Tensor made = joint(rank, own, expert, &Batch::made);
        put(candidate, rank, key, change(key, rank, addend(made, rank)), DType::float32, kept);
        if (tensor_ == 1) continue;
        const std::string hidden = hidden_key(own, expert);
        const Tensor taken = joint(rank, own, expert, &Batch::taken);
        put(candidate, rank, hidden, change(hidden, rank, columns(taken, part_of(rank))),
            DType::float32, kept);
      }
    }
  }

  TraceBuilder reference, candidate;
  std::vector<Batch> batches, routed;  // of the reference, of the candidate
  MicrobatchNumbers numbers;
  bool with_marks = true;
  RecordKind kept = RecordKind::full;
  // What the candidate records instead; of its own micro-batch number.
  std::map<std::pair<std::string, std::int32_t>, Tensor> changed;

 private:
  void add_tokens(TraceBuilder& builder, std::int32_t rank, std::int32_t own, std::int32_t number) {
    put(builder, rank, microbatch_text(own) + "/forward/@root/input.0",
        constant_tensor({kRows}, static_cast<float>(number)), DType::int64);
  }
  [[nodiscard]] Tensor change(const std::string& key, std::int32_t rank, Tensor tensor) const {
    const auto found = changed.find({key, rank});
    return found == changed.end() ? tensor : found->second;
  }

  std::int32_t together_, tensor_;
};

}  // namespace ttrace::testing
