// SPDX-License-Identifier: Apache-2.0
#include "tools/rules.hpp"

#include "tools/cli.hpp"

namespace ttrace {

std::vector<LayoutRule> rules_for(const std::string& file,
                                  const std::vector<const Trace*>& traces) {
  if (file.empty()) return {};
  std::vector<LayoutRule> rules = read_layout_rules(file);
  for (const std::string& complaint : idle_rules(rules, traces)) note(complaint);
  return rules;
}

}  // namespace ttrace
