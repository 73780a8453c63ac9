// SPDX-License-Identifier: Apache-2.0
// See tensor_check.hpp.
#include "capture/tensor_check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "capture/feed_layout.hpp"
#include "libttrace/core/dtype.hpp"
#include "libttrace/core/key.hpp"
#include "libttrace/core/message.hpp"

namespace ttrace {
namespace {

constexpr std::uint8_t kKindCount = 3;
constexpr std::size_t kSizeOfVersion1 = offsetof(ttrace_tensor, device);

std::string_view view(const char* text) { return text == nullptr ? std::string_view{} : text; }

std::string check_codes(const ttrace_tensor& tensor) {
  if (tensor.phase >= kPhaseCount) return "phase " + std::to_string(tensor.phase) + " is unknown";
  if (!dtype_from_code(tensor.dtype))
    return "dtype " + std::to_string(tensor.dtype) + " is unknown";
  if (tensor.kind >= kKindCount) return "kind " + std::to_string(tensor.kind) + " is unknown";
  if (tensor.ndim > kMaxDimensions) {
    return std::to_string(tensor.ndim) + " dimensions, at most 16 are possible";
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) return "shape is NULL";
  if (tensor.microbatch < -1) return "microbatch is below -1";
  if (tensor.device > TTRACE_ANYWHERE)
    return "device " + std::to_string(tensor.device) + " is unknown";
  return {};
}

std::string check_names(const CheckedTensor& checked) {
  if (checked.module.empty()) return "module is empty, the whole model is called @root";
  if (checked.slot.empty()) return "slot is empty";
  for (const std::string_view name : {checked.module, checked.slot, checked.raw_name}) {
    if (name.size() > kMaxNameBytes) return "a name is longer than 65536 bytes";
  }
  if (checked.layout.size() > kMaxLayoutBytes) return "layout is longer than 1 MiB";
  return {};
}

// Of the packed tensor; false when that does not fit in 63 bits.
bool size_of_tensor(const ttrace_tensor& tensor, std::uint64_t& bytes) {
  bytes = size_of(static_cast<DType>(tensor.dtype));
  bool fits = true;
  for (std::uint8_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) {
      bytes = 0;
      return true;
    }
    fits = fits && !__builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
  }
  return fits && bytes >> 63 == 0;
}

std::string check_alias(const ttrace_tensor& tensor, std::uint64_t bytes,
                        const std::vector<RecordedTensor>& earlier) {
  if (tensor.alias_of < -1) return "alias_of is below -1";
  if (tensor.alias_of == -1) {
    return tensor.data == nullptr && bytes != 0 ? "data is NULL" : "";
  }
  if (static_cast<std::uint64_t>(tensor.alias_of) >= earlier.size()) {
    return "alias_of " + std::to_string(tensor.alias_of) +
           " is no earlier record of this iteration";
  }
  const RecordedTensor& target = earlier[static_cast<std::size_t>(tensor.alias_of)];
  if (target.bytes == bytes && target.dtype == tensor.dtype) return {};
  return "alias_of " + std::to_string(tensor.alias_of) + " has another size or dtype";
}

}  // namespace

ttrace_tensor complete(const ttrace_tensor& given, std::int32_t microbatch, const char* scope) {
  ttrace_tensor tensor{};
  std::memcpy(&tensor, &given, std::min<std::size_t>(given.struct_size, sizeof tensor));
  if (tensor.microbatch == TTRACE_CURRENT) tensor.microbatch = microbatch;
  if (tensor.module == nullptr) tensor.module = *scope == '\0' ? "@root" : scope;
  return tensor;
}

CheckedTensor check_tensor(const ttrace_tensor& tensor,
                           const std::vector<RecordedTensor>& earlier) {
  CheckedTensor checked;
  if (tensor.struct_size < kSizeOfVersion1) {
    checked.problem = "struct_size is not set";
    return checked;
  }
  checked.module = view(tensor.module);
  checked.slot = view(tensor.slot);
  checked.raw_name = view(tensor.raw_name);
  checked.layout = view(tensor.layout);
  checked.problem = check_names(checked);
  if (checked.problem.empty()) checked.problem = check_codes(tensor);
  if (checked.problem.empty()) checked.problem = layout_problem(checked.layout);
  if (!checked.problem.empty()) return checked;
  if (!size_of_tensor(tensor, checked.bytes)) {
    checked.problem = "shape is larger than any memory";
    return checked;
  }
  checked.problem = check_alias(tensor, checked.bytes, earlier);
  return checked;
}

}  // namespace ttrace
