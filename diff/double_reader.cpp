// SPDX-License-Identifier: Apache-2.0
// See double_reader.hpp. read_box lets pages go, so memory is that of the boxes that are read.
#include "diff/double_reader.hpp"

#include <algorithm>

#include "diff/convert.hpp"
#include "diff/judge.hpp"
#include "diff/parts.hpp"
#include "diff/tiles.hpp"

namespace ttrace {

bool readable_with_sums(const LogicalTensor& tensor) {
  if (readable(tensor)) return true;
  const bool only_sums = std::all_of(
      tensor.problems.begin(), tensor.problems.end(),
      [](const Finding& problem) { return problem.kind == FindingKind::partial_incomplete; });
  return only_sums && !tensor.layout.partial.empty() && !tensor.shards.empty() &&
         kept_of(tensor) == RecordKind::full && all_addends(tensor);
}

DoubleReader::DoubleReader(const LogicalTensor& tensor) : tensor_(&tensor) {
  if (tensor.layout.partial.empty()) return;
  const std::vector<Source> sources = sources_of(tensor);
  std::size_t addends = 0;
  for (const Source& source : sources) addends = std::max(addends, source.shards.size());
  for (std::size_t i = 0; i < addends; ++i) {
    LogicalTensor addend = tensor;
    addend.shards.clear();
    for (const Source& source : sources) {
      if (i < source.shards.size()) addend.shards.push_back(*source.shards[i]);
    }
    // That they are still to be added is what happens here.
    std::erase_if(addend.problems, [](const Finding& problem) {
      return problem.kind == FindingKind::partial_incomplete;
    });
    addends_.push_back(std::move(addend));
  }
}

StoredValues DoubleReader::stored(const Box& box) const {
  const DType type = tensor_->dtype;
  if (!addends_.empty() || !is_floating(type)) {
    read(box, doubles_);
    return {DType::float64, reinterpret_cast<const std::byte*>(doubles_.data())};
  }
  view_ = view_box(*tensor_, box);
  if (view_.data() != nullptr) return {type, view_.data()};
  bytes_.resize(volume(box) * size_of(type));
  read_box(*tensor_, box, bytes_.data());
  return {type, bytes_.data()};
}

void DoubleReader::read(const Box& box, std::vector<double>& out) const {
  const std::uint64_t count = volume(box);
  const DType type = tensor_->dtype;
  bytes_.resize(count * size_of(type));
  out.resize(count);
  if (addends_.empty() && is_floating(type)) {
    read_box(*tensor_, box, bytes_.data());
    return convert(type, bytes_.data(), count, DType::float64,
                   reinterpret_cast<std::byte*>(out.data()));
  }
  if (addends_.empty()) return read_doubles(*tensor_, box, out);  // integers
  std::fill(out.begin(), out.end(), 0.0);
  for (const LogicalTensor& addend : addends_) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});  // a place may have fewer addends
    read_box(addend, box, bytes_.data());
    add_as_double(type, bytes_.data(), count, out.data());
  }
  if (sum_type(type) != DType::float32) return;
  // What the run itself would have added up it would have held in single precision.
  for (double& value : out) value = static_cast<double>(static_cast<float>(value));
}

double DoubleReader::at(const Shape& position) const {
  std::vector<double> value;
  read({position, Shape(position.size(), 1)}, value);
  return value.at(0);
}

}  // namespace ttrace
