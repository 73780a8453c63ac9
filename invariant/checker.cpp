// SPDX-License-Identifier: Apache-2.0
#include "invariant/checker.hpp"

#include <algorithm>

#include "invariant/examples.hpp"
#include "invariant/precondition.hpp"
#include "invariant/stream.hpp"

namespace ttrace::invariant {
namespace {

const Condition* condition_of(const Values& values, const Invariant& invariant,
                              const Relation& relation) {
  for (const GroupCondition& entry : invariant.precondition) {
    if (values.text(entry.group) == relation.group()) return &entry.condition;
  }
  return nullptr;
}

// TrainCheck takes addresses for values, and an attribute that is missing for one ("<NA>").
bool says_nothing(const Values& values, const Invariant& invariant) {
  for (const Param& param : invariant.params) {
    if (param.type != ParamType::variable_type && param.type != ParamType::variable_name) continue;
    if (is_identity(values.text(param.attribute))) return true;
    if (param.constant.kind != Kind::string) continue;
    if (values.text(param.constant).find("<NA>") != std::string_view::npos) return true;
  }
  return false;
}

void note_counters(World& world, const Condition& condition) {
  for (const Conjunction& conjunction : condition.any) {
    for (const Clause& clause : conjunction) {
      if (clause.type != ClauseType::constant) continue;
      const Column column = world.columns.of(clause.property);
      const bool late = std::ranges::any_of(clause.values, [](Value value) {
        return value.kind != Kind::integer || value.integer > kFirstSteps;
      });
      if (column == Column::counter || (column == Column::step && late)) {
        world.counted.insert(clause.property);
      }
    }
  }
}

}  // namespace

class Checker::Impl {
 public:
  Impl(Values& values, std::span<const Invariant> invariants, const Signatures* signatures,
       bool loses_tail)
      : world(values, signatures), tallies_(invariants.size()), judgements_(invariants.size()) {
    world.loses_tail = loses_tail;
    for (std::size_t i = 0; i < invariants.size(); ++i) judgements_[i].invariant = &invariants[i];
    std::vector<Listener*> listeners;
    for (const auto& relation : relations()) {
      auto part = std::make_unique<Part>(*this, *relation);
      if (part->listener) listeners.push_back(part->listener.get());
      parts_.push_back(std::move(part));
    }
    tracker.emplace(world, listeners);
    stream.emplace(world, *tracker);
  }

  void note_record(const Record& record) {
    ++records;
    for (const Field& field : record.fields) {
      if (world.columns.of(field.column) != Column::step) continue;
      if (field.value.kind != Kind::integer) continue;
      if (first_step == kNoStep || field.value.integer < first_step)
        first_step = field.value.integer;
      last_step = std::max(last_step, field.value.integer);
    }
  }

  [[nodiscard]] CheckResult result() const {
    CheckResult result;
    result.judgements = judgements_;
    for (Judgement& judgement : result.judgements) {
      if (judgement.violations > 0) {
        judgement.verdict = judgement.invariant->weak ? Verdict::possible : Verdict::failed;
      } else if (judgement.covered > 0) {
        judgement.verdict = Verdict::passed;
      }
    }
    result.gaps = tracker->gaps();
    result.records = records;
    result.late = stream->late();
    result.first_step = first_step;
    result.last_step = last_step;
    return result;
  }

  World world;
  std::optional<Tracker> tracker;
  std::optional<Stream> stream;
  std::uint64_t records = 0;
  std::uint64_t violations = 0;
  std::int64_t first_step = kNoStep, last_step = kNoStep;

 private:
  // The invariants of one relation.
  struct Part : public Sink {
    Part(Impl& impl, const Relation& relation) : owner(impl) {
      std::vector<const Invariant*> mine;
      for (std::size_t i = 0; i < owner.judgements_.size(); ++i) {
        const Invariant& invariant = *owner.judgements_[i].invariant;
        if (owner.world.values.text(invariant.relation) != relation.name()) continue;
        const Condition* condition = condition_of(owner.world.values, invariant, relation);
        if (condition == nullptr || says_nothing(owner.world.values, invariant)) continue;
        note_counters(owner.world, *condition);
        owner.judgements_[i].relation = &relation;
        numbers.push_back(i);
        conditions.push_back(condition);
        mine.push_back(&invariant);
      }
      if (!mine.empty()) listener = relation.evaluator(owner.world, mine, *this);
    }

    bool example(std::size_t hypothesis, const Example& example, bool held) override {
      Tally& tally = owner.tallies_.at(numbers[hypothesis], example);
      if (tally.covered == Tally::Covered::unknown) {
        const bool covers =
            holds(owner.world.values, owner.world.situations, *conditions[hypothesis], example);
        tally.covered = covers ? Tally::Covered::yes : Tally::Covered::no;
      }
      if (tally.covered == Tally::Covered::no) return false;
      ++owner.judgements_[numbers[hypothesis]].covered;
      return !held;
    }

    void report(std::size_t hypothesis, Evidence evidence) override {
      Judgement& judgement = owner.judgements_[numbers[hypothesis]];
      ++judgement.violations;
      ++owner.violations;
      if (judgement.evidence.size() < kEvidence) judgement.evidence.push_back(std::move(evidence));
    }

    Impl& owner;
    std::vector<std::size_t> numbers;
    std::vector<const Condition*> conditions;
    std::unique_ptr<Listener> listener;
  };

  ExampleTallies tallies_;
  std::vector<Judgement> judgements_;
  std::vector<std::unique_ptr<Part>> parts_;
};

Checker::Checker(Values& values, std::span<const Invariant> invariants,
                 const Signatures* signatures, bool loses_tail)
    : impl_(std::make_unique<Impl>(values, invariants, signatures, loses_tail)) {}
Checker::~Checker() = default;

void Checker::check(std::span<const Record> records) {
  for (const Record& record : records) impl_->note_record(record);
  replay(impl_->world, records, *impl_->tracker);
}

std::int64_t Checker::push(Record record) {
  impl_->note_record(record);
  return impl_->stream->push(std::move(record));
}

void Checker::advance(std::int64_t limit) { impl_->stream->advance(limit); }
void Checker::finish() { impl_->stream->finish(); }
void Checker::set_loses_tail() { impl_->world.loses_tail = true; }
CheckResult Checker::result() const { return impl_->result(); }
std::uint64_t Checker::violations() const { return impl_->violations; }

CheckResult check(Values& values, const TraceInput& trace, std::span<const Invariant> invariants,
                  const Signatures* signatures) {
  Checker checker(values, invariants, signatures, trace.loses_tail);
  checker.check(trace.records);
  return checker.result();
}

}  // namespace ttrace::invariant
