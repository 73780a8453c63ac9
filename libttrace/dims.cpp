// SPDX-License-Identifier: Apache-2.0
// Layouts as text: dims strings and the JSON objects around them (docs/layouts.md has the grammar).
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"

namespace ttrace {
namespace {

bool is_name_char(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') ||
         std::string_view("_-.*/'").find(c) != std::string_view::npos;
}

// Recursive descent over
//   layout := (entry (space+ entry)*)?
//   entry := "partial(" axis ("," axis)* ")" | "swap(" number "," number ")" | dim
//   dim := name? "[" cut ("," cut)* "]" | name
//   cut := axis (":" ("zigzag" sections? | "ragged" | "/" number | sections))?
//   sections := "(" (number ("," number)* | "@" name) ")"
class DimsParser {
 public:
  explicit DimsParser(std::string_view text) : text_(text) {}

  Layout parse() {
    skip_spaces();
    while (at_ < text_.size()) {
      parse_entry();
      if (at_ < text_.size() && text_[at_] != ' ') fail("expected a space or the end");
      skip_spaces();
    }
    if (layout_.swapped && layout_.swapped->second >= layout_.dims.size()) {
      fail("there are no such dimensions to swap");
    }
    return std::move(layout_);
  }

 private:
  void parse_entry() {
    const std::string name = take_name();
    if (name == "partial" && take('(')) return parse_partial();
    if (name == "swap" && take('(')) return parse_swap();
    const bool cut = take('[');
    if (name.empty() && !cut) fail("expected a dimension: a name, \"-\" or \"[\"");
    layout_.dims.emplace_back();
    if (!cut) return;
    do layout_.dims.back().push_back(parse_cut());
    while (take(','));
    if (!take(']')) fail("expected \",\" or \"]\"");
  }

  void parse_partial() {
    do layout_.partial.push_back(take_axis());
    while (take(','));
    if (!take(')')) fail("expected \",\" or \")\"");
  }

  void parse_swap() {
    const std::size_t one = take_number();
    if (!take(',')) fail("expected \",\"");
    const std::size_t other = take_number();
    if (!take(')')) fail("expected \")\"");
    if (one == other) fail("a dimension cannot be swapped with itself");
    layout_.swapped = {std::min(one, other), std::max(one, other)};
  }

  Cut parse_cut() {
    Cut cut;
    cut.axis = take_axis();
    if (!take(':')) return cut;
    if (take('/')) {
      cut.kind = CutKind::strided;
      cut.parts = take_count();
    } else if (take('(')) {
      cut.kind = CutKind::sections;
      parse_sections(cut);
    } else if (text_.substr(at_, 4) == "flat") {
      fail("a flat range is no cut of a dimension, it stands beside the dims");
    } else if (text_.substr(at_, 6) == "zigzag") {
      cut.kind = CutKind::zigzag;
      at_ += 6;
      if (take('(')) parse_sections(cut);
    } else if (text_.substr(at_, 6) == "ragged") {
      cut.kind = CutKind::ragged;
      at_ += 6;
    } else {
      fail("expected \"zigzag\", \"ragged\", \"/\" and a number, or \"(\"");
    }
    return cut;
  }

  // Behind "(".
  void parse_sections(Cut& cut) {
    if (take('@')) {
      cut.documents = take_name();
      if (cut.documents.empty()) fail("expected the name of an input, like input.cu_seqlens");
      if (!take(')')) fail("expected \")\"");
      return;
    }
    do cut.sections.push_back(take_count());
    while (take(','));
    if (!take(')')) fail("expected \",\" or \")\"");
  }

  // An axis can cut or stay to be summed once; twice would leave elements that no rank holds.
  std::string take_axis() {
    const std::size_t start = at_;
    std::string axis = take_name();
    if (axis.empty()) fail("expected the name of a mesh axis");
    if (std::find(axes_.begin(), axes_.end(), axis) != axes_.end()) {
      at_ = start;
      fail("the axis " + axis + " is used twice");
    }
    axes_.push_back(axis);
    return axis;
  }

