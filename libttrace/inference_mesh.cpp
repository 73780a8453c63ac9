// SPDX-License-Identifier: Apache-2.0
// Which mesh axes can have cut a tensor: those along which its ranks differ.
#include <algorithm>
#include <set>

#include "libttrace/inference_family.hpp"

namespace ttrace {
namespace {

using Column = std::vector<std::uint64_t>;  // coordinates along one axis, by rank

bool better_name(const std::string& left, const std::string& right) {
  return left.size() != right.size() ? left.size() < right.size() : left < right;
}

// Whether equal entries of `argument` always stand beside equal entries of `value`.
bool is_function(const Column& argument, const Column& value) {
  std::map<std::uint64_t, std::uint64_t> seen;
  for (std::size_t i = 0; i < argument.size(); ++i) {
    if (seen.emplace(argument[i], value[i]).first->second != value[i]) return false;
  }
  return true;
}

bool is_constant(const Column& column) {
  return std::adjacent_find(column.begin(), column.end(), std::not_equal_to<>()) == column.end();
}

}  // namespace

RankMesh mesh_of(const std::vector<Coordinates>& ranks, const std::vector<MeshAxis>& incomplete) {
  std::set<std::string, decltype(&better_name)> names(&better_name);
  for (const Coordinates& where : ranks) {
    for (const auto& [name, position] : where) names.insert(name);
  }
  RankMesh mesh;
  std::vector<Column> columns;
  for (const std::string& name : names) {
    Column column;
    std::uint64_t size = 1;
    for (const Coordinates& where : ranks) {
      const AxisPosition position = position_on(where, name);
      column.push_back(position.coord);
      size = std::max(size, position.size);
    }
    if (is_constant(column)) continue;
    const auto known = std::find(columns.begin(), columns.end(), column);
    if (known != columns.end()) {
      // Of axes with equal columns the one all of whose coordinates are here is the one that cuts:
      // of 4 expert parallel ranks 2 may share a micro-batch.
      MeshAxis& axis = mesh.axes[static_cast<std::size_t>(known - columns.begin())];
      const std::uint64_t here = std::set(column.begin(), column.end()).size();
      if (size == here && axis.size > here) axis = {name, size};
      continue;
    }
    columns.push_back(std::move(column));
    mesh.axes.push_back({name, size});
  }
  const std::size_t differing = mesh.axes.size();
  for (const MeshAxis& axis : incomplete) {
    const auto same = [&axis](const MeshAxis& known) { return known.name == axis.name; };
    if (std::none_of(mesh.axes.begin(), mesh.axes.end(), same)) mesh.axes.push_back(axis);
  }
  mesh.exclusive.assign(mesh.axes.size(), std::vector<bool>(mesh.axes.size(), false));
  for (std::size_t i = 0; i < differing; ++i) {
    for (std::size_t j = 0; j < differing; ++j) {
      const bool tied = is_function(columns[i], columns[j]) || is_function(columns[j], columns[i]);
      mesh.exclusive[i][j] = i == j || tied;
    }
  }
  return mesh;
}

}  // namespace ttrace
