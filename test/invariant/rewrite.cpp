// SPDX-License-Identifier: Apache-2.0
// Reads a file of TrainCheck's and writes it again, for tests that compare the two.
//   rewrite trace FOLDER OUT | invariants FILE OUT | rejected FILE OUT
//           fields FILE OUT (invariants from their fields alone) | signatures FILE FUNCTION
//           results TRACE FILE OUT (the first invariant failed at the last two records, the second
//           passed, the third was not triggered)
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "invariant/invariant_file.hpp"
#include "invariant/json_text.hpp"
#include "invariant/result_files.hpp"
#include "invariant/signature.hpp"
#include "invariant/traincheck_reader.hpp"
#include "invariant/traincheck_writer.hpp"
#include "libttrace/core/trouble.hpp"

using namespace ttrace::invariant;

namespace {

void print_damage(const Records& records) {
  for (const Damage& damage : records.damage)
    std::printf("damage %llu %llu %llu %d\n", static_cast<unsigned long long>(damage.duplicates),
                static_cast<unsigned long long>(damage.malformed),
                static_cast<unsigned long long>(damage.first_malformed),
                damage.partial_tail ? 1 : 0);
}

void print_faults(const FileFaults& faults) {
  std::printf("faults %llu %llu %s\n", static_cast<unsigned long long>(faults.lines),
              static_cast<unsigned long long>(faults.first), faults.why.c_str());
}

void print_signature(const char* file, const char* function) {
  Values values;
  const Signatures signatures = Signatures::read(file, values);
  std::string name = function;
  const bool manager = name.ends_with("@class");
  if (manager) name.resize(name.size() - 6);
  const std::vector<Parameter>* const found =
      manager ? signatures.find_manager(values.name(name)) : signatures.find(values.name(name));
  if (found == nullptr) std::puts("none");
  if (found == nullptr) return;
  for (const Parameter& parameter : *found) {
    std::printf("%s %d %s\n", std::string(values.text(parameter.name)).c_str(),
                static_cast<int>(parameter.passing),
                parameter.fallback.present() ? to_json(values, parameter.fallback).c_str() : "-");
  }
}

void write_made_up_results(const char* trace, const char* file, const char* out) {
  Records records = read_traincheck(trace);
  const InvariantFile read = read_invariants(file, records.values);
  const auto last = static_cast<std::uint32_t>(records.records.size() - 1);
  const Record& record = records.records[last];
  std::vector<Outcome> outcomes{
      {&read.invariants.at(0),
       Verdict::failed,
       {{{last - 1, last}, 3, record.process, record.time}, {{last}, 5, record.process, 0}}},
      {&read.invariants.at(1), Verdict::passed, {}},
      {&read.invariants.at(2), Verdict::not_triggered, {}}};
  write_results({out, trace, file}, records, outcomes);
}

}  // namespace

int main(int count, char** words) try {
  if (count < 4) return 2;
  const std::string what = words[1];
  Values values;
  if (what == "trace") {
    const Records records = read_traincheck(words[2]);
    print_damage(records);
    write_traincheck(words[3], records);
  } else if (what == "invariants" || what == "fields") {
    InvariantFile file = read_invariants(words[2], values);
    print_faults(file.faults);
    for (Invariant& invariant : file.invariants) {
      if (what == "fields") invariant.source = {};
    }
    write_invariants(words[3], values, file.invariants);
  } else if (what == "rejected") {
    const RejectedFile file = read_rejected(words[2], values);
    print_faults(file.faults);
    write_rejected(words[3], values, file.rejected);
  } else if (what == "signatures") {
    print_signature(words[2], words[3]);
  } else if (what == "results" && count == 5) {
    write_made_up_results(words[2], words[3], words[4]);
  } else {
    return 2;
  }
  return 0;
} catch (const ttrace::Trouble& trouble) {
  std::fprintf(stderr, "rewrite: %s\n", trouble.what());
  return 2;
}
