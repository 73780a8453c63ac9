// SPDX-License-Identifier: Apache-2.0
// What an element of any HDF5 dataset or attribute is, taken apart into a tree that needs no
// libhdf5: numbers, texts, and what is put together of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libttrace/core/dtype.hpp"
#include "libttrace/h5.hpp"

namespace ttrace::h5 {

// A number as its bytes lie in a file.
struct NumberFormat {
  DType dtype = DType::float32;  // of the same size and sign, but for is_unsigned
  bool is_unsigned = false;      // uint16, uint32, uint64: `dtype` is the signed one
  bool big_endian = false;
  bool operator==(const NumberFormat&) const = default;
};

struct ElementType {
  enum class Kind : std::uint8_t {
    number,
    bytes,  // of a meaning that is unknown here: bit fields, opaque, unusual floats
    text,
    compound,     // parts: the members
    array,        // parts: one, `count` times
    vlen,         // parts: one, any number of times
    enumeration,  // parts: one, the integer; `names` of values, which booleans have, too
    reference,    // to an object of the same file
    unknown       // cannot be compared
  };
  enum class Padding : std::uint8_t { nul_ended, nul_padded, space_padded };
  struct Name {
    std::string name;
    std::vector<std::byte> value;  // as in memory
    bool operator==(const Name&) const = default;
  };

  Kind kind = Kind::unknown;
  std::size_t size = 0;     // of an element in memory, when it is read as the file's own type
  std::string description;  // for readers: neither offsets nor sizes of compounds are in it
  NumberFormat number;
  bool variable = false;  // a text that is a pointer
  Padding padding = Padding::nul_ended;
  std::uint64_t count = 0;
  std::vector<std::uint64_t> dimensions;  // of an array
  std::vector<ElementType> parts;
  std::vector<std::string> part_names;
  std::vector<std::size_t> part_offsets;
  std::vector<Name> names;
  std::vector<std::byte> mask;  // of bytes: the bits that count; empty: all
  // Equal bytes are equal elements, unless there is something indirect.
  bool operator==(const ElementType&) const = default;
};

[[nodiscard]] ElementType element_type(const Caller& caller, Id type);
// Elements hold pointers or references: equal bytes say nothing.
[[nodiscard]] bool is_indirect(const ElementType& type);

}  // namespace ttrace::h5
