// SPDX-License-Identifier: Apache-2.0
#include "invariant/invariant_file.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "invariant/invariant_json.hpp"
#include "invariant/json_text.hpp"
#include "invariant/line_file.hpp"
#include "invariant/text_file.hpp"

namespace ttrace::invariant {

namespace {

// Hands every line's object to `take`, which returns why it is not what it should be, or "".
template <class Take>
FileFaults read_lines(const std::filesystem::path& path, Values& values, const Take& take) {
  LineFile file(path);
  FileFaults faults;
  const auto read = [&](std::string_view line, std::uint64_t number) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    JsonFault fault;
    const std::optional<Value> object = parse_json(line, values, &fault);
    const std::string why =
        object ? take(*object)
               : "no JSON: at byte " + std::to_string(fault.at + 1) + " it " + fault.why;
    if (!why.empty() && faults.lines++ == 0) {
      faults.first = number;
      faults.why = why;
    }
  };
  std::string_view line;
  while (file.next(line)) read(line, file.number());
  read(file.rest(), file.number() + 1);
  return faults;
}

std::string no_content(const FileFaults& faults, const std::string& what) {
  if (faults.lines == 0) return "it is empty; " + what;
  return "none of its " + std::to_string(faults.lines) + " lines is one (line " +
         std::to_string(faults.first) + ": " + faults.why + "); " + what;
}

// The numbers of what is to be written, in order.
template <class Entry>
std::vector<std::size_t> sorted(Values& values, std::span<const Entry> entries) {
  struct Key {
    std::string_view text;
    Value relation, params, precondition, whole;
  };
  InvariantForm form(values);
  std::vector<Key> keys;
  for (const Entry& entry : entries) {
    const Invariant* invariant = nullptr;
    if constexpr (std::is_same_v<Entry, Rejected>) {
      invariant = &entry.invariant;
    } else {
      invariant = &entry;
    }
    keys.push_back({invariant->text, values.string(values.text(invariant->relation)),
                    form.params(*invariant), form.precondition(*invariant), form.write(entry)});
  }
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const Key &one = keys[a], &other = keys[b];
    if (one.text != other.text) return one.text < other.text;
    for (Value Key::*part : {&Key::relation, &Key::params, &Key::precondition, &Key::whole}) {
      if (const int order_of_part = values.compare(one.*part, other.*part))
        return order_of_part < 0;
    }
    return false;
  });
  return order;
}

template <class Entry>
void write(const std::filesystem::path& file, Values& values, std::span<const Entry> entries) {
  InvariantForm form(values);
  TextFile out(file);
  std::string line;
  for (const std::size_t number : sorted(values, entries)) {
    line.clear();
    append_json(line, values, form.write(entries[number]));
    out.append(line += '\n');
  }
  out.finish();
}

}  // namespace

InvariantFile read_invariants(const std::filesystem::path& file, Values& values) {
  InvariantFile result;
  InvariantForm form(values);
  result.faults = read_lines(file, values, [&](Value object) -> std::string {
    std::optional<Invariant> invariant = form.read(object);
    if (!invariant) {
      return values.member(object, values.name("failed_reason")).present()
                 ? "a rejected hypothesis, of a file for those"
                 : form.why();
    }
    result.invariants.push_back(std::move(*invariant));
    return "";
  });
  if (result.invariants.empty()) {
    throw Trouble("no invariant", file.string(),
                  no_content(result.faults,
                             "give the file that ttrace-infer -o or "
                             "traincheck-infer -o wrote"));
  }
  return result;
}

RejectedFile read_rejected(const std::filesystem::path& file, Values& values) {
  RejectedFile result;
  InvariantForm form(values);
  result.faults = read_lines(file, values, [&](Value object) -> std::string {
    std::optional<Rejected> rejected = form.read_rejected(object);
    if (!rejected) return form.why();
    result.rejected.push_back(std::move(*rejected));
    return "";
  });
  if (result.rejected.empty()) {
    throw Trouble("no rejected hypothesis", file.string(),
                  no_content(result.faults,
                             "give a file named like the one of invariants with "
                             "'.failed' behind it"));
  }
  return result;
}

void write_invariants(const std::filesystem::path& file, Values& values,
                      std::span<const Invariant> invariants) {
  write(file, values, invariants);
}
void write_rejected(const std::filesystem::path& file, Values& values,
                    std::span<const Rejected> rejected) {
  write(file, values, rejected);
}

}  // namespace ttrace::invariant
