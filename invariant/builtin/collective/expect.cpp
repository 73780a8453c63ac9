// SPDX-License-Identifier: Apache-2.0
// See expect.hpp.
#include "invariant/builtin/collective/expect.hpp"

#include <algorithm>
#include <map>

#include "invariant/builtin/collective/slices.hpp"

namespace ttrace::builtin {
namespace {

constexpr const char* kNotRecorded = "buffers were not recorded (ttrace-capture --comm full)";
constexpr const char* kNoBytes = "buffers were kept as hashes only (ttrace-capture --comm full)";
constexpr const char* kUnfit = "sizes of buffers do not fit each other";

class Builder {
 public:
  explicit Builder(const Joint& joint) : joint_(joint), size_(joint.calls.size()) {}

  Expected build() {
    const std::string& function = joint_.calls.front().row->function;
    if (joint_.paired) {
      pair();
    } else if (!joint_.complete()) {
      fail("some members of a group are not in the trace");
    } else if (function == "all_reduce" || function == "reduce") {
      reduction(function == "reduce");
    } else if (function == "reduce_scatter") {
      reduce_scatter();
    } else if (function == "broadcast") {
      broadcast();
    } else if (function == "all_gather" || function == "gather") {
      gather(function == "gather");
    } else if (function == "scatter") {
      scatter();
    } else if (function == "all_to_all") {
      all_to_all();
    } else if (function != "barrier") {
      fail("a function that is not known: " + function);
    }
    return std::move(expected_);
  }

 private:
  void fail(const std::string& why) {
    if (expected_.unknown.empty()) expected_.unknown = why;
  }

  std::optional<Part> buffer(const Call& call, const Record* record) {
    if (record == nullptr) {
      fail(kNotRecorded);
      return std::nullopt;
    }
    auto part = whole(*call.segment, record);
    if (!part) fail(kNoBytes);
    return part;
  }

  std::optional<std::vector<Source>> inputs() {
    std::vector<Source> sources;
    for (const Call& call : joint_.calls) {
      const auto part = buffer(call, call.input());
      if (!part) return std::nullopt;
      sources.push_back({*part, call.rank});
    }
    return sources;
  }

  // Of each member's input what goes to each member.
  std::optional<std::vector<std::vector<Source>>> cut_inputs() {
    std::vector<std::vector<Source>> cut;
    const auto from = inputs();
    for (std::size_t i = 0; from && i < size_; ++i) {
      const auto slices = slices_of((*from)[i].part, joint_.calls[i].row->input_splits, size_);
      if (!slices) {
        fail(kUnfit);
        return std::nullopt;
      }
      std::vector<Source>& parts = cut.emplace_back();
      for (const Part& slice : *slices) parts.push_back({slice, (*from)[i].rank});
    }
    if (!from) return std::nullopt;
    return cut;
  }

  // Of the members whose output counts; those with equal ones once.
  std::map<Hash128, std::pair<const Call*, std::vector<std::int32_t>>> outputs(bool of_root) {
    std::map<Hash128, std::pair<const Call*, std::vector<std::int32_t>>> distinct;
    for (const Call& call : joint_.calls) {
      if (of_root && call.row->member != call.row->peer) continue;
      if (!buffer(call, call.output())) continue;
      auto& [first, ranks] = distinct[call.output()->hash];
      if (first == nullptr) first = &call;
      ranks.push_back(call.rank);
    }
    return distinct;
  }

  void copy(const Source& from, const Part& to, const std::vector<std::int32_t>& ranks) {
    if (from.part.count != to.count || from.part.record->dtype != to.record->dtype) {
      return fail(kUnfit);
    }
    expected_.copies.push_back({from, to, ranks});
  }

  void reduce(const std::vector<Source>& from, const Part& to,
              const std::vector<std::int32_t>& ranks) {
    const bool fits = std::all_of(from.begin(), from.end(), [&](const Source& source) {
      return source.part.count == to.count && source.part.record->dtype == to.record->dtype;
    });
    if (!fits) return fail(kUnfit);
    expected_.reductions.push_back({from, to, ranks});
  }

