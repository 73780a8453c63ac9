// SPDX-License-Identifier: Apache-2.0
#include "invariant/columns.hpp"

namespace ttrace::invariant {
namespace {

constexpr std::string_view kMeta = "meta_vars.";
constexpr std::string_view kAttributes = "attributes.";

bool counts(std::string_view name) {
  for (const std::string_view end : {"step", "steps", "epoch", "iteration", "iter", "batch_idx"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

Column meta_column(std::string_view name) {
  if (name == "step") return Column::step;
  if (name == "stage") return Column::stage;
  return counts(name) ? Column::counter : Column::meta;
}

Column attribute_column(std::string_view name) {
  if (is_identity(name)) return Column::identity;
  if (name.starts_with("is_") || name.starts_with("has_") || name.starts_with("can_")) {
    return Column::flag;
  }
  return is_content(name) ? Column::content : Column::attribute;
}

Column column_of(std::string_view name) {
  if (name.starts_with(kMeta)) return meta_column(name.substr(kMeta.size()));
  if (name.starts_with(kAttributes)) return attribute_column(name.substr(kAttributes.size()));
  if (name == "mode") return Column::mode;
  if (name == "dump_loc") return Column::location;
  if (name == "obj_id") return Column::object;
  return Column::other;
}

}  // namespace

bool is_content(std::string_view attribute) {
  return attribute == "data" || attribute == "grad" || attribute.starts_with("data.") ||
         attribute.starts_with("grad.");
}

bool is_of_interest(std::string_view attribute) {
  if (is_identity(attribute)) return false;
  if (attribute.starts_with("is_")) return attribute == "is_leaf" || attribute == "is_cuda";
  for (const std::string_view other :
       {"name", "retains_grad", "grad_dtype", "itemsize", "nbytes", "var_type"}) {
    if (attribute == other) return false;
  }
  return true;
}

bool is_identity(std::string_view name) {
  return name.find("_TRAINCHECK_") != std::string_view::npos ||
         name.find("_ML_DAIKON") != std::string_view::npos;
}

Column Columns::of(Name column) {
  if (column >= columns_.size()) columns_.resize(column + 1, Column::unknown);
  Column& known = columns_[column];
  if (known == Column::unknown) known = column_of(values_->text(column));
  return known;
}

Name Columns::attribute(Name column) {
  if (column >= attributes_.size()) attributes_.resize(column + 1, 0);
  if (attributes_[column] == 0) {
    const Name name = values_->name(values_->text(column).substr(kAttributes.size()));
    attributes_[column] = name;
  }
  return attributes_[column];
}

}  // namespace ttrace::invariant
