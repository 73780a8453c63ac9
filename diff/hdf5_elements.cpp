// SPDX-License-Identifier: Apache-2.0
// See hdf5_elements.hpp.
#include "diff/hdf5_elements.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace ttrace {
namespace {

using h5::ElementType;
using Kind = ElementType::Kind;

constexpr std::size_t kLongestText = 60;

// What H5T_VLEN elements are in memory (hvl_t).
struct List {
  std::size_t count;
  const std::byte* data;
};

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Integers by sign and size, because int64 and uint64 have no common type.
struct Number {
  bool floating = false;
  double value = 0;
  bool negative = false;
  std::uint64_t size = 0;
};

Number number_of(const h5::NumberFormat& format, const std::byte* data) {
  std::array<std::byte, 8> bytes{};
  const std::size_t size = size_of(format.dtype);
  std::memcpy(bytes.data(), data, size);
  if (format.big_endian) std::reverse(bytes.begin(), bytes.begin() + static_cast<long>(size));
  Number number;
  number.floating = is_floating(format.dtype);
  if (number.floating) {
    number.value = decode(format.dtype, bytes.data(), 0);
  } else if (format.is_unsigned) {
    number.size = load<std::uint64_t>(bytes.data());
  } else {
    const std::int64_t value =
        format.dtype == DType::int64
            ? load<std::int64_t>(bytes.data())
            : static_cast<std::int64_t>(decode(format.dtype, bytes.data(), 0));
    number.negative = value < 0;
    const auto bits = static_cast<std::uint64_t>(value);
    number.size = value < 0 ? 0 - bits : bits;
  }
  return number;
}

bool equal_numbers(const Number& reference, const Number& candidate) {
  if (!reference.floating) {
    return reference.size == candidate.size && reference.negative == candidate.negative;
  }
  const bool nan = reference.value != reference.value && candidate.value != candidate.value;
  return nan || reference.value == candidate.value;
}

std::string_view text_of(const ElementView& element) {
  const ElementType& type = element.type;
  if (type.variable) {
    const char* text = load<const char*>(element.data);
    return text == nullptr ? std::string_view() : text;
  }
  std::string_view text(reinterpret_cast<const char*>(element.data), type.size);
  if (type.padding == ElementType::Padding::space_padded) {
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }
  if (type.padding == ElementType::Padding::nul_ended) return text.substr(0, text.find('\0'));
  return text.substr(0, text.find_last_not_of('\0') + 1);
}

bool equal_bytes(const ElementView& reference, const ElementView& candidate) {
  const std::vector<std::byte>& mask = reference.type.mask;
  if (mask.empty()) {
    return std::memcmp(reference.data, candidate.data, reference.type.size) == 0;
  }
  for (std::size_t at = 0; at < mask.size(); ++at) {
    if (((reference.data[at] ^ candidate.data[at]) & mask[at]) != std::byte{0}) return false;
  }
  return true;
}

// Booleans are numbers whose values have names.
bool has_names(const ElementType& type) { return !type.names.empty(); }

const std::string* name_of_value(const ElementView& element) {
  for (const ElementType::Name& entry : element.type.names) {
    if (std::memcmp(entry.value.data(), element.data, element.type.size) == 0) return &entry.name;
  }
  return nullptr;
}

ElementView part(const ElementView& whole, std::size_t at, std::size_t offset) {
  return {whole.type.parts[at], whole.data + offset, whole.references};
}

std::size_t part_named(const ElementType& type, const std::string& name) {
  const auto found = std::find(type.part_names.begin(), type.part_names.end(), name);
  return static_cast<std::size_t>(found - type.part_names.begin());
}

// Null references are equal; one to an object that is gone equals nothing. An object may have other
// names there, or there may be links between.
bool equal_references(const ElementView& reference, const ElementView& candidate) {
  if (h5::is_null(reference.data) || h5::is_null(candidate.data)) {
    return h5::is_null(reference.data) && h5::is_null(candidate.data);
  }
  const std::string* left = reference.references->path(reference.data);
  const std::string* right = candidate.references->path(candidate.data);
  if (left == nullptr || right == nullptr) return false;
  return *left == *right || candidate.references->is_reached(candidate.data, *left) ||
         reference.references->is_reached(reference.data, *right);
}

std::string referred_text(const ElementView& element) {
  if (h5::is_null(element.data)) return "nothing";
  const std::string* path = element.references->path(element.data);
  return path != nullptr ? *path : "an object that is gone";
}

bool equal_compounds(const ElementView& reference, const ElementView& candidate) {
  for (std::size_t at = 0; at < reference.type.parts.size(); ++at) {
    const std::size_t other = part_named(candidate.type, reference.type.part_names[at]);
    if (!equal_elements(part(reference, at, reference.type.part_offsets[at]),
                        part(candidate, other, candidate.type.part_offsets[other]))) {
      return false;
    }
  }
  return true;
}

bool equal_repeated(const ElementView& reference, const ElementView& candidate,
                    std::uint64_t count) {
  for (std::uint64_t at = 0; at < count; ++at) {
    if (!equal_elements(part(reference, 0, at * reference.type.parts[0].size),
                        part(candidate, 0, at * candidate.type.parts[0].size))) {
      return false;
    }
  }
  return true;
}

bool equal_enumerations(const ElementView& reference, const ElementView& candidate) {
  const std::string* left = name_of_value(reference);
  const std::string* right = name_of_value(candidate);
  if (left != nullptr && right != nullptr) return *left == *right;
  return left == right && equal_elements(part(reference, 0, 0), part(candidate, 0, 0));
}

std::string incomparable_compounds(const ElementType& reference, const ElementType& candidate) {
  for (const std::string& name : candidate.part_names) {
    if (part_named(reference, name) == reference.parts.size()) {
      return "only the candidate has member " + name;
    }
  }
  for (std::size_t at = 0; at < reference.parts.size(); ++at) {
    const std::string& name = reference.part_names[at];
    const std::size_t other = part_named(candidate, name);
    if (other == candidate.parts.size()) return "only the reference has member " + name;
    const std::string why = incomparable(reference.parts[at], candidate.parts[other]);
    if (!why.empty()) return "member " + name + ": " + why;
  }
  return "";
}

std::string cut(std::string text) {
  if (text.size() <= kLongestText) return text;
  std::size_t end = kLongestText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return text.substr(0, end) + "...";
}

std::string number_text(const Number& number) {
  if (!number.floating) return (number.negative ? "-" : "") + std::to_string(number.size);
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", number.value);
  return text;
}

std::string repeated_text(const ElementView& element, std::uint64_t count) {
  std::string text = "[";
  for (std::uint64_t at = 0; at < count && text.size() <= kLongestText; ++at) {
    text += (at == 0 ? "" : ", ") + element_text(part(element, 0, at * element.type.parts[0].size));
  }
  return text + "]";
}

std::string bytes_text(const ElementView& element) {
  std::string text = "0x";
  for (std::size_t at = 0; at < element.type.size && text.size() <= kLongestText; ++at) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(element.data[at]));
    text += digits;
  }
  return text;
}