  void pair() {
    const Call& sender = joint_.calls.front();
    const Call& receiver = joint_.calls.back();
    const auto from = buffer(sender, sender.input());
    const auto to = buffer(receiver, receiver.output());
    if (from && to) copy({*from, sender.rank}, *to, {receiver.rank});
  }

  void reduction(bool to_root) {
    const auto from = inputs();
    if (!from) return;
    for (const auto& [hash, output] : outputs(to_root)) {
      reduce(*from, *buffer(*output.first, output.first->output()), output.second);
    }
  }

  void reduce_scatter() {
    const auto cut = cut_inputs();
    if (!cut) return;
    for (std::size_t i = 0; i < size_; ++i) {
      const auto to = buffer(joint_.calls[i], joint_.calls[i].output());
      if (!to) continue;
      std::vector<Source> addends;
      for (std::size_t j = 0; j < size_; ++j) addends.push_back((*cut)[j][i]);
      reduce(addends, *to, {joint_.calls[i].rank});
    }
  }

  const Call* root() {
    const Call* root = joint_.of(joint_.calls.front().row->peer);
    if (root == nullptr) fail("the root is not known");
    return root;
  }

  void broadcast() {
    const Call* from = root();
    const auto input = from == nullptr ? std::nullopt : buffer(*from, from->input());
    if (!input) return;
    for (const auto& [hash, output] : outputs(false)) {
      copy({*input, from->rank}, *buffer(*output.first, output.first->output()), output.second);
    }
  }

  void gather(bool to_root) {
    const auto from = inputs();
    if (!from) return;
    for (const auto& [hash, output] : outputs(to_root)) {
      const Call& call = *output.first;
      const auto slices = slices_of(*buffer(call, call.output()), call.row->output_splits, size_);
      if (!slices) return fail(kUnfit);
      for (std::size_t j = 0; j < size_; ++j) copy((*from)[j], (*slices)[j], output.second);
    }
  }

  void scatter() {
    const Call* from = root();
    const auto input = from == nullptr ? std::nullopt : buffer(*from, from->input());
    if (!input) return;
    const auto slices = slices_of(*input, from->row->input_splits, size_);
    if (!slices) return fail(kUnfit);
    for (std::size_t i = 0; i < size_; ++i) {
      const Call& call = joint_.calls[i];
      const auto to = buffer(call, call.output());
      if (to) copy({(*slices)[i], from->rank}, *to, {call.rank});
    }
  }

  void all_to_all() {
    const auto cut = cut_inputs();
    if (!cut) return;
    for (std::size_t i = 0; i < size_; ++i) {
      const Call& call = joint_.calls[i];
      const auto to = buffer(call, call.output());
      if (!to) continue;
      const auto slices = slices_of(*to, call.row->output_splits, size_);
      if (!slices) return fail(kUnfit);
      for (std::size_t j = 0; j < size_; ++j) {
        copy((*cut)[j][i], (*slices)[j], {call.rank});
      }
    }
  }

  const Joint& joint_;
  std::size_t size_;
  Expected expected_;
};

}  // namespace

Expected expected_of(const Joint& joint) { return Builder(joint).build(); }

std::vector<const Call*> equal_outputs(const Joint& joint) {
  const std::string& function = joint.calls.front().row->function;
  std::vector<const Call*> outputs;
  if (joint.paired) return outputs;
  if (function != "all_reduce" && function != "broadcast" && function != "all_gather") {
    return outputs;
  }
  for (const Call& call : joint.calls) {
    if (call.row->function == function && call.output() != nullptr) outputs.push_back(&call);
  }
  return outputs;
}

const Call* origin_of(const Joint& joint, const Call& call) {
  const Call* origin = nullptr;
  if (joint.paired) {
    origin = &call == &joint.calls.back() ? &joint.calls.front() : nullptr;
  } else if (call.row->function == "broadcast") {
    origin = joint.of(call.row->peer);
  }
  return origin == nullptr || origin->input() == nullptr ? nullptr : origin;
}

}  // namespace ttrace::builtin
