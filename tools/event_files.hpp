// SPDX-License-Identifier: Apache-2.0
// What ttrace-infer and ttrace-check read, and what they note about it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "invariant/compat/trace.hpp"
#include "invariant/record.hpp"
#include "invariant/signature.hpp"

namespace ttrace {

// `file`, or "signatures.json" in the first of the traces' folders that has one, or an empty table.
[[nodiscard]] invariant::Signatures read_signatures(const std::string& file,
                                                    std::span<const std::string> traces,
                                                    invariant::Values& values);
void note_no_signatures();

// Lines that could not be read.
void note_damage(std::span<const invariant::Damage> damage);
// Functions whose arguments by position have no names.
void note_unknown(const invariant::Signatures& signatures, const invariant::Values& values,
                  std::span<const invariant::Record> records);
// What TrainCheck would have ended with an error for.
void note_tolerated(const invariant::compat::Tolerated& tolerated);

}  // namespace ttrace
