// SPDX-License-Identifier: Apache-2.0
// Floats of 16 and 8 bits to floats of 32 (the values of `widen` in dtype.hpp), for one instruction
// set. 8-bit floats go by way of float16, whose exponents hold theirs. Included once for each
// target.
#if defined(TTRACE_DIFF_STRIP_WIDEN_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_DIFF_STRIP_WIDEN_INL
#undef TTRACE_DIFF_STRIP_WIDEN_INL
#else
#define TTRACE_DIFF_STRIP_WIDEN_INL
#endif

#include <hwy/highway.h>

#include "diff/strip.hpp"

HWY_BEFORE_NAMESPACE();
namespace ttrace::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WideFloats = hn::CappedTag<float, kStripStep>;
using WideFloat = hn::Vec<WideFloats>;
using Codes16 = hn::Rebind<std::uint16_t, WideFloats>;
using Codes8 = hn::Rebind<std::uint8_t, WideFloats>;
constexpr std::size_t kFloats = hn::MaxLanes(WideFloats());

HWY_INLINE WideFloat widen_half(hn::Vec<Codes16> code) {
  const WideFloats floats;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::PromoteTo(floats, hn::BitCast(hn::Rebind<hwy::float16_t, WideFloats>(), code));
#else
  // By bits, so that no instruction has to multiply a subnormal number.
  const hn::RebindToUnsigned<WideFloats> words;
  const auto wide = hn::PromoteTo(words, code);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(words, 0x8000u)));
  const auto size = hn::ShiftLeft<13>(hn::And(wide, hn::Set(words, 0x7fffu)));
  const auto normal = hn::Add(size, hn::Set(words, 112u << 23));
  const auto raised = hn::BitCast(floats, hn::Add(size, hn::Set(words, 113u << 23)));
  const auto subnormal = hn::BitCast(words, hn::Sub(raised, hn::Set(floats, 0x1p-14f)));
  const auto special = hn::Add(size, hn::Set(words, 224u << 23));
  const auto is_subnormal = hn::Gt(hn::Set(words, 1u << 23), size);
  const auto is_special = hn::Gt(size, hn::Set(words, (31u << 23) - 1));
  const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
  return hn::BitCast(floats, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
#endif
}

HWY_INLINE WideFloat widen_e4m3(hn::Vec<Codes16> code) {
  const Codes16 codes;
  const WideFloats floats;
  const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(codes, std::uint16_t{0x80})));
  const auto size = hn::ShiftLeft<7>(hn::And(code, hn::Set(codes, std::uint16_t{0x7f})));
  const auto value = hn::Mul(widen_half(hn::Or(sign, size)), hn::Set(floats, 256.0f));
  // 0x7f, which would be 480, is NaN.
  return hn::IfThenElse(hn::Eq(hn::Abs(value), hn::Set(floats, 480.0f)), hn::NaN(floats), value);
}

HWY_INLINE WideFloat load_as_float(BFloat16, const std::byte* from, std::size_t i) {
  const auto code = hn::LoadU(Codes16(), reinterpret_cast<const std::uint16_t*>(from) + i);
  const hn::RebindToUnsigned<WideFloats> words;
  return hn::BitCast(WideFloats(), hn::ShiftLeft<16>(hn::PromoteTo(words, code)));
}
HWY_INLINE WideFloat load_as_float(Float16, const std::byte* from, std::size_t i) {
  return widen_half(hn::LoadU(Codes16(), reinterpret_cast<const std::uint16_t*>(from) + i));
}
HWY_INLINE hn::Vec<Codes16> load_bytes(const std::byte* from, std::size_t i) {
  const auto code = hn::LoadU(Codes8(), reinterpret_cast<const std::uint8_t*>(from) + i);
  return hn::PromoteTo(Codes16(), code);
}
HWY_INLINE WideFloat load_as_float(Float8E5M2, const std::byte* from, std::size_t i) {
  return widen_half(hn::ShiftLeft<8>(load_bytes(from, i)));
}
HWY_INLINE WideFloat load_as_float(Float8E4M3, const std::byte* from, std::size_t i) {
  return widen_e4m3(load_bytes(from, i));
}

template <class T>
HWY_INLINE void widen_all(const std::byte* HWY_RESTRICT from, std::size_t count,
                          float* HWY_RESTRICT into) {
  for (std::size_t i = 0; i < count; i += kFloats) {
    hn::StoreU(load_as_float(T{}, from, i), WideFloats(), into + i);
  }
}

}  // namespace ttrace::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
