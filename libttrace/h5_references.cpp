// SPDX-License-Identifier: Apache-2.0
// See h5_references.hpp. A reference is the address of its object.
#include "libttrace/h5_references.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstring>

namespace ttrace::h5 {
namespace {

// With addresses, not with the tokens of later versions.
#if H5_VERSION_GE(1, 12, 0)
using Info = H5O_info1_t;
#else
using Info = H5O_info_t;
#endif
using Paths = std::unordered_map<std::uint64_t, std::string>;

std::uint64_t address_of(const std::byte* reference) {
  hobj_ref_t address = 0;
  std::memcpy(&address, reference, sizeof address);
  return address;
}

herr_t take_path(Id, const char* name, const Info* info, void* paths) {
  const std::string path = std::strcmp(name, ".") == 0 ? "/" : std::string("/") + name;
  static_cast<Paths*>(paths)->emplace(info->addr, path);
  return 0;
}

}  // namespace

References::References(const Caller& caller, Id object)
    : file_(caller.own(H5Iget_file_id(object), H5Fclose)) {
  Info root;
  caller.check(H5Oget_info_by_name2(file_.get(), "/", &root, H5O_INFO_BASIC, H5P_DEFAULT));
  opening_ = root.fileno;
  caller.check(H5Ovisit_by_name2(file_.get(), "/", H5_INDEX_NAME, H5_ITER_NATIVE, take_path,
                                 &paths_, H5O_INFO_BASIC, H5P_DEFAULT));
}

const std::string* References::path(const std::byte* reference) const {
  const auto found = paths_.find(address_of(reference));
  return found == paths_.end() ? nullptr : &found->second;
}

bool References::is_reached(const std::byte* reference, const std::string& path) const {
  Info info;
  return H5Oget_info_by_name2(file_.get(), path.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
         info.fileno == opening_ && info.addr == address_of(reference);
}

bool is_null(const std::byte* reference) { return address_of(reference) == 0; }

bool has_references(const ElementType& type) {
  if (type.kind == ElementType::Kind::reference) return true;
  return std::any_of(type.parts.begin(), type.parts.end(), has_references);
}

}  // namespace ttrace::h5
