// SPDX-License-Identifier: Apache-2.0
// See hdf5_compare.hpp. Both graphs are walked at once, so that each pair of objects is met and
// compared once, by whatever paths and cycles it is reached. What lies in one piece in both files
// is handed to the crew, which compares it while the walk goes on.
#include "diff/hdf5_compare.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "diff/hdf5_datasets.hpp"
#include "diff/hdf5_elements.hpp"
#include "diff/hdf5_filter.hpp"
#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"
#include "libttrace/h5_sources.hpp"

namespace ttrace {
namespace {

using h5::Object;
using h5::ObjectKind;

constexpr const char* kWhat = "compare";

// What is still to be visited. Few objects are open at a time, whatever the number of siblings.
struct Pending {
  std::string path, name;
  PathFilter::State state;
  std::shared_ptr<const Object> reference, candidate;  // the groups it is in
};

// Objects of equal paths.
struct Place {
  std::string path;
  PathFilter::State state;
  std::shared_ptr<const Object> reference, candidate;
};

class Walk {
 public:
  Walk(Hdf5Side& reference, Hdf5Side& candidate, const Backend& backend, const Hdf5Options& options,
       Hdf5Report& report)
      : reference_(reference),
        candidate_(candidate),
        backend_(backend),
        options_(options),
        report_(report),
        filter_(options.filter),
        datasets_(reference, candidate, backend, options, report) {}

  void run() {
    std::vector<Pending> open;
    visit({"/", filter_.after(filter_.start(), "/"),
           std::make_shared<const Object>(reference_.root()),
           std::make_shared<const Object>(candidate_.root())},
          open);
    while (!open.empty()) {
      const Place place = open_pair(open.back());
      open.pop_back();
      visit(place, open);
    }
    datasets_.finish();
    check_mapped_files();
  }

 private:
  void visit(const Place& place, std::vector<Pending>& open) {
    const Object &left = *place.reference, &right = *place.candidate;
    if (was_compared(place)) return;
    if (left.kind != right.kind) {
      if (filter_.accepts(place.state)) {
        find("kind_differs", place.path,
             std::string(name_of(left.kind)) + " against " + name_of(right.kind));
      } else {
        look_into(kReference, place.path, place.state, place.reference);
        look_into(kCandidate, place.path, place.state, place.candidate);
      }
      return;
    }
    if (left.kind == ObjectKind::group) return visit_group(place, open);
    if (!filter_.accepts(place.state)) return;
    compare_attributes(place);
    if (left.kind == ObjectKind::dataset) return datasets_.compare(place.path, left, right);
    if (left.kind == ObjectKind::datatype) {
      ++report_.types;
      if (!h5::same_type(left, right)) find("dtype_differs", place.path, "the types differ");
      return;
    }
    ++report_.links;
    if (left.link != right.link) {
      find("not_equal", place.path, "links to nothing, of " + left.link + " against " + right.link);
    } else {
      note("dangling", place.path, "links to nothing in both files, to " + left.link);
    }
  }

  [[nodiscard]] Place open_pair(const Pending& at) const {
    const auto opened = [&](const Hdf5Side& side, const Object& group) {
      return std::make_shared<const Object>(h5::open_child(side.caller(), group, at.name));
    };
    return {at.path, at.state, opened(reference_, *at.reference),
            opened(candidate_, *at.candidate)};
  }

  // Under another path, from which the filter lets the same through.
  bool was_compared(const Place& place) {
    if (place.reference->kind == ObjectKind::dangling ||
        place.candidate->kind == ObjectKind::dangling) {
      return false;
    }
    return !seen_.insert({place.reference->identity, place.candidate->identity, place.state})
                .second;
  }

