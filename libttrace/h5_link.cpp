// SPDX-License-Identifier: Apache-2.0
// See h5_link.hpp.
#include "libttrace/h5_link.hpp"

#include <hdf5.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <system_error>

#include "libttrace/core/trouble.hpp"

namespace ttrace::h5 {
namespace {

namespace fs = std::filesystem;

// The latest file that a link led to.
struct Step {
  std::string holder, file;
};

herr_t take_step(const char* holder, const char*, const char* file, const char*, unsigned*, Id,
                 void* step) {
  *static_cast<Step*>(step) = {holder, file};
  return 0;
}

herr_t take_cause(unsigned depth, const H5E_error2_t* error, void* wanted) {
  if (depth == 0) {
    *static_cast<bool*>(wanted) =
        (error->maj_num == H5E_SYM && error->min_num == H5E_NOTFOUND) ||
        (error->maj_num == H5E_LINK && error->min_num == H5E_NLINKS);  // soft links in a circle
  }
  return 0;
}

// Other errors than that nothing is there count as something that is.
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || error;
}

struct Link {
  std::string target;
  bool known = true;  // its kind
};

Link read_link(const Caller& caller, Id group, const std::string& name) {
  H5L_info_t info;
  caller.check(H5Lget_info(group, name.c_str(), &info, H5P_DEFAULT));
  if (info.type == H5L_TYPE_HARD) caller.check(H5Oopen(group, name.c_str(), H5P_DEFAULT));
  std::vector<char> value(info.u.val_size + 1);
  caller.check(H5Lget_val(group, name.c_str(), value.data(), value.size(), H5P_DEFAULT));
  if (info.type == H5L_TYPE_SOFT) return {value.data()};
  const char* file = nullptr;
  const char* path = nullptr;
  if (info.type != H5L_TYPE_EXTERNAL ||
      H5Lunpack_elink_val(value.data(), info.u.val_size, nullptr, &file, &path) < 0) {
    return {"by a link of unknown kind " + std::to_string(info.type), false};
  }
  return {std::string(file) + ":" + path};
}

}  // namespace

std::vector<fs::path> places_of(const std::string& holder, const std::string& name,
                                const char* variable) {
  std::vector<fs::path> places;
  fs::path file(name);
  if (file.is_absolute()) {
    places.push_back(file);
    file = file.filename();
  }
  std::error_code error;
  const fs::path folder = fs::absolute(holder, error).parent_path();
  const char* prefixes = std::getenv(variable);
  std::istringstream list(prefixes != nullptr ? prefixes : "");
  for (std::string prefix; std::getline(list, prefix, ':');) {
    constexpr std::string_view kOrigin = "${ORIGIN}";
    if (prefix.starts_with(kOrigin)) prefix = folder.string() + prefix.substr(kOrigin.size());
    if (!prefix.empty()) places.push_back(fs::path(prefix) / file);
  }
  places.push_back(folder / file);
  places.push_back(file);
  const fs::path actual = fs::canonical(holder, error);
  if (!error) places.push_back(actual.parent_path() / file);
  return places;
}

Handle open_first(const std::vector<fs::path>& places) {
  std::optional<Trouble> broken;
  for (const fs::path& place : places) {
    if (!is_there(place)) continue;
    try {
      return open_any_file(Caller("cannot read what another file leads to", place.string()));
    } catch (const Trouble& trouble) {
      if (!broken) broken = trouble;
    }
  }
  if (broken) throw *broken;
  return {};
}

bool failed_for_want_of_a_name() {
  bool wanted = false;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_cause, &wanted);
  return wanted;
}

std::string target_of_dangling(const Caller& caller, Id group, const std::string& name) {
  const Link link = read_link(caller, group, name);
  if (!link.known) return link.target;
  Step step;
  const Handle access = caller.own(H5Pcreate(H5P_LINK_ACCESS), H5Pclose);
  caller.check(H5Pset_elink_cb(access.get(), take_step, &step));
  const Handle object(H5Oopen(group, name.c_str(), access.get()), H5Oclose);
  if (object.valid()) caller.fail("the link " + name + " leads elsewhere now");
  if (failed_for_want_of_a_name()) return link.target;
  if (!step.file.empty() &&
      !open_first(places_of(step.holder, step.file, "HDF5_EXT_PREFIX")).valid()) {
    return link.target;
  }
  caller.check(H5Oopen(group, name.c_str(), H5P_DEFAULT));
  return link.target;
}

}  // namespace ttrace::h5
