// SPDX-License-Identifier: Apache-2.0
// See collective_check.hpp.
#include "capture/collective_check.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "libttrace/core/dtype.hpp"

namespace ttrace {
namespace {

std::string_view view(const char* text) { return text == nullptr ? std::string_view{} : text; }

constexpr std::array<std::string_view, 11> kFunctions{
    "all_reduce", "reduce",  "broadcast", "reduce_scatter", "all_gather", "all_to_all",
    "gather",     "scatter", "send",      "recv",           "barrier"};
constexpr std::array<std::string_view, 9> kReductions{"sum",        "prod", "min", "max", "avg",
                                                      "premul_sum", "band", "bor", "bxor"};
constexpr std::uint32_t kFlags = 31;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 60;  // of 8 bytes: 2^63

std::string quoted(std::string_view text) { return "\"" + std::string(text.substr(0, 64)) + "\""; }

template <std::size_t count>
std::string check_one_of(std::string_view text, const char* what,
                         const std::array<std::string_view, count>& known) {
  if (std::find(known.begin(), known.end(), text) != known.end()) return {};
  std::string all;
  for (const std::string_view one : known) all += (all.empty() ? "" : ", ") + std::string(one);
  return std::string(what) + " " + quoted(text) + " is none of " + all;
}

// "3,5": one number for each member.
std::string check_splits(std::string_view text, const char* what, std::int32_t size) {
  if (text.empty()) return {};
  const std::string wrong = std::string(what) + " " + quoted(text);
  std::int32_t numbers = 0;
  for (std::string_view rest = text; numbers == 0 || !rest.empty(); ++numbers) {
    if (numbers != 0) rest.remove_prefix(1);  // a comma
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
    if (error != std::errc() || (!rest.empty() && rest[0] != ',')) {
      return wrong + " is no list of numbers like 3,5";
    }
  }
  if (numbers == size) return {};
  return wrong + " has " + std::to_string(numbers) + " numbers, not one for each of " +
         std::to_string(size) + " members";
}

std::string check_numbers(const ttrace_collective& call) {
  const std::string group = " is not in a group of " + std::to_string(call.size);
  if (call.member < 0 || call.member >= call.size) {
    return "member " + std::to_string(call.member) + group;
  }
  if (call.peer < -1 || call.peer >= call.size) return "peer " + std::to_string(call.peer) + group;
  if (call.microbatch < TTRACE_CURRENT) return "microbatch is below -2";
  if (call.count > kMostElements) return "count " + std::to_string(call.count) + " is too large";
  if ((call.flags & ~kFlags) != 0) return "flags " + std::to_string(call.flags) + " are unknown";
  if (!dtype_from_code(call.dtype)) return "dtype " + std::to_string(call.dtype) + " is unknown";
  return {};
}

std::string check_references(const ttrace_collective& call, std::uint64_t records) {
  for (const std::int64_t record : {call.input, call.output}) {
    if (record >= 0 && static_cast<std::uint64_t>(record) >= records) {
      return "buffer " + std::to_string(record) + " is no earlier record of this iteration";
    }
  }
  if (call.position > 0 && static_cast<std::uint64_t>(call.position) > records) {
    return "position " + std::to_string(call.position) + " is behind the records of this iteration";
  }
  return {};
}

// Elements that a member gives and gets, as ttrace.h says what `count` counts.
struct Extent {
  std::uint64_t input, output;
};

Extent extent_of(std::string_view function, std::uint64_t count, std::int32_t size) {
  const std::uint64_t all = count * static_cast<std::uint64_t>(size);
  if (function == "all_to_all") return {all, all};
  if (function == "reduce_scatter" || function == "scatter") return {all, count};
  if (function == "all_gather" || function == "gather") return {count, all};
  return {count, count};
}

std::string doubt_about(const CheckedCollective& checked,
                        const std::vector<RecordedTensor>& records) {
  if (!checked.texts[4].empty() || !checked.texts[5].empty()) return {};  // uneven parts
  const CollectiveBody& body = checked.body;
  const Extent extent = extent_of(checked.texts[0], body.count, body.size);
  const auto differs = [&](std::int64_t record, std::uint64_t expected, const char* side) {
    if (record < 0) return std::string();
    const RecordedTensor& tensor = records[static_cast<std::size_t>(record)];
    const std::uint64_t elements = tensor.bytes / size_of(static_cast<DType>(tensor.dtype));
    if (elements == expected || tensor.dtype != body.dtype) return std::string();
    return "its " + std::string(side) + " has " + std::to_string(elements) + " elements, not " +
           std::to_string(expected) + " as its count " + std::to_string(body.count) + " says";
  };
  const std::string input = differs(body.input, extent.input, "input");
  return input.empty() ? differs(body.output, extent.output, "output") : input;
}

std::string check_texts(const CheckedCollective& checked) {
  if (checked.texts[0].empty()) return "function is empty";
  if (checked.texts[2].empty()) return "group is empty";
  for (const std::string_view text : checked.texts) {
    if (text.size() > kMaxNameBytes) return "a text is longer than 65536 bytes";
  }
  std::string problem = check_one_of(checked.texts[0], "function", kFunctions);
  if (problem.empty() && !checked.texts[1].empty()) {
    problem = check_one_of(checked.texts[1], "reduction", kReductions);
  }
  return problem;
}

void fill(CollectiveBody& body, const ttrace_collective& call, std::uint64_t records) {
  body.sequence = call.sequence;
  body.count = call.count;
  body.factor = call.factor;
  body.input = call.input < 0 ? -1 : call.input;
  body.output = call.output < 0 ? -1 : call.output;
  body.position = call.position < 0 ? records : static_cast<std::uint64_t>(call.position);
  body.member = call.member;
  body.size = call.size;
  body.peer = call.peer;
  body.flags = call.flags;
  body.dtype = call.dtype;
}

}  // namespace

CheckedCollective check_collective(const ttrace_collective& call, std::int32_t microbatch,
                                   std::string_view scope,
                                   const std::vector<RecordedTensor>& records) {
  CheckedCollective checked;
  if (call.struct_size < sizeof(ttrace_collective)) {
    checked.problem = "struct_size is not set";
    return checked;
  }
  checked.texts = {view(call.function),     view(call.reduction),
                   view(call.group),        call.module == nullptr ? scope : view(call.module),
                   view(call.input_splits), view(call.output_splits)};
  checked.problem = check_texts(checked);
  if (checked.problem.empty()) checked.problem = check_numbers(call);
  if (checked.problem.empty()) {
    checked.problem = check_splits(checked.texts[4], "input_splits", call.size);
  }
  if (checked.problem.empty()) {
    checked.problem = check_splits(checked.texts[5], "output_splits", call.size);
  }
  if (checked.problem.empty()) checked.problem = check_references(call, records.size());
  if (!checked.problem.empty()) return checked;
  fill(checked.body, call, records.size());
  checked.doubt = doubt_about(checked, records);
  checked.body.microbatch = call.microbatch == TTRACE_CURRENT ? microbatch : call.microbatch;
  for (std::size_t i = 0; i < checked.texts.size(); ++i) {
    checked.body.text_bytes[i] = static_cast<std::uint32_t>(checked.texts[i].size());
  }
  return checked;
}

}  // namespace ttrace