  void visit_group(const Place& place, std::vector<Pending>& open) {
    if (filter_.accepts(place.state)) {
      ++report_.groups;
      compare_attributes(place);
    }
    const auto left = h5::child_names(reference_.caller(), *place.reference);
    const auto right = h5::child_names(candidate_.caller(), *place.candidate);
    lone_children(kReference, place, left, right);
    lone_children(kCandidate, place, right, left);
    std::vector<std::string> common;
    std::set_intersection(left.begin(), left.end(), right.begin(), right.end(),
                          std::back_inserter(common));
    // Objects that are no groups are compared at once; groups are opened again when it is their
    // turn.
    std::vector<Pending> groups;
    for (const std::string& name : common) {
      Pending at{path_of(place.path, name), name, state_of(place.path, place.state, name),
                 place.reference, place.candidate};
      if (filter_.is_hopeless(at.state)) continue;
      const Place child = open_pair(at);
      const bool both =
          child.reference->kind == ObjectKind::group && child.candidate->kind == ObjectKind::group;
      if (both) {
        groups.push_back(std::move(at));
      } else {
        visit(child, open);
      }
    }
    std::move(groups.rbegin(), groups.rend(), std::back_inserter(open));
  }

  static std::string path_of(const std::string& group, const std::string& name) {
    return group == "/" ? "/" + name : group + "/" + name;
  }
  PathFilter::State state_of(const std::string& group, PathFilter::State state,
                             const std::string& name) {
    return filter_.after(state, group == "/" ? name : "/" + name);
  }

  struct Side {
    const char *kind, *name;
  };
  static constexpr Side kReference{"missing", "reference"}, kCandidate{"unexpected", "candidate"};

  [[nodiscard]] const h5::Caller& caller_of(const Side& side) const {
    return (&side == &kReference ? reference_ : candidate_).caller();
  }

  void lone_children(const Side& side, const Place& place, const std::vector<std::string>& names,
                     const std::vector<std::string>& others) {
    const auto& group = &side == &kReference ? place.reference : place.candidate;
    std::vector<std::string> alone;
    std::set_difference(names.begin(), names.end(), others.begin(), others.end(),
                        std::back_inserter(alone));
    for (const std::string& name : alone) {
      const PathFilter::State state = state_of(place.path, place.state, name);
      if (filter_.is_hopeless(state)) continue;
      const auto object =
          std::make_shared<const Object>(h5::open_child(caller_of(side), *group, name));
      lone(side, path_of(place.path, name), state, object);
    }
  }

  // What one file has at this path, or in this group, and the filter selects.
  void lone(const Side& side, const std::string& path, PathFilter::State state,
            const std::shared_ptr<const Object>& object) {
    if (!filter_.accepts(state)) return look_into(side, path, state, object);
    find(side.kind, path, std::string("a ") + name_of(object->kind) + " only in the " + side.name);
  }

  void look_into(const Side& side, const std::string& path, PathFilter::State state,
                 const std::shared_ptr<const Object>& object) {
    if (object->kind != ObjectKind::group) return;
    auto& seen = &side == &kReference ? seen_in_reference_ : seen_in_candidate_;
    if (!seen.insert({object->identity, state}).second) return;
    for (const std::string& name : h5::child_names(caller_of(side), *object)) {
      const PathFilter::State below = state_of(path, state, name);
      if (filter_.is_hopeless(below)) continue;
      const auto child =
          std::make_shared<const Object>(h5::open_child(caller_of(side), *object, name));
      lone(side, path_of(path, name), below, child);
    }
  }

  void compare_attributes(const Place& place) {
    const auto left = h5::attribute_names(reference_.caller(), *place.reference);
    const auto right = h5::attribute_names(candidate_.caller(), *place.candidate);
    std::set<std::string> all(left.begin(), left.end());
    all.insert(right.begin(), right.end());
    for (const std::string& name : all) {
      if (!std::binary_search(right.begin(), right.end(), name)) {
        find("attribute_missing", place.path, "only the reference has it", name);
      } else if (!std::binary_search(left.begin(), left.end(), name)) {
        find("attribute_unexpected", place.path, "only the candidate has it", name);
      } else {
        compare_attribute(place, name);
      }
    }
  }

