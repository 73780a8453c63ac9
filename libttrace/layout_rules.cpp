// SPDX-License-Identifier: Apache-2.0
// The rules of a --layout FILE (docs/layouts.md): which keys a dims string is for.
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>

#include "libttrace/core/trouble.hpp"
#include "libttrace/logical.hpp"
#include "libttrace/microbatch_inputs.hpp"

namespace ttrace {
namespace {

// One line, split into words; a word in double quotes keeps its spaces and may be empty.
class RuleLine {
 public:
  RuleLine(std::string line, std::string where)
      : line_(std::move(line)), where_(std::move(where)) {}

  // The next word, nullopt at the end of the line or at a comment.
  std::optional<std::string> next() {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
    if (at_ == line_.size() || line_[at_] == '#') return std::nullopt;
    if (line_[at_] == '"') {
      const std::size_t close = line_.find('"', at_ + 1);
      if (close == std::string::npos) fail("a quote is not closed");
      const std::string word = line_.substr(at_ + 1, close - at_ - 1);
      at_ = close + 1;
      if (at_ < line_.size() && !is_blank(line_[at_])) fail("expected a space after the quote");
      return word;
    }
    const std::size_t start = at_;
    while (at_ < line_.size() && !is_blank(line_[at_])) ++at_;
    return line_.substr(start, at_ - start);
  }

  [[noreturn]] void fail(const std::string& why) const { throw Trouble("layout", where_, why); }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

  std::string line_;
  std::string where_;
  std::size_t at_ = 0;
};

// "256x64"; nullopt when `word` is no shape.
std::optional<Shape> shape_from(const std::string& word) {
  Shape shape;
  const char* at = word.data();
  const char* const end = word.data() + word.size();
  while (true) {
    std::uint64_t extent = 0;
    const auto [stop, error] = std::from_chars(at, end, extent);
    if (error != std::errc()) return std::nullopt;
    shape.push_back(extent);
    if (stop == end) return shape;
    if (*stop != 'x') return std::nullopt;
    at = stop + 1;
  }
}

std::optional<LayoutRule> parse_rule(RuleLine line) {
  const std::optional<std::string> pattern = line.next();
  if (!pattern) return std::nullopt;
  const std::optional<std::string> dims = line.next();
  if (!dims) line.fail("expected a dims string after the name");
  LayoutRule rule{*pattern, {}, *dims == "?", {}};
  if (rule.undeclared) {
    if (line.next()) line.fail("unexpected text after \"?\"");
    return rule;
  }
  try {
    rule.layout = parse_dims(*dims);
  } catch (const Trouble& trouble) {
    line.fail(trouble.what());
  }
  rule.layout.source = "file";
  if (const std::optional<std::string> word = line.next()) {
    rule.layout.global_shape = shape_from(*word);
    if (!rule.layout.global_shape) {
      line.fail("\"" + *word + "\" is no shape like 256x64; dims with spaces need quotes");
    }
    if (rule.layout.global_shape->size() != rule.layout.dims.size()) {
      line.fail("the dims and the shape have different numbers of dimensions");
    }
  }
  if (line.next()) line.fail("unexpected text after the shape; dims with spaces need quotes");
  return rule;
}

}  // namespace

std::vector<LayoutRule> read_layout_rules(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Trouble("layout", path, "cannot be read, check the name given to --layout");
  std::vector<LayoutRule> rules;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    const std::string where = path + ", line " + std::to_string(number);
    if (auto rule = parse_rule({line, where})) {
      rules.push_back(std::move(*rule));
      rules.back().where = where;
    }
  }
  if (file.bad()) throw Trouble("layout", path, "reading failed");
  return rules;
}

const LayoutRule* find_rule(const std::vector<LayoutRule>& rules, const Key& key) {
  const std::string full = std::string(name_of(key.phase)) + "/" + key.module + "/" + key.slot;
  for (const LayoutRule& rule : rules) {
    const bool of_module = rule.pattern.find('/') == std::string::npos;
    const std::string& name = of_module ? key.module : full;
    if (fnmatch(rule.pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0) return &rule;
  }
  return nullptr;
}

namespace {

// The first that no rank of the traces has.
std::optional<std::string> unknown_axis(const Layout& layout, const std::set<std::string>& known) {
  std::vector<std::string> axes = layout.partial;
  for (const std::vector<Cut>& cuts : layout.dims) {
    for (const Cut& cut : cuts) axes.push_back(cut.axis);
  }
  for (const std::string& axis : axes) {
    if (known.count(axis.substr(0, axis.find('/'))) == 0) return axis;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> idle_rules(const std::vector<LayoutRule>& rules,
                                    const std::vector<const Trace*>& traces) {
  std::set<const LayoutRule*> used;
  std::set<std::string> axes;
  for (const Trace* trace : traces) {
    for (const auto& [rank, where] : places_of_ranks(*trace)) {
      for (const auto& [axis, position] : where) axes.insert(axis);
    }
    for (const RankInfo& rank : trace->ranks()) {
      if (used.size() == rules.size()) continue;
      for (const std::int64_t iteration : rank.iterations) {
        for (const Record& record : trace->segment(rank.rank, iteration)->records()) {
          if (const LayoutRule* rule = find_rule(rules, record.key)) used.insert(rule);
        }
      }
    }
  }
  std::vector<std::string> complaints;
  std::string all;
  for (const std::string& axis : axes) all += (all.empty() ? "" : ", ") + axis;
  for (const LayoutRule& rule : rules) {
    if (used.count(&rule) == 0) {
      complaints.push_back(rule.where + ": \"" + rule.pattern +
                           "\" matches no tensor that an earlier rule does not; names are a "
                           "module's or phase/module/slot, without it0/mb0");
    } else if (const auto axis = unknown_axis(rule.layout, axes)) {
      complaints.push_back(rule.where + ": no rank has an axis \"" + *axis + "\"; axes are " +
                           (all.empty() ? "not recorded" : all));
    }
  }
  return complaints;
}

}  // namespace ttrace
