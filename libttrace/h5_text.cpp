// SPDX-License-Identifier: Apache-2.0
// Attributes and lists of strings. Strings are written with variable length in UTF-8, as h5py does;
// attributes are read in both forms, because tools that rewrite files may change it.
#include <hdf5.h>

#include <algorithm>

#include "libttrace/h5.hpp"

namespace ttrace::h5 {
namespace {

Handle string_type(const Caller& caller) {
  Handle type = caller.own(H5Tcopy(H5T_C_S1), H5Tclose);
  caller.check(H5Tset_size(type.get(), H5T_VARIABLE));
  caller.check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  return type;
}

void write_scalar(const Caller& caller, Id object, const char* name, Id type, Id memory_type,
                  const void* value) {
  const Handle space = caller.own(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute =
      caller.own(H5Acreate2(object, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  caller.check(H5Awrite(attribute.get(), memory_type, value));
}

// Opens a scalar attribute of the given class.
Handle open_scalar(const Caller& caller, Id object, const char* name, H5T_class_t expected) {
  if (!has_attribute(object, name)) caller.fail(std::string("attribute ") + name + " is missing");
  Handle attribute = caller.own(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  const Handle type = caller.own(H5Aget_type(attribute.get()), H5Tclose);
  const Handle space = caller.own(H5Aget_space(attribute.get()), H5Sclose);
  if (H5Tget_class(type.get()) != expected || H5Sget_simple_extent_npoints(space.get()) != 1) {
    caller.fail(std::string("attribute ") + name + " has another type than in a segment");
  }
  return attribute;
}

// Strings that libhdf5 allocated; given back on every way out.
class Borrowed {
 public:
  Borrowed(Id type, Id space, std::size_t count) : type_(type), space_(space), texts_(count) {}
  ~Borrowed() { H5Dvlen_reclaim(type_, space_, H5P_DEFAULT, texts_.data()); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  [[nodiscard]] char** data() { return texts_.data(); }
  [[nodiscard]] std::vector<std::string> copy() const {
    std::vector<std::string> out;
    out.reserve(texts_.size());
    for (const char* text : texts_) out.emplace_back(text == nullptr ? "" : text);
    return out;
  }

 private:
  Id type_;
  Id space_;
  std::vector<char*> texts_;
};

}  // namespace

void write_attribute(const Caller& caller, Id object, const char* name, const std::string& value) {
  const Handle type = string_type(caller);
  const char* text = value.c_str();
  write_scalar(caller, object, name, type.get(), type.get(), &text);
}

void write_attribute(const Caller& caller, Id object, const char* name, std::int8_t value) {
  write_scalar(caller, object, name, H5T_STD_I8LE, H5T_NATIVE_INT8, &value);
}

void write_attribute(const Caller& caller, Id object, const char* name, std::int32_t value) {
  write_scalar(caller, object, name, H5T_STD_I32LE, H5T_NATIVE_INT32, &value);
}

void write_attribute(const Caller& caller, Id object, const char* name, std::int64_t value) {
  write_scalar(caller, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

bool has_attribute(Id object, const char* name) { return H5Aexists(object, name) > 0; }

std::string string_attribute(const Caller& caller, Id object, const char* name) {
  const Handle attribute = open_scalar(caller, object, name, H5T_STRING);
  const Handle type = caller.own(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tis_variable_str(type.get()) > 0) {
    const Handle space = caller.own(H5Aget_space(attribute.get()), H5Sclose);
    Borrowed text(type.get(), space.get(), 1);
    caller.check(H5Aread(attribute.get(), type.get(), text.data()));
    return text.copy().front();
  }
  std::string text(H5Tget_size(type.get()), '\0');
  caller.check(H5Aread(attribute.get(), type.get(), text.data()));
  return text.substr(0, text.find('\0'));
}

std::int64_t integer_attribute(const Caller& caller, Id object, const char* name) {
  const Handle attribute = open_scalar(caller, object, name, H5T_INTEGER);
  std::int64_t value = 0;
  caller.check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value));
  return value;
}

void write_strings(const Caller& caller, Id file, const char* name,
                   const std::vector<std::string>& values) {
  std::vector<const char*> texts(values.size());
  std::transform(values.begin(), values.end(), texts.begin(),
                 [](const std::string& value) { return value.c_str(); });
  const hsize_t count = values.size();
  const Handle type = string_type(caller);
  const Handle space = caller.own(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Handle dataset = caller.own(
      H5Dcreate2(file, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  if (count == 0) return;
  caller.check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()));
}

std::vector<std::string> read_strings(const Caller& caller, Id file, const char* name) {
  const Handle dataset = caller.own(H5Dopen2(file, name, H5P_DEFAULT), H5Dclose);
  const Handle type = caller.own(H5Dget_type(dataset.get()), H5Tclose);
  if (H5Tis_variable_str(type.get()) <= 0) {
    caller.fail(std::string("/") + name + " is not a list of variable-length strings");
  }
  const Handle space = caller.own(H5Dget_space(dataset.get()), H5Sclose);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  caller.check(count);
  if (count == 0) return {};
  Borrowed texts(type.get(), space.get(), static_cast<std::size_t>(count));
  caller.check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()));
  return texts.copy();
}

}  // namespace ttrace::h5
