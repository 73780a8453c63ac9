// SPDX-License-Identifier: Apache-2.0
// Runs for tests of relations, made call by call, and what is learned from them.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "invariant/checker.hpp"
#include "invariant/infer.hpp"

namespace made_run {

using namespace ttrace::invariant;

using Entries = std::initializer_list<std::pair<const char*, Value>>;

// One process and thread at a time; time goes on with each record.
class Run {
 public:
  explicit Run(Values& values) : values_(values) {}

  Values& values() { return values_; }
  Run& process(std::int64_t number, std::int64_t thread = 1) {
    process_ = number;
    thread_ = thread;
    return *this;
  }
  Run& step(std::int64_t number, const char* stage = "training") {
    step_ = number;
    stage_ = stage;
    return *this;
  }
  Run& meta(const char* name, Value value) {
    meta_[std::string("meta_vars.") + name] = value;
    return *this;
  }
  void object(std::int64_t number) { object_ = number; }  // obj_id of the records that follow
  void at(std::int64_t time) { time_ = time; }            // of the next record
  [[nodiscard]] std::int64_t now() const { return time_; }

  Value text(const char* value) { return values_.string(value); }
  Value object(Entries entries) {
    std::vector<Member> members;
    for (const auto& [name, value] : entries) members.push_back({values_.name(name), value});
    return values_.object(members);
  }
  Value typed(const char* type, Value payload) { return object({{type, payload}}); }
  Value tensor(Entries attributes) { return typed("torch.FloatTensor", object(attributes)); }
  Value list(std::vector<Value> elements) { return values_.list(elements); }

  // `inside` runs while the call is open.
  void call(const char* function, const std::function<void()>& inside = {}, Value args = {},
            Value returns = {}) {
    const std::uint64_t id = begin(function, args);
    if (inside) inside();
    end(function, id, returns);
  }
  std::uint64_t begin(const char* function, Value args = {}) {
    Record record = make(RecordKind::pre);
    record.function = values_.name(function);
    record.call = ++calls_;
    record.args = args.present() ? args : object({});
    record.kwargs = object({});
    records.push_back(std::move(record));
    return calls_;
  }
  void end(const char* function, std::uint64_t id, Value returns = {},
           RecordKind kind = RecordKind::post) {
    Record record = make(kind);
    record.function = values_.name(function);
    record.call = id;
    record.returns = returns.present() ? returns : typed("NoneType", none());
    records.push_back(std::move(record));
  }
  void state(const char* variable, Entries attributes, const char* mode = "update",
             const char* location = "here") {
    Record record = make(RecordKind::state);
    record.variable = values_.name(variable);
    record.variable_type = values_.name("torch.nn.Parameter");
    if (mode != nullptr) {
      record.fields.push_back({values_.name("mode"), text(mode)});
      record.fields.push_back({values_.name("dump_loc"), text(location)});
    }
    for (const auto& [name, value] : attributes) {
      record.fields.push_back({values_.name(std::string("attributes.") + name), value});
    }
    records.push_back(std::move(record));
  }

  std::vector<Record> records;

 private:
  Record make(RecordKind kind) {
    Record record;
    record.kind = kind;
    record.line = static_cast<std::uint32_t>(records.size() + 1);
    record.time = time_++;
    record.process = process_;
    record.thread = thread_;
    record.fields.push_back({values_.name("process_id"), integer(process_)});
    record.fields.push_back({values_.name("meta_vars.step"), integer(step_)});
    record.fields.push_back({values_.name("meta_vars.stage"), text(stage_)});
    if (object_ != 0) record.fields.push_back({values_.name("obj_id"), integer(object_)});
    for (const auto& [name, value] : meta_) record.fields.push_back({values_.name(name), value});
    return record;
  }

  Values& values_;
  std::int64_t process_ = 1, thread_ = 1, step_ = 0, time_ = 1, object_ = 0;
  const char* stage_ = "training";
  std::map<std::string, Value> meta_;
  std::uint64_t calls_ = 0;
};

inline Inference learn(Run& run) {
  const TraceInput trace{run.records};
  return infer(run.values(), {&trace, 1}, nullptr);
}

// Keeps the invariants that it points to.
struct Judged : CheckResult {
  std::shared_ptr<const Inference> learned;
};

inline Judged judge(Run& run, Inference learned) {
  Judged judged;
  judged.learned = std::make_shared<const Inference>(std::move(learned));
  static_cast<CheckResult&>(judged) =
      check(run.values(), {run.records}, judged.learned->invariants, nullptr);
  return judged;
}

// The learned invariant with this text; nullptr: there is none.
inline const Invariant* find(const Inference& learned, const std::string& text) {
  for (const Invariant& invariant : learned.invariants) {
    if (invariant.text == text) return &invariant;
  }
  return nullptr;
}

inline const Judgement* find(const CheckResult& result, const std::string& text) {
  for (const Judgement& judgement : result.judgements) {
    if (judgement.invariant->text == text) return &judgement;
  }
  return nullptr;
}

// Texts of what is violated, in order.
inline std::vector<std::string> violated(const CheckResult& result) {
  std::vector<std::string> texts;
  for (const Judgement& judgement : result.judgements) {
    if (judgement.verdict == Verdict::failed) texts.push_back(judgement.invariant->text);
  }
  return texts;
}

}  // namespace made_run
