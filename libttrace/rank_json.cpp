// SPDX-License-Identifier: Apache-2.0
// A Node is a JSON value that knows where it stands, so that every complaint can say
// "member axes[0].size is not an integer".
#include "libttrace/rank_json.hpp"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

using Json = nlohmann::json;

class Node {
 public:
  Node(const Json& value, std::string place, const std::filesystem::path& file)
      : value_(value), place_(std::move(place)), file_(file) {}

  // `what` completes the sentence "member X ...".
  [[noreturn]] void fail(const std::string& what) const {
    throw Trouble("cannot read trace", file_.string(),
                  (place_.empty() ? "the document " : "member " + place_ + ' ') + what);
  }

  [[nodiscard]] bool has(const char* name) const {
    return object().contains(name) && !value_[name].is_null();
  }
  [[nodiscard]] Node at(const std::string& name) const {
    const std::string place = place_.empty() ? name : place_ + '.' + name;
    const auto found = object().find(name);
    if (found == value_.end()) Node(value_, place, file_).fail("is missing");
    return {*found, place, file_};
  }

  [[nodiscard]] std::string string() const {
    if (!value_.is_string()) fail("is not a string");
    return value_.get<std::string>();
  }
  [[nodiscard]] bool boolean() const {
    if (!value_.is_boolean()) fail("is not true or false");
    return value_.get<bool>();
  }
  [[nodiscard]] std::uint64_t count() const {
    if (!value_.is_number_unsigned()) fail("is not a whole number from 0");
    return value_.get<std::uint64_t>();
  }
  [[nodiscard]] std::int32_t number() const {
    const std::uint64_t value = count();
    if (value > std::numeric_limits<std::int32_t>::max()) fail("is too large");
    return static_cast<std::int32_t>(value);
  }
  [[nodiscard]] bool is_list() const { return value_.is_array(); }
  [[nodiscard]] bool is_null() const { return value_.is_null(); }
  // False and true are 0 and 1.
  [[nodiscard]] double real() const {
    if (value_.is_boolean()) return value_.get<bool>() ? 1 : 0;
    if (!value_.is_number()) fail("is not a number");
    return value_.get<double>();
  }
  [[nodiscard]] std::string dump() const { return object().dump(); }

  template <class Visit>
  void each_member(Visit visit) const {
    for (const auto& [name, value] : object().items()) {
      visit(name, Node(value, place_ + '[' + Json(name).dump() + ']', file_));
    }
  }
  template <class Visit>
  void each_element(Visit visit) const {
    if (!value_.is_array()) fail("is not a list");
    for (std::size_t i = 0; i < value_.size(); ++i) {
      visit(Node(value_[i], place_ + '[' + std::to_string(i) + ']', file_));
    }
  }

 private:
  const Json& object() const {
    if (!value_.is_object()) fail("is not an object");
    return value_;
  }

  const Json& value_;
  std::string place_;
  const std::filesystem::path& file_;
};

Json parse(const std::string& text, const std::filesystem::path& file) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    std::string detail = error.what();  // "[json.exception...] parse error at line ..., ...: ..."
    detail = detail.substr(detail.find("] ") + 2);
    throw Trouble("cannot read trace", file.string(),
                  "malformed JSON at byte " + std::to_string(error.byte) + " (" + detail + ')');
  }
}

void check_format(const Node& document, const char* format) {
  if (document.at("format").string() != format) {
    document.at("format").fail(std::string("is not \"") + format + '"');
  }
  const std::uint64_t version = document.at("version").count();
  if (version > kSegmentVersion) {
    document.at("version").fail("is " + std::to_string(version) + ", this ttrace reads up to " +
                                std::to_string(kSegmentVersion) + "; use a newer ttrace");
  }
}

std::string optional_string(const Node& object, const char* name) {
  return object.has(name) ? object.at(name).string() : "";
}

bool optional_boolean(const Node& object, const char* name, bool otherwise) {
  return object.has(name) ? object.at(name).boolean() : otherwise;
}

std::uint64_t optional_count(const Node& object, const char* name, std::uint64_t otherwise) {
  return object.has(name) ? object.at(name).count() : otherwise;
}

void read_axes(const Node& list, RankInfo& info) {
  list.each_element([&](const Node& axis) {
    const std::string name = axis.at("name").string();
    const AxisPosition position{.coord = axis.at("coord").count(), .size = axis.at("size").count()};
    if (position.coord >= position.size) axis.at("coord").fail("is not below the size");
    if (!info.axes.emplace(name, position).second) axis.at("name").fail("appears twice");
    info.axis_order.push_back(name);
    if (axis.has("kind")) info.axis_kinds[name] = axis.at("kind").string();
  });
}

ModuleInfo read_module(const Node& object) {
  ModuleInfo module;
  module.class_name = optional_string(object, "class");
  module.location = optional_string(object, "forward");
  module.expected = optional_boolean(object, "expected", true);
  module.calls = optional_count(object, "calls", 0);
  module.returned_tensor = optional_boolean(object, "returned_tensor", false);
  return module;
}

