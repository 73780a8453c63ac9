// SPDX-License-Identifier: Apache-2.0
// See trace.hpp: the records as a whole.
#include "invariant/compat/trace.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "invariant/compat/columns.hpp"

namespace ttrace::invariant::compat {
namespace {

// Parts of names of functions that TrainCheck leaves out. "._" stands for all private ones.
constexpr std::string_view kSkipped[] = {
    "cuda.is_available",
    "torch.get_default_dtype",
    "torch._VariableFunctionsClass",
    "torch.cuda._is_compiled",
    "torch.is_grad_enabled",
    "torch._ops.OpOverload",
    "torch.nn.modules.module.Module",
    "torch.utils.data._utils",
    "torch.distributed.utils._to_kwargs",
    "torch.distributed.utils._recursive_to",
    "torch.nn.parallel.scatter_gather._is_namedtuple",
    "torch.nn._reduction",
    "torch.nn.functional",
    "torch._tensor.Tensor.backward",
    "torch.autograd",
    "torch.optim.optimizer.Optimizer._optimizer_step_code",
    "torch.optim.optimizer._get_value",
    "torch.overrides",
    "._",
    "<locals>",
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool only_rest(const std::vector<Parameter>& parameters) {
  return std::ranges::all_of(parameters, [](const Parameter& parameter) {
    return parameter.passing == Parameter::Passing::rest ||
           parameter.passing == Parameter::Passing::keywords;
  });
}

void set(std::vector<Member>& members, Name name, Value value) {
  const auto found = std::ranges::find(members, name, &Member::name);
  if (found != members.end()) {
    found->value = value;
  } else {
    members.push_back({name, value});
  }
}

}  // namespace

Words::Words(Values& values)
    : stage(values.name("meta_vars.stage")),
      step(values.name("meta_vars.step")),
      data_id(values.name("_TRAINCHECK_data_ID")) {}

Trace::Trace(Shared& common, Records& all) : shared(common), records(all), words(common.values) {
  apply_columns(records);
  fill_stages();
  const Name mode = values().name("mode");
  tracked = std::ranges::any_of(
      records.records, [mode](const Record& record) { return record.field(mode).present(); });
  drop_incomplete(*this);
}

void Trace::fill_stages() {
  const auto staged = std::ranges::any_of(
      records.records, [&](const Record& record) { return record.field(words.stage).present(); });
  if (!staged) return;
  const Value first = values().string("init");
  for (Record& record : records.records) {
    Value stage = record.field(words.stage);
    if (!stage.present()) {
      stage = first;
      record.fields.push_back({words.stage, first});
    }
    const auto same = [&](Value known) { return values().equal(known, stage); };
    if (std::ranges::none_of(stages, same)) stages.push_back(stage);
  }
}

bool Trace::skipped(Name function) {
  const auto [entry, added] = skipped_.try_emplace(function, false);
  if (added) {
    const std::string_view text = values().text(function);
    entry->second =
        std::ranges::any_of(kSkipped, [text](std::string_view part) { return has(text, part); });
  }
  return entry->second;
}

bool Trace::is_tensor(Value typed) {
  if (typed.kind != Kind::object || values().members(typed).empty()) return false;
  const Name type = values().members(typed)[0].name;
  const auto [entry, added] = tensors_.try_emplace(type, false);
  if (added) {
    const std::string_view text = values().text(type);
    entry->second =
        (text.starts_with("torch.") && has(text.substr(6), "Tensor")) || has(text, "Parameter");
  }
  return entry->second;
}

std::vector<Member> Trace::bound(const Record& pre, bool with_defaults) {
  std::vector<Member> out;
  if (pre.kwargs.kind == Kind::object) {
    const auto members = values().members(pre.kwargs);
    out.assign(members.begin(), members.end());
  }
  const std::vector<Parameter>* parameters = shared.signatures.find(pre.function);
  if (parameters == nullptr || only_rest(*parameters)) return out;
  if (pre.args.kind == Kind::object) {
    for (const Member& argument : values().members(pre.args)) {
      const std::string_view text = values().text(argument.name);
      std::size_t place = parameters->size();
      std::from_chars(text.data(), text.data() + text.size(), place);
      if (place < parameters->size()) {
        set(out, (*parameters)[place].name, argument.value);
      } else {
        ++tolerated.unknown_arguments;
      }
    }
  }
  if (!with_defaults) return out;
  for (const Parameter& parameter : *parameters) {
    const bool given = std::ranges::find(out, parameter.name, &Member::name) != out.end();
    if (!given && parameter.fallback.present()) out.push_back({parameter.name, parameter.fallback});
  }
  return out;
}

}  // namespace ttrace::invariant::compat
