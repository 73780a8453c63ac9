// SPDX-License-Identifier: Apache-2.0
#include "invariant/signature.hpp"

#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "invariant/json_text.hpp"
#include "libttrace/file.hpp"

namespace ttrace::invariant {

namespace {

constexpr std::string_view manager_mark = "@class";
constexpr std::string_view letters = "PNVKW";  // in the order of Parameter::Passing

Trouble no_table(const std::filesystem::path& file, const std::string& why) {
  return {"no table of signatures", file.string(),
          why + "; write one with `python3 -m ttrace_agent.signatures TRACE... > signatures.json`"};
}

std::optional<Parameter::Passing> passing_of(std::string_view letter) {
  if (letter == "P") return Parameter::Passing::positional;
  if (letter == "N") return Parameter::Passing::either;
  if (letter == "V") return Parameter::Passing::rest;
  if (letter == "K") return Parameter::Passing::keyword;
  if (letter == "W") return Parameter::Passing::keywords;
  return std::nullopt;
}

// nullopt: not as it should be.
std::optional<std::vector<Parameter>> parameters_of(Value list, const Values& values) {
  if (list.kind != Kind::list) return std::nullopt;
  std::vector<Parameter> parameters;
  for (const Value entry : values.elements(list)) {
    const std::span<const Value> parts = values.elements(entry);
    if (parts.size() < 2 || parts[0].kind != Kind::string) return std::nullopt;
    const std::optional<Parameter::Passing> passing = passing_of(values.text(parts[1]));
    if (!passing) return std::nullopt;
    parameters.push_back({parts[0].ref, *passing, parts.size() > 2 ? parts[2] : Value{}});
  }
  return parameters;
}

}  // namespace

Signatures Signatures::read(const std::filesystem::path& file, Values& values) {
  JsonFault fault;
  const std::optional<Value> table = parse_json(read_text(file), values, &fault);
  if (!table) {
    throw no_table(file, "at byte " + std::to_string(fault.at + 1) + " it " + fault.why);
  }
  if (table->kind != Kind::object) throw no_table(file, "it is no JSON object");
  Signatures signatures;
  for (const Member& member : values.members(*table)) {
    if (member.value.kind == Kind::none) continue;
    const std::string name(values.text(member.name));
    std::optional<std::vector<Parameter>> parameters = parameters_of(member.value, values);
    if (!parameters) {
      throw no_table(file, "'" + name +
                               "' has no list of [name, one of P N V K W, and perhaps a "
                               "default]");
    }
    if (name.ends_with(manager_mark)) {
      const Name init = values.name(name.substr(0, name.size() - manager_mark.size()));
      signatures.managers_.emplace(init, std::move(*parameters));
    } else {
      signatures.functions_.emplace(member.name, std::move(*parameters));
    }
  }
  return signatures;
}

bool Signatures::add(Name function, Value list, const Values& values) {
  std::optional<std::vector<Parameter>> parameters = parameters_of(list, values);
  if (!parameters) return list.kind == Kind::none;
  if (values.text(function).ends_with(".__init__")) managers_.emplace(function, *parameters);
  functions_.emplace(function, std::move(*parameters));
  return true;
}

void Signatures::write(const std::filesystem::path& file, const Values& values) const {
  std::map<std::string, std::string> rows;
  const auto describe = [&](const std::vector<Parameter>& parameters) {
    std::string text;
    for (const Parameter& parameter : parameters) {
      text += text.empty() ? "[" : ", [";
      append_json_string(text, values.text(parameter.name));
      text += std::string(", \"") + letters[static_cast<std::size_t>(parameter.passing)] + "\"";
      if (parameter.fallback.present()) text += ", " + to_json(values, parameter.fallback);
      text += "]";
    }
    return "[" + text + "]";
  };
  for (const auto& [name, parameters] : functions_) {
    rows[std::string(values.text(name))] = describe(parameters);
  }
  for (const auto& [name, parameters] : managers_) {
    rows[std::string(values.text(name)) + std::string(manager_mark)] = describe(parameters);
  }
  std::string text;
  for (const auto& [name, row] : rows) {
    text += text.empty() ? "" : ",\n";
    append_json_string(text, name);
    text += ": " + row;
  }
  std::ofstream out(file, std::ios::binary);
  out << "{\n" << text << "\n}\n";
  out.close();
  if (!out) throw Trouble("write", file.string(), "failed; is there space?");
}

void Signatures::adopt(const Signatures& others) {
  functions_.insert(others.functions_.begin(), others.functions_.end());
  managers_.insert(others.managers_.begin(), others.managers_.end());
}

const std::vector<Parameter>* Signatures::find(Name function) const {
  const auto found = functions_.find(function);
  return found == functions_.end() ? nullptr : &found->second;
}

const std::vector<Parameter>* Signatures::find_manager(Name init) const {
  const auto found = managers_.find(init);
  return found == managers_.end() ? nullptr : &found->second;
}

}  // namespace ttrace::invariant
