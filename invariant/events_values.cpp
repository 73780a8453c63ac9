// SPDX-License-Identifier: Apache-2.0
#include "invariant/events_values.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace ttrace::invariant {

namespace {

constexpr int kDeepest = 64;

// Flags of a tensor.
constexpr std::uint32_t kRequiresGrad = 1, kLeaf = 2, kHasGrad = 4, kRetainsGrad = 8, kNested = 16,
                        kQuantized = 32;

class Decoder {
 public:
  Decoder(std::string_view& bytes, Values& values) : bytes_(bytes), values_(values) {}

  bool value(Value& value, int depth) {
    char tag = 0;
    if (depth > kDeepest || !number(tag)) return false;
    switch (tag) {
      case 'n':
        value = none();
        return true;
      case 't':
      case 'f':
        value = boolean(tag == 't');
        return true;
      case 'i':
        return integer_value(value);
      case 'd':
        return real_value(value);
      case 's':
        return string_value(value);
      case 'l':
        return list(value, depth);
      case 'o':
        return object(value, depth);
      case 'T':
        return tensor(value);
      default:
        return false;
    }
  }

 private:
  template <class Number>
  bool number(Number& number) {
    if (bytes_.size() < sizeof number) return false;
    std::memcpy(&number, bytes_.data(), sizeof number);
    bytes_.remove_prefix(sizeof number);
    return true;
  }

  bool text(std::string_view& text) {
    std::uint32_t size = 0;
    if (!number(size) || bytes_.size() < size) return false;
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  bool integer_value(Value& value) {
    std::int64_t found = 0;
    if (!number(found)) return false;
    value = integer(found);
    return true;
  }

  bool real_value(Value& value) {
    double found = 0;
    if (!number(found)) return false;
    value = real(found);
    return true;
  }

  bool string_value(Value& value) {
    std::string_view found;
    if (!text(found)) return false;
    value = values_.string(found);
    return true;
  }

  bool list(Value& value, int depth) {
    std::uint32_t count = 0;
    if (!number(count) || count > bytes_.size()) return false;  // each is a byte at least
    std::vector<Value> elements(count);
    for (Value& element : elements) {
      if (!this->value(element, depth + 1)) return false;
    }
    value = values_.list(elements);
    return true;
  }

  bool object(Value& value, int depth) {
    std::uint32_t count = 0;
    if (!number(count) || count > bytes_.size()) return false;
    std::vector<Member> members(count);
    for (Member& member : members) {
      std::string_view name;
      if (!text(name) || !this->value(member.value, depth + 1)) return false;
      member.name = values_.name(name);
    }
    value = values_.object(members);
    return true;
  }

  bool tensor(Value& value);
  Value attributes(std::string_view dtype, std::string_view device, std::string_view layout,
                   std::uint32_t flags, std::uint32_t itemsize, std::span<const Value> shape,
                   std::int64_t elements);

  std::string_view& bytes_;
  Values& values_;
};

bool Decoder::tensor(Value& value) {
  std::string_view kind, dtype, device, layout;
  std::uint32_t flags = 0, itemsize = 0, dimensions = 0;
  if (!text(kind) || !text(dtype) || !text(device) || !text(layout) || !number(flags) ||
      !number(itemsize) || !number(dimensions) || dimensions > bytes_.size() / 8) {
    return false;
  }
  std::vector<Value> shape(dimensions);
  std::int64_t elements = 1;
  for (Value& extent : shape) {
    if (!integer_value(extent)) return false;
    if (__builtin_mul_overflow(elements, extent.integer, &elements)) return false;
  }
  const Member member = {values_.name(kind),
                         attributes(dtype, device, layout, flags, itemsize, shape, elements)};
  value = values_.object({&member, 1});
  return true;
}

Value Decoder::attributes(std::string_view dtype, std::string_view device, std::string_view layout,
                          std::uint32_t flags, std::uint32_t itemsize, std::span<const Value> shape,
                          std::int64_t elements) {
  std::vector<Member> members;
  const auto add = [&](std::string_view name, Value value) {
    members.push_back({values_.name(name), value});
  };
  const bool leaf = (flags & kLeaf) != 0;
  add("dtype", values_.string(dtype));
  if ((flags & kHasGrad) == 0) add("grad", none());
  if (leaf) {
    add("grad_dtype", values_.string(dtype));
    add("grad_fn", none());
  }
  // In the order of TrainCheck's files.
  constexpr std::array<std::string_view, 3> kFirst = {"cpu", "cuda", "ipu"};
  constexpr std::array<std::string_view, 5> kSecond = {"maia", "meta", "mkldnn", "mps", "mtia"};
  for (const std::string_view name : kFirst) {
    add("is_" + std::string(name), boolean(device == name));
  }
  add("is_leaf", boolean(leaf));
  for (const std::string_view name : kSecond) {
    if (name == "mkldnn") {
      add("is_mkldnn", boolean(layout == "torch._mkldnn"));
    } else {
      add("is_" + std::string(name), boolean(device == name));
    }
  }
  add("is_nested", boolean((flags & kNested) != 0));
  add("is_quantized", boolean((flags & kQuantized) != 0));
  add("is_sparse", boolean(layout == "torch.sparse_coo"));
  add("is_sparse_csr", boolean(layout == "torch.sparse_csr"));
  for (const std::string_view name : {"vulkan", "xla", "xpu"}) {
    add("is_" + std::string(name), boolean(device == name));
  }
  add("itemsize", integer(itemsize));
  add("name", none());
  add("nbytes", integer(elements * static_cast<std::int64_t>(itemsize)));
  add("ndim", integer(static_cast<std::int64_t>(shape.size())));
  add("requires_grad", boolean((flags & kRequiresGrad) != 0));
  add("retains_grad", boolean((flags & kRetainsGrad) != 0));
  add("shape", values_.list(shape));
  return values_.object(members);
}

}  // namespace

bool take_value(std::string_view& bytes, Values& values, Value& value) {
  return Decoder(bytes, values).value(value, 0);
}

}  // namespace ttrace::invariant
