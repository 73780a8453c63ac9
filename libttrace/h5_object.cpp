// SPDX-License-Identifier: Apache-2.0
// See h5_object.hpp.
#include "libttrace/h5_object.hpp"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "libttrace/h5_link.hpp"
#include "libttrace/h5_sources.hpp"

namespace ttrace::h5 {
namespace {

#if H5_VERSION_GE(1, 12, 0)
using Info = H5O_info2_t;
herr_t get_info(Id id, Info* info) {
  return H5Oget_info3(id, info, H5O_INFO_BASIC | H5O_INFO_NUM_ATTRS);
}
const void* place_in(const Info& info) { return &info.token; }
constexpr std::size_t kPlaceBytes = sizeof(H5O_token_t);
#else
using Info = H5O_info_t;
herr_t get_info(Id id, Info* info) {
  return H5Oget_info2(id, info, H5O_INFO_BASIC | H5O_INFO_NUM_ATTRS);
}
const void* place_in(const Info& info) { return &info.addr; }
constexpr std::size_t kPlaceBytes = sizeof(haddr_t);
#endif

// Of the file that libhdf5 has open, not of what has its name now.
FileIdentity file_identity(const Caller& caller, Id object) {
  const Handle file = caller.own(H5Iget_file_id(object), H5Fclose);
  void* descriptor = nullptr;
  caller.check(H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &descriptor));
  return identity_of(*static_cast<int*>(descriptor), caller.file());
}

// `group`: what it was reached from, most often in the same file.
Object describe(const Caller& caller, Handle handle, const Object* group = nullptr) {
  Info info;
  caller.check(get_info(handle.get(), &info));
  Object object;
  object.opening = info.fileno;
  const bool known = group != nullptr && group->opening == object.opening;
  object.identity.file = known ? group->identity.file : file_identity(caller, handle.get());
  static_assert(kPlaceBytes <= sizeof(object.identity.place));
  std::memcpy(object.identity.place.data(), place_in(info), kPlaceBytes);
  object.attributes = info.num_attrs;
  object.kind = info.type == H5O_TYPE_GROUP     ? ObjectKind::group
                : info.type == H5O_TYPE_DATASET ? ObjectKind::dataset
                                                : ObjectKind::datatype;
  object.handle = std::move(handle);
  return object;
}

herr_t take_name(Id, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

herr_t take_attribute(Id, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

Extent extent_of(const Caller& caller, Id space) {
  Extent extent;
  extent.null = H5Sget_simple_extent_type(space) == H5S_NULL;
  const int rank = H5Sget_simple_extent_ndims(space);
  caller.check(rank);
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  caller.check(H5Sget_simple_extent_dims(space, sizes.data(), nullptr));
  extent.shape.assign(sizes.begin(), sizes.end());
  return extent;
}

std::string missing_filter(const Caller& caller, Id creation) {
  const int count = H5Pget_nfilters(creation);
  caller.check(count);
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    std::array<char, 64> name{};
    const H5Z_filter_t filter =
        H5Pget_filter2(creation, i, &flags, &values, nullptr, name.size(), name.data(), &config);
    caller.check(filter);
    if (H5Zfilter_avail(filter) > 0) continue;
    return "its filter " + std::to_string(filter) + " (" + name.data() +
           ") is not to be found; HDF5_PLUGIN_PATH names the folder of such plugins";
  }
  return "";
}

}  // namespace

const char* name_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::group:
      return "group";
    case ObjectKind::dataset:
      return "dataset";
    case ObjectKind::datatype:
      return "named type";
    case ObjectKind::dangling:
      return "link to nothing";
  }
  return "";
}

std::string file_of(const Caller& caller, const Object& object) {
  const ssize_t length = H5Fget_name(object.handle.get(), nullptr, 0);
  caller.check(length);
  std::string name(static_cast<std::size_t>(length) + 1, '\0');
  caller.check(H5Fget_name(object.handle.get(), name.data(), name.size()));
  name.resize(static_cast<std::size_t>(length));
  return name;
}

Object root_of(const Caller& caller, Id file) {
  return describe(caller, caller.own(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose));
}

Object open_child(const Caller& caller, const Object& group, const std::string& name) {
  const Id id = H5Oopen(group.handle.get(), name.c_str(), H5P_DEFAULT);
  if (id >= 0) return describe(caller, caller.own(id, H5Oclose), &group);
  Object object;
  object.link = target_of_dangling(caller, group.handle.get(), name);
  return object;
}

