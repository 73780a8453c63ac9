// SPDX-License-Identifier: Apache-2.0
// See h5_element.hpp.
#include "libttrace/h5_element.hpp"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace ttrace::h5 {
namespace {

using Kind = ElementType::Kind;

constexpr int kMostNested = 32;  // compounds in arrays in compounds: no file has that many

struct FloatLayout {
  DType dtype;
  std::size_t size, exponent_bits, mantissa_bits, bias;
};
constexpr std::array kFloats = {
    FloatLayout{DType::float64, 8, 11, 52, 1023}, FloatLayout{DType::float32, 4, 8, 23, 127},
    FloatLayout{DType::bfloat16, 2, 8, 7, 127}, FloatLayout{DType::float16, 2, 5, 10, 15},
    FloatLayout{DType::float8_e5m2, 1, 5, 2, 15}};

bool fills_its_bytes(Id type) {
  return H5Tget_precision(type) == 8 * H5Tget_size(type) && H5Tget_offset(type) == 0;
}

// The bits of a number that count, where padding is around them; empty: all of them.
std::vector<std::byte> mask_of(Id type) {
  const H5T_order_t order = H5Tget_order(type);
  if (fills_its_bytes(type) || (order != H5T_ORDER_LE && order != H5T_ORDER_BE)) return {};
  std::vector<std::byte> mask(H5Tget_size(type));
  const auto first = static_cast<std::size_t>(H5Tget_offset(type));
  for (std::size_t bit = first; bit < first + H5Tget_precision(type); ++bit) {
    const std::size_t byte = order == H5T_ORDER_LE ? bit / 8 : mask.size() - 1 - bit / 8;
    mask[byte] |= std::byte{1} << (bit % 8);
  }
  return mask;
}

std::string named_bytes(const char* what, Id type) {
  return std::string(what) + " of " + std::to_string(H5Tget_size(type)) + " bytes";
}

std::string with_order(std::string name, Id type) {
  return H5Tget_size(type) > 1 && H5Tget_order(type) == H5T_ORDER_BE ? name + " big-endian" : name;
}

void take_integer(Id type, ElementType& out) {
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  const H5T_order_t order = H5Tget_order(type);
  const std::size_t size = out.size;
  const bool known = size == 1 || size == 2 || size == 4 || size == 8;
  if (!known || !fills_its_bytes(type) || (order != H5T_ORDER_LE && order != H5T_ORDER_BE)) {
    out.kind = Kind::bytes;
    out.mask = mask_of(type);
    out.description = named_bytes("integer", type) + ", " + std::to_string(H5Tget_precision(type)) +
                      " bits at " + std::to_string(H5Tget_offset(type)) + ", sign " +
                      std::to_string(is_signed) + ", order " + std::to_string(order);
    return;
  }
  out.kind = Kind::number;
  out.number.dtype = size == 1   ? (is_signed ? DType::int8 : DType::uint8)
                     : size == 2 ? DType::int16
                     : size == 4 ? DType::int32
                                 : DType::int64;
  out.number.is_unsigned = !is_signed && size > 1;
  out.number.big_endian = size > 1 && order == H5T_ORDER_BE;
  const std::string name = (is_signed ? "int" : "uint") + std::to_string(8 * size);
  out.description = with_order(name, type);
}

void take_float(const Caller& caller, Id type, ElementType& out) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  caller.check(H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits));
  const std::size_t bias = H5Tget_ebias(type);
  const H5T_order_t order = H5Tget_order(type);
  const auto known = std::find_if(kFloats.begin(), kFloats.end(), [&](const FloatLayout& layout) {
    return layout.size == out.size && layout.exponent_bits == exponent_bits &&
           layout.mantissa_bits == mantissa_bits && layout.bias == bias && mantissa == 0 &&
           exponent == mantissa_bits && sign == exponent_bits + mantissa_bits;
  });
  const bool plain = fills_its_bytes(type) && H5Tget_norm(type) == H5T_NORM_IMPLIED &&
                     (order == H5T_ORDER_LE || order == H5T_ORDER_BE);
  if (known != kFloats.end() && plain) {
    out.kind = Kind::number;
    out.number.dtype = known->dtype;
    out.number.big_endian = out.size > 1 && order == H5T_ORDER_BE;
    out.description = with_order(std::string(name_of(known->dtype)), type);
    return;
  }
  out.kind = Kind::bytes;
  out.mask = mask_of(type);
  out.description = named_bytes("float", type) + ", sign " + std::to_string(sign) + ", exponent " +
                    std::to_string(exponent) + "+" + std::to_string(exponent_bits) + ", mantissa " +
                    std::to_string(mantissa) + "+" + std::to_string(mantissa_bits) + ", bias " +
                    std::to_string(bias) + ", normalised " + std::to_string(H5Tget_norm(type)) +
                    ", order " + std::to_string(order);
}