ParameterInfo read_parameter(const Node& object) {
  ParameterInfo parameter;
  object.at("shape").each_element(
      [&](const Node& extent) { parameter.shape.push_back(extent.count()); });
  const Node name = object.at("dtype");
  const std::optional<DType> dtype = dtype_from_name(name.string());
  if (!dtype) name.fail("is not a type this ttrace knows");
  parameter.dtype = *dtype;
  parameter.trainable = optional_boolean(object, "trainable", true);
  if (object.has("layout")) parameter.layout_json = object.at("layout").dump();
  return parameter;
}

std::int64_t read_steps(const Node& steps) {
  return steps.is_null() ? -1 : static_cast<std::int64_t>(steps.count());
}

RunningCall read_running(const Node& object) {
  RunningCall call;
  call.group = object.at("group").string();
  call.member = static_cast<std::int32_t>(object.at("member").count());
  call.sequence = object.at("sequence").count();
  call.seconds = object.at("seconds").real();
  return call;
}

UpdateGroup read_update(const Node& object) {
  UpdateGroup group;
  group.optimizer = object.at("class").string();
  object.at("values").each_member([&](const std::string& name, const Node& value) {
    if (!value.is_list()) {
      group.values[name] = value.real();
      return;
    }
    std::size_t number = 0;
    value.each_element([&](const Node& entry) {
      group.values[name + '.' + std::to_string(number++)] = entry.real();
    });
  });
  object.at("parameters").each_element([&](const Node& name) {
    group.parameters.push_back(name.string());
  });
  const Node steps = object.at("steps");
  if (steps.is_list()) {
    steps.each_element([&](const Node& entry) { group.steps.push_back(read_steps(entry)); });
    if (group.steps.size() != group.parameters.size()) steps.fail("has not one entry a parameter");
  } else {
    group.steps.assign(group.parameters.size(), read_steps(steps));
  }
  return group;
}

void read_updates(const Node& updates, RankInfo& info) {
  updates.each_member([&](const std::string& name, const Node& groups) {
    std::int64_t iteration = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), iteration);
    if (error != std::errc() || end != name.data() + name.size()) groups.fail("is of no iteration");
    groups.each_element(
        [&](const Node& group) { info.updates[iteration].push_back(read_update(group)); });
  });
}

Event read_event(const Node& object) {
  Event event;
  event.what = optional_string(object, "what");
  event.where = optional_string(object, "where");
  event.why = optional_string(object, "why");
  event.count = optional_count(object, "count", 1);
  return event;
}

// options.iterations, a list of firsts and lasts.
std::optional<Intervals> wanted_iterations(const Json& document) {
  const auto place = Json::json_pointer("/options/iterations");
  if (!document.contains(place) || !document.at(place).is_array()) return std::nullopt;
  Intervals wanted;
  for (const Json& ends : document.at(place)) {
    if (!ends.is_array() || ends.size() != 2 || !ends[0].is_number_integer()) return std::nullopt;
    const bool endless = !ends[1].is_number_integer();
    wanted.emplace_back(ends[0].get<std::int64_t>(),
                        endless ? kEndless : ends[1].get<std::int64_t>());
  }
  return wanted;
}

}  // namespace

TraceDocument parse_trace_json(const std::string& text, const std::filesystem::path& file) {
  const Json json = parse(text, file);
  const Node document(json, "", file);
  check_format(document, "ttrace-trace");
  return {.run_id = optional_string(document, "run_id"),
          .logical = optional_boolean(document, "logical", false),
          .iterations = wanted_iterations(json)};
}

RankDocument parse_rank_json(const std::string& text, const std::filesystem::path& file) {
  const Json json = parse(text, file);
  const Node document(json, "", file);
  check_format(document, "ttrace-rank");

  RankDocument out;
  out.run_id = optional_string(document, "run_id");
  out.host = optional_string(document, "host");
  if (document.has("writer_pid")) out.writer_pid = document.at("writer_pid").number();
  RankInfo& info = out.info;
  info.rank = document.at("rank").number();
  info.world_size = document.at("world_size").number();
  info.degraded = optional_boolean(document, "degraded", false);
  if (document.has("axes")) read_axes(document.at("axes"), info);
  info.axes_guessed = optional_boolean(document, "axes_guessed", false);
  if (document.has("merged")) {
    document.at("merged").each_member([&](const std::string& name, const Node& size) {
      info.merged.emplace(name, size.count());
    });
  }
  if (document.has("groups")) {
    document.at("groups").each_member([&](const std::string& name, const Node& ranks) {
      std::vector<std::int32_t>& members = info.groups[name];
      ranks.each_element([&](const Node& rank) { members.push_back(rank.number()); });
    });
  }
  if (document.has("modules")) {
    document.at("modules").each_member([&](const std::string& name, const Node& module) {
      info.modules.emplace(name, read_module(module));
    });
  }
  if (document.has("parameters")) {
    document.at("parameters").each_member([&](const std::string& name, const Node& parameter) {
      info.parameters.emplace(name, read_parameter(parameter));
    });
  }
  if (document.has("updates")) read_updates(document.at("updates"), info);
  if (document.has("running")) {
    document.at("running").each_element(
        [&](const Node& call) { info.running.push_back(read_running(call)); });
  }
  if (document.has("events")) {
    document.at("events").each_element(
        [&](const Node& event) { info.events.push_back(read_event(event)); });
  }
  return out;
}

}  // namespace ttrace
