// SPDX-License-Identifier: Apache-2.0
// Several documents may be packed into one sequence and each be cut by itself. Where they end
// differs from micro-batch to micro-batch and stands in an integer input of the model: offsets that
// begin with 0 (cu_seqlens), or positions that begin at 0 with each document. Nothing is known of
// names: an input that looks like either offers its sections, and content decides.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/logical.hpp"

namespace ttrace {

using DocumentLengths = std::vector<std::uint64_t>;
using Documents = std::map<std::string, DocumentLengths>;  // of one micro-batch, by input

// Lengths of the documents, none of them 0; nullopt when the values look like neither. Of rows that
// are all the same those of one row, of other rows those of all of them, one after the other.
[[nodiscard]] std::optional<DocumentLengths> document_lengths(const std::vector<double>& values,
                                                              const Shape& shape);

[[nodiscard]] Key root_input(const std::string& slot, std::int32_t microbatch);
// Whether the key and type are those of an input of the model that may tell where documents end.
[[nodiscard]] bool may_tell_documents(const Key& key, DType dtype);

// What the inputs of micro-batches tell. What is added first counts.
class DocumentTable {
 public:
  void add(const LogicalTensors& tensors);
  // Of undecided layouts: inputs that all ranks have alike.
  void add(const ShardGroups& groups);
  void add(const Key& key, const Shard& whole);

  [[nodiscard]] const Documents* of(const Key& key) const;
  // Whether any input tells of more than one document: where none does, nothing is packed.
  [[nodiscard]] bool packed() const { return packed_; }

 private:
  using Microbatch = std::pair<std::int64_t, std::int32_t>;  // iteration, number
  void add(const Key& key, const std::vector<double>& values, const Shape& shape);

  std::map<Microbatch, Documents> documents_;
  Documents none_;
  bool packed_ = false;
};

// The cuts with the sections of a micro-batch. Those of inputs that it lacks stay open.
[[nodiscard]] std::vector<Cut> with_documents(std::vector<Cut> cuts, const Documents* documents);
[[nodiscard]] Layout with_documents(Layout layout, const Documents* documents);
// The first input that a cut names and that these do not have; "" when there is none.
[[nodiscard]] std::string missing_documents(const Layout& layout, const Documents* documents);
[[nodiscard]] std::string untold_documents(const std::string& input);  // what to tell the user then

}  // namespace ttrace
