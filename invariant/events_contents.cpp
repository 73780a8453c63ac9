// SPDX-License-Identifier: Apache-2.0
#include "invariant/events_contents.hpp"

#include <algorithm>
#include <vector>

namespace ttrace::invariant {

namespace {

std::vector<Member> members_of(const Values& values, Value object) {
  if (object.kind != Kind::object) return {};
  const std::span<const Member> members = values.members(object);
  return {members.begin(), members.end()};
}

}  // namespace

Value with_contents(Values& values, Value arguments, std::span<const Content> known) {
  std::vector<Member> members = members_of(values, arguments);
  bool any = false;
  for (Member& member : members) {
    const auto content = std::ranges::find(known, member.name, &Content::argument);
    std::vector<Member> typed = members_of(values, member.value);
    if (content == known.end() || typed.size() != 1) continue;
    if (typed[0].value.kind != Kind::object) continue;
    std::vector<Member> attributes = members_of(values, typed[0].value);
    attributes.push_back({values.name("data"), integer(content->hash)});
    typed[0].value = values.object(attributes);
    member.value = values.object(typed);
    any = true;
  }
  return any ? values.object(members) : arguments;
}

}  // namespace ttrace::invariant
