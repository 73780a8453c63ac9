// SPDX-License-Identifier: Apache-2.0
// See masters.hpp.
#include "diff/masters.hpp"

#include "diff/tiles.hpp"

namespace ttrace {
namespace {

constexpr std::uint64_t kTile = 65536;

// The upper half of a float32, rounded to nearest even; NaN stays one.
std::uint16_t rounded(std::uint32_t bits) {
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  if (nan) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// Elements of the parameter that are not the rounded master.
std::uint64_t count_unrounded(const LogicalTensor& parameter, const LogicalTensor& master) {
  std::vector<std::uint16_t> stored;
  std::vector<std::uint32_t> wide;
  std::uint64_t unequal = 0;
  for (const Box& box : tiles_of(parameter.shape, kTile)) {
    const std::uint64_t count = volume(box);
    stored.resize(count);
    wide.resize(count);
    read_box(parameter, box, reinterpret_cast<std::byte*>(stored.data()));
    read_box(master, box, reinterpret_cast<std::byte*>(wide.data()));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint16_t right = rounded(wide[i]);
      // Both zeros are one value, and a NaN has no other.
      const bool same = stored[i] == right || ((stored[i] | right) & 0x7fffU) == 0 ||
                        ((stored[i] & 0x7fffU) > 0x7f80U && (right & 0x7fffU) > 0x7f80U);
      unequal += same ? 0 : 1;
    }
  }
  return unequal;
}

}  // namespace

std::vector<Finding> unrounded_masters(const Side& side, const std::string& filter,
                                       const std::string& name) {
  std::vector<Finding> findings;
  for (const auto& [key, parameter] : side.tensors) {
    if (key.phase != Phase::step || key.slot != "param" || !matches(filter, key)) continue;
    if (parameter.dtype != DType::bfloat16) continue;
    Key of_master = key;
    of_master.slot = "master";
    const auto master = side.tensors.find(of_master);
    if (master == side.tensors.end() || master->second.dtype != DType::float32 ||
        master->second.shape != parameter.shape || !readable(parameter) ||
        !readable(master->second)) {
      continue;
    }
    const std::uint64_t unequal = count_unrounded(parameter, master->second);
    if (unequal == 0) continue;
    Finding finding;
    finding.kind = FindingKind::not_equal;
    finding.key = key;
    finding.score = 1e12;
    finding.message = name + std::to_string(unequal) + " of " +
                      std::to_string(element_count(parameter.shape)) +
                      " elements are not their fp32 master, rounded";
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ttrace