std::vector<std::string> child_names(const Caller& caller, const Object& group) {
  std::vector<std::string> names;
  hsize_t at = 0;
  caller.check(
      H5Literate(group.handle.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &at, take_name, &names));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> attribute_names(const Caller& caller, const Object& object) {
  std::vector<std::string> names;
  if (object.attributes == 0) return names;
  hsize_t at = 0;
  caller.check(
      H5Aiterate2(object.handle.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &at, take_attribute, &names));
  std::sort(names.begin(), names.end());
  return names;
}

Values::Values(Handle type, Handle space, std::size_t bytes, bool indirect)
    : bytes_(bytes), type_(std::move(type)), space_(std::move(space)), indirect_(indirect) {}

Values::~Values() {
  if (!indirect_ || bytes_.empty()) return;
#if H5_VERSION_GE(1, 12, 0)
  H5Treclaim(type_.get(), space_.get(), H5P_DEFAULT, bytes_.data());
#else
  H5Dvlen_reclaim(type_.get(), space_.get(), H5P_DEFAULT, bytes_.data());
#endif
}

Dataset::Dataset(const Caller& caller, Id handle, const Dataset* reuse)
    : caller_(caller), id_(handle) {
  type_id_ = caller.own(H5Dget_type(id_), H5Tclose);
  if (reuse != nullptr && H5Tequal(type_id_.get(), reuse->type_id_.get()) > 0) {
    type_ = reuse->type_;
  } else {
    type_ = std::make_shared<const ElementType>(element_type(caller, type_id_.get()));
  }
  const Handle space = caller.own(H5Dget_space(id_), H5Sclose);
  extent_ = extent_of(caller, space.get());
  const haddr_t offset = H5Dget_offset(id_);  // undefined for all but contiguous, allocated ones
  if (offset != HADDR_UNDEF) offset_ = offset;
}

Shape Dataset::chunk() const {
  const Handle creation = caller_.own(H5Dget_create_plist(id_), H5Pclose);
  if (H5Pget_layout(creation.get()) != H5D_CHUNKED) return {};
  std::vector<hsize_t> sizes(extent_.shape.size());
  caller_.check(H5Pget_chunk(creation.get(), static_cast<int>(sizes.size()), sizes.data()));
  return {sizes.begin(), sizes.end()};
}

bool Dataset::is_unwritten() const {
  if (offset_ || H5Dget_storage_size(id_) != 0) return false;
  const Handle creation = caller_.own(H5Dget_create_plist(id_), H5Pclose);
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  return layout == H5D_CHUNKED ||
         (layout == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) == 0);
}

std::string Dataset::what_is_missing() const {
  if (offset_) return "";
  const Handle creation = caller_.own(H5Dget_create_plist(id_), H5Pclose);
  const std::string filter = missing_filter(caller_, creation.get());
  return filter.empty() ? missing_source(caller_, id_, creation.get()) : filter;
}

Values Dataset::read(const std::vector<std::uint64_t>& start, const Shape& count) const {
  Handle type = caller_.own(H5Tcopy(type_id_.get()), H5Tclose);
  const Handle from = caller_.own(H5Dget_space(id_), H5Sclose);
  const std::vector<hsize_t> begin(start.begin(), start.end()), size(count.begin(), count.end());
  const std::uint64_t elements = element_count(count);
  Handle to = caller_.own(H5Screate(H5S_SCALAR), H5Sclose);
  if (!begin.empty()) {
    caller_.check(H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, begin.data(), nullptr,
                                      size.data(), nullptr));
    // Of the same shape, because libhdf5 else walks the chunks element by element.
    to = caller_.own(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr),
                     H5Sclose);
  }
  const Id to_id = to.get();
  Values values(std::move(type), std::move(to), elements * type_->size, is_indirect(*type_));
  caller_.check(H5Dread(id_, type_id_.get(), to_id, from.get(), H5P_DEFAULT, values.data()));
  return values;
}

Attribute read_attribute(const Caller& caller, const Object& object, const std::string& name) {
  const Handle attribute =
      caller.own(H5Aopen(object.handle.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  Handle type = caller.own(H5Aget_type(attribute.get()), H5Tclose);
  Handle space = caller.own(H5Aget_space(attribute.get()), H5Sclose);
  const Id type_id = type.get();
  ElementType element = element_type(caller, type_id);
  Extent extent = extent_of(caller, space.get());
  const std::uint64_t elements = extent.null ? 0 : element_count(extent.shape);
  Values values(std::move(type), std::move(space), elements * element.size, is_indirect(element));
  if (elements > 0) caller.check(H5Aread(attribute.get(), type_id, values.data()));
  return {std::move(element), std::move(extent), std::move(values)};
}

bool same_type(const Object& left, const Object& right) {
  return H5Tequal(left.handle.get(), right.handle.get()) > 0;
}

}  // namespace ttrace::h5
