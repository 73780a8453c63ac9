// SPDX-License-Identifier: Apache-2.0
// See relation.hpp: all of them.
#include <algorithm>
#include <iterator>

#include "invariant/compat/consistency.hpp"
#include "invariant/compat/contain.hpp"
#include "invariant/compat/distinct.hpp"
#include "invariant/compat/input_output.hpp"
#include "invariant/compat/order.hpp"
#include "invariant/compat/output.hpp"
#include "invariant/compat/relation.hpp"
#include "invariant/compat/threshold.hpp"

namespace ttrace::invariant::compat {

Context::Context(Trace& of)
    : trace(of), view(of, of.rows), gatherer(of.values(), of.shared.situations) {}
Context::~Context() = default;

const std::vector<View*>& Context::by_stage() {
  if (!by_stage_.empty()) return by_stage_;
  for (const Value stage : trace.stages) {
    std::vector<Row> rows;
    std::ranges::copy_if(trace.rows, std::back_inserter(rows), [&](Row row) {
      return trace.values().equal(trace.at(row).field(trace.words.stage), stage);
    });
    stages_.push_back(std::make_unique<View>(trace, std::move(rows)));
    by_stage_.push_back(stages_.back().get());
  }
  if (by_stage_.empty()) by_stage_.push_back(&view);
  return by_stage_;
}

std::span<const Relation> relations() {
  static const std::vector<Relation> kAll{
      {"APIContainRelation",
       "parent_func_call_pre",
       {},
       infer_contain,
       collect_contain,
       check_contain,
       contain_text},
      {"ConsistencyRelation",
       "var",
       {"attributes.data", "attributes.grad"},
       infer_consistency,
       collect_consistency,
       check_consistency,
       consistency_text},
      {"ConsistentOutputRelation",
       "pre_event",
       {},
       infer_output,
       collect_output,
       check_output,
       output_text},
      {"ConsistentInputOutputRelation",
       "pre_event",
       {},
       infer_input_output,
       collect_input_output,
       check_input_output,
       input_output_text},
      {"FunctionCoverRelation",
       "func_cover",
       {"function"},
       infer_cover,
       collect_cover,
       check_cover,
       cover_text},
      {"FunctionLeadRelation",
       "func_lead",
       {"function"},
       infer_lead,
       collect_lead,
       check_lead,
       lead_text},
      {"DistinctArgumentRelation",
       "distinct_arg",
       {},
       infer_distinct,
       collect_distinct,
       check_distinct,
       distinct_text},
      {"ThresholdRelation",
       "pre_event",
       {},
       infer_threshold,
       collect_threshold,
       check_threshold,
       threshold_text},
  };
  return kAll;
}

const Relation* find_relation(std::string_view name) {
  const auto found = std::ranges::find(relations(), name, &Relation::name);
  return found == relations().end() ? nullptr : &*found;
}

}  // namespace ttrace::invariant::compat