  std::string take_name() {
    const std::size_t start = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  std::uint64_t take_number() {
    std::uint64_t value = 0;
    const char* first = text_.data() + at_;
    const auto [stop, error] = std::from_chars(first, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected a number");
    at_ += static_cast<std::size_t>(stop - first);
    return value;
  }

  std::uint64_t take_count() {
    const std::size_t start = at_;
    const bool digit = at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
    const std::uint64_t value = digit ? take_number() : 0;
    if (value == 0) {
      at_ = start;
      fail("expected a number from 1");
    }
    return value;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip_spaces() {
    while (take(' ')) {
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Trouble("dims", "\"" + std::string(text_) + "\", column " + std::to_string(at_ + 1), why);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Layout layout_;
  std::vector<std::string> axes_;
};

template <class Values, class Print>
std::string join(const Values& values, const char* separator, Print print) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : separator) + print(value);
  return text;
}

std::string sections_text(const Cut& cut) {
  const auto number = [](std::uint64_t value) { return std::to_string(value); };
  return "(" + (cut.documents.empty() ? join(cut.sections, ",", number) : "@" + cut.documents) +
         ")";
}

std::string cut_text(const Cut& cut) {
  const bool sections = !cut.sections.empty() || !cut.documents.empty();
  switch (cut.kind) {
    case CutKind::shard:
      return cut.axis;
    case CutKind::zigzag:
      return cut.axis + ":zigzag" + (sections ? sections_text(cut) : "");
    case CutKind::ragged:
      return cut.axis + ":ragged";
    case CutKind::strided:
      return cut.axis + ":/" + std::to_string(cut.parts);
    case CutKind::sections:
      return cut.axis + ":" + sections_text(cut);
  }
  __builtin_unreachable();
}

std::string dim_text(const std::vector<Cut>& cuts) {
  return cuts.empty() ? "-" : "[" + join(cuts, ",", cut_text) + "]";
}

[[noreturn]] void refuse_json(std::string_view json, const std::string& why) {
  const std::string shown(json.substr(0, 120));
  throw Trouble("layout", shown + (json.size() > shown.size() ? "..." : ""), why);
}

// nlohmann would turn -1 and 1.5 into numbers that look right.
std::uint64_t count_from(const nlohmann::json& value) {
  if (!value.is_number_unsigned()) {
    throw Trouble("layout", value.dump(), "expected a number that is not negative");
  }
  return value.get<std::uint64_t>();
}

Shape shape_from(const nlohmann::json& list) {
  Shape shape;
  for (const nlohmann::json& extent : list) shape.push_back(count_from(extent));
  return shape;
}

Layout layout_from_object(const nlohmann::json& object) {
  Layout layout = parse_dims(object.at("dims").get_ref<const std::string&>());
  if (object.contains("shape")) layout.global_shape = shape_from(object.at("shape"));
  if (object.contains("flat")) {
    const nlohmann::json& flat = object.at("flat");
    layout.flat = FlatRange{shape_from(flat.at("shape")), count_from(flat.at("start")),
                            count_from(flat.at("count"))};
  }
  if (object.contains("axes")) layout.axes = object.at("axes").get<std::vector<std::string>>();
  layout.source = object.value("source", "");
  return layout;
}

}  // namespace

Layout parse_dims(std::string_view text) { return DimsParser(text).parse(); }

std::string to_string(const Layout& layout) {
  std::string text = join(layout.dims, " ", dim_text);
  if (layout.swapped) {
    text += " swap(" + std::to_string(layout.swapped->first) + "," +
            std::to_string(layout.swapped->second) + ")";
  }
  if (layout.partial.empty()) return text;
  const auto itself = [](const std::string& axis) { return axis; };
  return text + (text.empty() ? "" : " ") + "partial(" + join(layout.partial, ",", itself) + ")";
}

Layout layout_from_json(std::string_view json) {
  Layout layout;
  try {
    layout = layout_from_object(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    refuse_json(json, error.what());
  }
  if (layout.global_shape && layout.global_shape->size() != layout.dims.size()) {
    refuse_json(json, "\"dims\" and \"shape\" have different numbers of dimensions");
  }
  if (layout.flat && layout.flat->shape.size() != layout.dims.size()) {
    refuse_json(json, "\"dims\" and the shape of \"flat\" have different numbers of dimensions");
  }
  return layout;
}

std::string layout_to_json(const Layout& layout) {
  nlohmann::ordered_json object;
  object["dims"] = to_string(layout);
  if (layout.global_shape) object["shape"] = *layout.global_shape;
  if (layout.flat) {
    object["flat"] = {{"shape", layout.flat->shape},
                      {"start", layout.flat->start},
                      {"count", layout.flat->count}};
  }
  if (!layout.axes.empty()) object["axes"] = layout.axes;
  if (!layout.source.empty()) object["source"] = layout.source;
  return object.dump();
}

}  // namespace ttrace