std::string compound_text(const ElementView& element) {
  std::string text = "{";
  for (std::size_t at = 0; at < element.type.parts.size() && text.size() <= kLongestText; ++at) {
    text += (at == 0 ? "" : ", ") + element.type.part_names[at] + ": " +
            element_text(part(element, at, element.type.part_offsets[at]));
  }
  return text + "}";
}

}  // namespace

std::string incomparable(const ElementType& reference, const ElementType& candidate) {
  const std::string types = reference.description + " against " + candidate.description;
  if (reference.kind == Kind::unknown) return "no comparison of " + reference.description;
  if (reference.kind != candidate.kind) {
    const bool named = has_names(reference) && has_names(candidate);
    return named ? incomparable(reference.parts[0], candidate.parts[0]) : types;
  }
  switch (reference.kind) {
    case Kind::number:
      return is_floating(reference.number.dtype) == is_floating(candidate.number.dtype) ? ""
                                                                                        : types;
    case Kind::bytes:
      return reference.description == candidate.description ? "" : types;
    case Kind::compound:
      return incomparable_compounds(reference, candidate);
    case Kind::array:
      if (reference.dimensions != candidate.dimensions) return types;
      [[fallthrough]];
    case Kind::vlen:
    case Kind::enumeration:
      return incomparable(reference.parts[0], candidate.parts[0]);
    case Kind::text:
    case Kind::reference:
    case Kind::unknown:
      break;
  }
  return "";
}

bool equal_elements(const ElementView& reference, const ElementView& candidate) {
  if (reference.type.kind != candidate.type.kind) return equal_enumerations(reference, candidate);
  switch (reference.type.kind) {
    case Kind::number:
      return equal_numbers(number_of(reference.type.number, reference.data),
                           number_of(candidate.type.number, candidate.data));
    case Kind::bytes:
      return equal_bytes(reference, candidate);
    case Kind::text:
      return text_of(reference) == text_of(candidate);
    case Kind::compound:
      return equal_compounds(reference, candidate);
    case Kind::array:
      return equal_repeated(reference, candidate, reference.type.count);
    case Kind::vlen: {
      const List left = load<List>(reference.data), right = load<List>(candidate.data);
      return left.count == right.count &&
             equal_repeated({reference.type, left.data, reference.references},
                            {candidate.type, right.data, candidate.references}, left.count);
    }
    case Kind::enumeration:
      return equal_enumerations(reference, candidate);
    case Kind::reference:
      return equal_references(reference, candidate);
    case Kind::unknown:
      break;
  }
  return false;
}

std::string element_text(const ElementView& element) {
  switch (element.type.kind) {
    case Kind::number:
      return number_text(number_of(element.type.number, element.data));
    case Kind::bytes:
      return cut(bytes_text(element));
    case Kind::text:
      return "\"" + cut(std::string(text_of(element))) + "\"";
    case Kind::compound:
      return cut(compound_text(element));
    case Kind::array:
      return cut(repeated_text(element, element.type.count));
    case Kind::vlen: {
      const List list = load<List>(element.data);
      return cut(repeated_text({element.type, list.data, element.references}, list.count));
    }
    case Kind::enumeration: {
      const std::string* name = name_of_value(element);
      return name != nullptr ? *name : element_text(part(element, 0, 0));
    }
    case Kind::reference:
      return "-> " + referred_text(element);
    case Kind::unknown:
      break;
  }
  return "?";
}

}  // namespace ttrace
