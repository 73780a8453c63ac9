// SPDX-License-Identifier: Apache-2.0
// Any HDF5 file as a graph: groups with named links to groups, datasets and types. Links of all
// kinds are followed; one that leads nowhere is an object, too.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libttrace/core/record.hpp"
#include "libttrace/file.hpp"
#include "libttrace/h5.hpp"
#include "libttrace/h5_element.hpp"

namespace ttrace::h5 {

enum class ObjectKind : std::uint8_t { group, dataset, datatype, dangling };
[[nodiscard]] const char* name_of(ObjectKind kind);

// Which object of which file it is, by whatever path it was reached.
struct Identity {
  FileIdentity file;
  std::array<std::uint8_t, 16> place{};
  auto operator<=>(const Identity&) const = default;
};

struct Object {
  Handle handle;
  ObjectKind kind = ObjectKind::dangling;
  Identity identity;
  std::uint64_t opening = 0;     // libhdf5's number of the file, new whenever it is opened again
  std::uint64_t attributes = 0;  // how many it has
  std::string link;              // of a dangling one: what it points to
};

// The name of the file that holds it: links lead to other files.
[[nodiscard]] std::string file_of(const Caller& caller, const Object& object);
[[nodiscard]] Object root_of(const Caller& caller, Id file);
[[nodiscard]] Object open_child(const Caller& caller, const Object& group, const std::string& name);
[[nodiscard]] std::vector<std::string> child_names(const Caller& caller, const Object& group);
[[nodiscard]] std::vector<std::string> attribute_names(const Caller& caller, const Object& object);

struct Extent {
  bool null = false;  // no elements and no shape
  Shape shape;        // empty: a scalar
  bool operator==(const Extent&) const = default;
};

// Elements in memory, as the file's own type lays them out; frees what they point to.
class Values {
 public:
  Values(Handle type, Handle space, std::size_t bytes, bool indirect);
  ~Values();
  Values(Values&&) noexcept = default;
  Values& operator=(Values&&) = delete;
  [[nodiscard]] std::byte* data() { return bytes_.data(); }
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
  Handle type_, space_;
  bool indirect_;
};

class Dataset {
 public:
  // `handle` is that of an object of kind dataset and stays with its owner. `reuse`: a dataset of
  // the same file; its type is taken over where it is the same.
  Dataset(const Caller& caller, Id handle, const Dataset* reuse = nullptr);

  [[nodiscard]] const ElementType& type() const { return *type_; }
  [[nodiscard]] const Extent& extent() const { return extent_; }
  // Where its elements begin in the file, one after another; nullopt: they are only to be read.
  [[nodiscard]] const std::optional<std::uint64_t>& offset() const { return offset_; }
  [[nodiscard]] Shape chunk() const;  // empty: no chunks
  // No element was ever written: all are the fill value.
  [[nodiscard]] bool is_unwritten() const;
  // Why its elements cannot be read: a filter, a source or a raw file is not there; "" when all
  // are.
  [[nodiscard]] std::string what_is_missing() const;
  // `box` lies inside. Bytes are those of the file: nothing is converted.
  [[nodiscard]] Values read(const std::vector<std::uint64_t>& start, const Shape& count) const;

 private:
  Caller caller_;
  Id id_;
  Handle type_id_;
  std::shared_ptr<const ElementType> type_;
  Extent extent_;
  std::optional<std::uint64_t> offset_;
};

struct Attribute {
  ElementType type;
  Extent extent;
  Values values;
};
[[nodiscard]] Attribute read_attribute(const Caller& caller, const Object& object,
                                       const std::string& name);

// Two committed types are one type.
[[nodiscard]] bool same_type(const Object& left, const Object& right);

}  // namespace ttrace::h5