  void compare_attribute(const Place& place, const std::string& name) {
    const h5::Attribute left = h5::read_attribute(reference_.caller(), *place.reference, name);
    const h5::Attribute right = h5::read_attribute(candidate_.caller(), *place.candidate, name);
    const auto differs = [&](const std::string& why) {
      find("attribute_differs", place.path, why, name);
    };
    ++report_.attributes;
    const std::string types = incomparable(left.type, right.type);
    if (!types.empty()) return differs(types);
    if (left.extent != right.extent) {
      return differs("shape " + extent_text(left.extent) + " against " + extent_text(right.extent));
    }
    const std::uint64_t count = left.values.size() / std::max<std::size_t>(left.type.size, 1);
    if (options_.limits.any() && within_limits(left, right, count)) return;
    const h5::References* left_references = reference_.references(*place.reference, left.type);
    const h5::References* right_references = candidate_.references(*place.candidate, right.type);
    for (std::uint64_t i = 0; i < count; ++i) {
      const ElementView one{left.type, left.values.data() + i * left.type.size, left_references};
      const ElementView other{right.type, right.values.data() + i * right.type.size,
                              right_references};
      if (equal_elements(one, other)) continue;
      return differs(element_text(one) + " against " + element_text(other) +
                     (count > 1 ? " at " + index_text(i, left.extent.shape) : ""));
    }
  }

  [[nodiscard]] bool within_limits(const h5::Attribute& left, const h5::Attribute& right,
                                   std::uint64_t count) const {
    constexpr auto kNumber = h5::ElementType::Kind::number;
    if (left.type.kind != kNumber || right.type.kind != kNumber || count == 0) return false;
    const auto type = comparison_type(left.type.number, right.type.number);
    if (!type || !is_floating(*type)) return false;
    NumberMetrics metrics;
    const RunPair run{nullptr, nullptr, count, 0};
    NumberComparer(backend_, *type)
        .measure({left.type.number, left.values.data()}, {right.type.number, right.values.data()},
                 {&run, 1}, metrics);
    return within(metrics.total, options_.limits);
  }

  void find(const std::string& kind, const std::string& path, const std::string& message,
            const std::string& attribute = "") {
    report_.findings.push_back({kind, path, attribute, message});
  }
  void note(const std::string& kind, const std::string& path, const std::string& message) {
    report_.notes.push_back({kind, path, "", message});
  }

  Hdf5Side& reference_;
  Hdf5Side& candidate_;
  const Backend& backend_;
  const Hdf5Options& options_;
  Hdf5Report& report_;
  PathFilter filter_;
  std::set<std::tuple<h5::Identity, h5::Identity, PathFilter::State>> seen_;
  std::set<std::pair<h5::Identity, PathFilter::State>> seen_in_reference_, seen_in_candidate_;
  DatasetComparer datasets_;
};

}  // namespace

Hdf5Report compare_hdf5(const std::filesystem::path& reference,
                        const std::filesystem::path& candidate, const Backend& backend,
                        const Hdf5Options& options) {
  h5::prepare_environment();
  const h5::Lock lock;
  Hdf5Report report;
  report.reference = reference.string();
  report.candidate = candidate.string();
  report.limits = options.limits;
  report.filter = options.filter;
  report.backend = backend.name();
  Hdf5Side left(reference, options.mode), right(candidate, options.mode);
  Walk(left, right, backend, options, report).run();
  std::stable_sort(
      report.findings.begin(), report.findings.end(),
      [](const Hdf5Finding& one, const Hdf5Finding& other) { return one.path < other.path; });
  if (report.same() && report.datasets.empty() && report.attributes == 0 && report.types == 0) {
    throw Trouble(kWhat, candidate.string(),
                  options.filter.empty()
                      ? "neither file has a dataset or an attribute"
                      : "neither file has anything that matches \"" + options.filter + "\"");
  }
  return report;
}

}  // namespace ttrace