void take_text(Id type, ElementType& out) {
  out.kind = Kind::text;
  out.variable = H5Tis_variable_str(type) > 0;
  const H5T_str_t padding = H5Tget_strpad(type);
  out.padding = padding == H5T_STR_NULLPAD    ? ElementType::Padding::nul_padded
                : padding == H5T_STR_SPACEPAD ? ElementType::Padding::space_padded
                                              : ElementType::Padding::nul_ended;
  const char* charset = H5Tget_cset(type) == H5T_CSET_UTF8 ? " utf-8" : "";
  out.description = out.variable ? std::string("text") + charset
                                 : "text of " + std::to_string(out.size) + " bytes" + charset +
                                       (padding == H5T_STR_SPACEPAD  ? " padded with spaces"
                                        : padding == H5T_STR_NULLPAD ? ""
                                                                     : " ended by NUL");
}

void take_bit_field(Id type, ElementType& out) {
  out.kind = Kind::bytes;
  out.mask = mask_of(type);
  out.description = with_order(named_bytes("bit field", type), type);
  if (fills_its_bytes(type)) return;
  out.description += ", " + std::to_string(H5Tget_precision(type)) + " bits at " +
                     std::to_string(H5Tget_offset(type));
}

void take_opaque(Id type, ElementType& out) {
  out.kind = Kind::bytes;
  char* tag = H5Tget_tag(type);
  out.description = named_bytes("opaque", type) + (tag != nullptr ? std::string(", ") + tag : "");
  H5free_memory(tag);
}

ElementType parse(const Caller& caller, Id type, int depth);

std::string member_name(const Caller& caller, Id type, unsigned at) {
  char* text = H5Tget_member_name(type, at);
  if (text == nullptr) caller.check(-1);
  std::string name(text);
  H5free_memory(text);
  return name;
}

void take_compound(const Caller& caller, Id type, ElementType& out, int depth) {
  const int count = H5Tget_nmembers(type);
  caller.check(count);
  out.kind = Kind::compound;
  out.description = "{";
  for (unsigned at = 0; at < static_cast<unsigned>(count); ++at) {
    const Handle member = caller.own(H5Tget_member_type(type, at), H5Tclose);
    out.part_names.push_back(member_name(caller, type, at));
    out.part_offsets.push_back(H5Tget_member_offset(type, at));
    out.parts.push_back(parse(caller, member.get(), depth + 1));
    out.description +=
        (at == 0 ? "" : ", ") + out.part_names.back() + ": " + out.parts.back().description;
  }
  out.description += "}";
}

// As h5py spells it, over a byte with or without a sign.
bool is_boolean(const ElementType& type) {
  const auto has = [&](const char* name, int value) {
    const ElementType::Name wanted{name, {static_cast<std::byte>(value)}};
    return std::find(type.names.begin(), type.names.end(), wanted) != type.names.end();
  };
  return type.size == 1 && type.names.size() == 2 && has("FALSE", 0) && has("TRUE", 1);
}

