// SPDX-License-Identifier: Apache-2.0
// What rows refer to: definitions, functions and meta variables.
#include <string>
#include <utility>
#include <vector>

#include "invariant/events_file.hpp"
#include "invariant/events_values.hpp"

namespace ttrace::invariant {

namespace {

constexpr const char* kUnknownValue = "holds a value of a kind that this ttrace does not know";

}  // namespace

void EventsFile::define(const Block& block, Values& values) {
  if (block.tag != definitions_.size()) {
    blocks_.damaged("begins with definition " + std::to_string(block.tag) + ", after " +
                    std::to_string(definitions_.size()) + " of them: a block is missing");
  }
  std::string_view bytes = block.payload;
  while (!bytes.empty()) {
    Definition definition;
    if (!take_value(bytes, values, definition.value)) blocks_.damaged(kUnknownValue);
    if (definition.value.kind == Kind::list) {
      // Arguments are a list of positional ones and an object; results are never lists of lists.
      const std::span<const Value> parts = values.elements(definition.value);
      if (parts.size() == 2 && parts[0].kind == Kind::list && parts[1].kind == Kind::object) {
        std::vector<Member> members;
        std::size_t place = 0;
        for (const Value value : values.elements(parts[0])) {  // none: not recorded
          const Name name = values.name(std::to_string(place++));
          if (value.kind != Kind::none) members.push_back({name, value});
        }
        definition.args = values.object(members);
        definition.kwargs = parts[1];
      }
    }
    definitions_.push_back(std::move(definition));
  }
}

EventsFile::Definition* EventsFile::definition(std::int64_t number) {
  const auto place = static_cast<std::size_t>(number);
  if (number < 0 || place >= definitions_.size()) return nullptr;
  return &definitions_[place];
}

void EventsFile::add_functions(const Block& block, Records& records) {
  Values& values = records.values;
  std::string_view bytes = block.payload;
  while (!bytes.empty()) {
    Value found;
    if (!take_value(bytes, values, found)) blocks_.damaged(kUnknownValue);
    const std::span<const Value> parts =
        found.kind == Kind::list ? values.elements(found) : std::span<const Value>();
    if (parts.size() < 3 || parts[0].kind != Kind::integer || parts[1].kind != Kind::string) {
      blocks_.damaged(kUnknownValue);
    }
    if (parts.size() > 3) records.signatures.add(parts[1].ref, parts[3], values);
    functions_[parts[0].integer] = {parts[1], parts[2].kind == Kind::boolean && parts[2].boolean};
  }
}

void EventsFile::add_meta(const Block& block, Values& values) {
  std::string_view bytes = block.payload;
  Value found;
  if (!take_value(bytes, values, found) || found.kind != Kind::object) {
    blocks_.damaged(kUnknownValue);
  }
  set_step(values.member(found, values.name("step")));
  if (rows_since_meta_) {  // none of the rows to come is older than the last
    metas_.erase(metas_.begin(), metas_.end() - (metas_.empty() ? 0 : 1));
    rows_since_meta_ = false;
  }
  if (block.tag == 0) metas_.clear();
  Meta& meta = metas_.emplace_back();
  meta.since = static_cast<std::int64_t>(block.tag);
  meta.step = step_;
  const std::span<const Member> members = values.members(found);
  std::vector<Member> kept(members.begin(), members.end());
  for (const Member& member : kept) {
    const std::string column = "meta_vars." + std::string(values.text(member.name));
    meta.fields.push_back({values.name(column), member.value});
  }
}

// Steps come one by one.
void EventsFile::set_step(Value step) {
  if (step.kind != Kind::integer) return;
  if (step_ && (step.integer < *step_ || step.integer > *step_ + 1)) {
    blocks_.damaged("begins step " + std::to_string(step.integer) + " after step " +
                    std::to_string(*step_) + ": a block is missing");
  }
  step_ = step.integer;
}

}  // namespace ttrace::invariant
