// SPDX-License-Identifier: Apache-2.0
// See hdf5_compare.hpp. Both graphs are walked at once, so that each pair of objects is met and
// compared once, by whatever paths and cycles it is reached. What lies in one piece in both files
// is handed to the crew, which compares it while the walk goes on.
#include "diff/hdf5_compare.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "diff/hdf5_datasets.hpp"
#include "diff/hdf5_elements.hpp"
#include "libttrace/core/mapped_guard.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

using h5::Object;
using h5::ObjectKind;

constexpr const char* kWhat = "compare";

// Pairs of groups on the way to a place.
struct Trail {
  std::pair<h5::Identity, h5::Identity> pair;
  std::shared_ptr<const Trail> before;
};

// Objects of equal paths.
struct Place {
  std::string path;
  std::shared_ptr<Object> reference, candidate;
  std::shared_ptr<const Trail> trail;
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
        datasets_(reference, candidate, backend, options, report) {}

  void run() {
    std::vector<Place> open{{"/", std::make_shared<Object>(reference_.root()),
                             std::make_shared<Object>(candidate_.root()), nullptr}};
    while (!open.empty()) {
      const Place place = std::move(open.back());
      open.pop_back();
      visit(place, open);
    }
    datasets_.finish();
    check_mapped_files();
  }

 private:
  void visit(const Place& place, std::vector<Place>& open) {
    const Object &left = *place.reference, &right = *place.candidate;
    if (was_compared(place)) return;
    if (left.kind != right.kind) {
      if (selected(place.path)) {
        find("kind_differs", place.path,
             std::string(name_of(left.kind)) + " against " + name_of(right.kind));
      } else {
        lone(kReference, place.path, left);
        lone(kCandidate, place.path, right);
      }
      return;
    }
    if (left.kind == ObjectKind::group) return visit_group(place, open);
    if (!selected(place.path)) return;
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

  // Under another path. With a filter every path counts, and only cycles are cut.
  bool was_compared(const Place& place) {
    const std::pair pair(place.reference->identity, place.candidate->identity);
    if (place.reference->kind == ObjectKind::dangling ||
        place.candidate->kind == ObjectKind::dangling) {
      return false;
    }
    if (options_.filter.empty()) return !seen_.insert(pair).second;
    for (const Trail* at = place.trail.get(); at != nullptr; at = at->before.get()) {
      if (at->pair == pair) return true;
    }
    return false;
  }

  void visit_group(const Place& place, std::vector<Place>& open) {
    if (selected(place.path)) {
      ++report_.groups;
      compare_attributes(place);
    }
    const auto left = h5::child_names(reference_.caller(), *place.reference);
    const auto right = h5::child_names(candidate_.caller(), *place.candidate);
    const std::string prefix = place.path == "/" ? "/" : place.path + "/";
    lone_children(kReference, prefix, *place.reference, left, right);
    lone_children(kCandidate, prefix, *place.candidate, right, left);
    std::vector<std::string> common;
    std::set_intersection(left.begin(), left.end(), right.begin(), right.end(),
                          std::back_inserter(common));
    const auto trail = std::make_shared<const Trail>(
        Trail{{place.reference->identity, place.candidate->identity}, place.trail});
    // Objects that are no groups are compared at once, so that few are open at a time.
    std::vector<Place> groups;
    for (const std::string& name : common) {
      Place child{
          prefix + name,
          std::make_shared<Object>(h5::open_child(reference_.caller(), *place.reference, name)),
          std::make_shared<Object>(h5::open_child(candidate_.caller(), *place.candidate, name)),
          trail};
      const bool both =
          child.reference->kind == ObjectKind::group && child.candidate->kind == ObjectKind::group;
      if (both) {
        groups.push_back(std::move(child));
      } else {
        visit(child, open);
      }
    }
    std::move(groups.rbegin(), groups.rend(), std::back_inserter(open));
  }

  struct Side {
    const char *kind, *name;
  };
  static constexpr Side kReference{"missing", "reference"}, kCandidate{"unexpected", "candidate"};

  void lone_children(const Side& side, const std::string& prefix, const Object& group,
                     const std::vector<std::string>& names,
                     const std::vector<std::string>& others) {
    const h5::Caller& caller = (&side == &kReference ? reference_ : candidate_).caller();
    std::vector<std::string> alone;
    std::set_difference(names.begin(), names.end(), others.begin(), others.end(),
                        std::back_inserter(alone));
    for (const std::string& name : alone) {
      lone(side, prefix + name, h5::open_child(caller, group, name));
    }
  }

  // What one file has at this path, or in this group, and the filter selects.
  void lone(const Side& side, const std::string& path, const Object& object) {
    if (selected(path)) {
      find(side.kind, path, std::string("a ") + name_of(object.kind) + " only in the " + side.name);
      return;
    }
    if (object.kind != ObjectKind::group) return;
    if (std::find(lone_.begin(), lone_.end(), object.identity) != lone_.end()) return;  // a cycle
    lone_.push_back(object.identity);
    const h5::Caller& caller = (&side == &kReference ? reference_ : candidate_).caller();
    lone_children(side, path + "/", object, h5::child_names(caller, object), {});
    lone_.pop_back();
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
    for (std::uint64_t i = 0; i < count; ++i) {
      const ElementView one{left.type, left.values.data() + i * left.type.size,
                            place.reference->handle.get()};
      const ElementView other{right.type, right.values.data() + i * right.type.size,
                              place.candidate->handle.get()};
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

  [[nodiscard]] bool selected(const std::string& path) const {
    return options_.filter.empty() ||
           fnmatch(options_.filter.c_str(), path.c_str(), FNM_NOESCAPE) == 0;
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
  std::set<std::pair<h5::Identity, h5::Identity>> seen_;
  std::vector<h5::Identity> lone_;  // groups around the one that is looked into
  DatasetComparer datasets_;
};

}  // namespace

Hdf5Report compare_hdf5(const std::filesystem::path& reference,
                        const std::filesystem::path& candidate, const Backend& backend,
                        const Hdf5Options& options) {
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