void take_enumeration(const Caller& caller, Id type, ElementType& out, int depth) {
  const int count = H5Tget_nmembers(type);
  caller.check(count);
  if (out.size == 1 && count == 256 &&
      H5Tequal(type, file_type(caller, DType::float8_e4m3fn).get()) > 0) {
    out.kind = Kind::number;
    out.number.dtype = DType::float8_e4m3fn;
    out.description = name_of(out.number.dtype);
    return;
  }
  const Handle base = caller.own(H5Tget_super(type), H5Tclose);
  out.kind = Kind::enumeration;
  out.parts.push_back(parse(caller, base.get(), depth + 1));
  out.description = "enum of " + out.parts[0].description + " {";
  for (unsigned at = 0; at < static_cast<unsigned>(count); ++at) {
    ElementType::Name entry{member_name(caller, type, at), std::vector<std::byte>(out.size)};
    caller.check(H5Tget_member_value(type, at, entry.value.data()));
    out.description += (at == 0 ? "" : ", ") + entry.name + "=";
    for (const std::byte byte : entry.value) {
      out.description += std::to_string(std::to_integer<int>(byte)) + ".";
    }
    out.names.push_back(std::move(entry));
  }
  out.description += "}";
  if (!is_boolean(out)) return;
  out.kind = Kind::number;
  out.number.dtype = DType::boolean;
  out.description = name_of(out.number.dtype);
}

void take_repeated(const Caller& caller, Id type, ElementType& out, int depth, Kind kind) {
  const Handle base = caller.own(H5Tget_super(type), H5Tclose);
  out.kind = kind;
  out.parts.push_back(parse(caller, base.get(), depth + 1));
  out.description = out.parts[0].description;
  if (kind == Kind::vlen) {
    out.description = "lists of " + out.description;
    return;
  }
  std::array<hsize_t, H5S_MAX_RANK> dimensions{};
  const int rank = H5Tget_array_dims2(type, dimensions.data());
  caller.check(rank);
  out.count = 1;
  for (int at = 0; at < rank; ++at) {
    const hsize_t size = dimensions[static_cast<std::size_t>(at)];
    out.count *= size;
    out.dimensions.push_back(size);
    out.description += "[" + std::to_string(size) + "]";
  }
}

ElementType parse(const Caller& caller, Id type, int depth) {
  if (depth > kMostNested) caller.fail("an element type is nested too deeply");
  ElementType out;
  out.size = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  caller.check(kind);
  switch (kind) {
    case H5T_INTEGER:
      take_integer(type, out);
      break;
    case H5T_FLOAT:
      take_float(caller, type, out);
      break;
    case H5T_STRING:
      take_text(type, out);
      break;
    case H5T_BITFIELD:
      take_bit_field(type, out);
      break;
    case H5T_OPAQUE:
      take_opaque(type, out);
      break;
    case H5T_COMPOUND:
      take_compound(caller, type, out, depth);
      break;
    case H5T_ENUM:
      take_enumeration(caller, type, out, depth);
      break;
    case H5T_VLEN:
      take_repeated(caller, type, out, depth, Kind::vlen);
      break;
    case H5T_ARRAY:
      take_repeated(caller, type, out, depth, Kind::array);
      break;
    case H5T_REFERENCE:
      out.kind = H5Tequal(type, H5T_STD_REF_OBJ) > 0 ? Kind::reference : Kind::unknown;
      out.description = out.kind == Kind::reference ? "reference" : "region reference";
      break;
    default:
      out.description = "type of class " + std::to_string(kind);
  }
  return out;
}

}  // namespace

ElementType element_type(const Caller& caller, Id type) { return parse(caller, type, 0); }

bool is_indirect(const ElementType& type) {
  if (type.kind == Kind::vlen || type.kind == Kind::reference || type.variable) return true;
  return std::any_of(type.parts.begin(), type.parts.end(), is_indirect);
}

}  // namespace ttrace::h5
