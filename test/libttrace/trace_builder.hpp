// SPDX-License-Identifier: Apache-2.0
// Builds small real traces in a temporary folder, and cuts tensors by plain index lists, so that
// the tests of inference know each answer without asking the code under test.
#pragma once

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/segment.hpp"
#include "libttrace/trace.hpp"

namespace ttrace::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ttrace-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// ---- tensors ----

struct Tensor {
  Shape shape;
  std::vector<float> values;
};

inline Tensor random_tensor(const Shape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  Tensor tensor{shape, std::vector<float>(element_count(shape))};
  // Sum of uniforms: close to normal, and the same with every standard library.
  for (float& value : tensor.values) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(generator()) * 0x1p-32;
    value = static_cast<float>(sum - 6);
  }
  return tensor;
}

inline Tensor constant_tensor(const Shape& shape, float value) {
  return {shape, std::vector<float>(element_count(shape), value)};
}

// Relative noise of standard deviation `size` on each element.
inline Tensor noisy(Tensor tensor, double size, unsigned seed) {
  const Tensor noise = random_tensor(tensor.shape, seed);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = static_cast<float>(tensor.values[i] * (1 + size * noise.values[i]));
  }
  return tensor;
}

inline Tensor scaled(Tensor tensor, float factor) {
  for (float& value : tensor.values) value *= factor;
  return tensor;
}

using Indices = std::vector<std::uint64_t>;

inline Indices range(std::uint64_t begin, std::uint64_t end) {
  Indices indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

inline Indices joined(Indices left, const Indices& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// The slices of `dim` at `indices`, in that order.
inline Tensor take(const Tensor& tensor, std::size_t dim, const Indices& indices) {
  Tensor taken{tensor.shape, {}};
  taken.shape[dim] = indices.size();
  std::uint64_t outer = 1;
  std::uint64_t inner = 1;
  for (std::size_t i = 0; i < dim; ++i) outer *= tensor.shape[i];
  for (std::size_t i = dim + 1; i < tensor.shape.size(); ++i) inner *= tensor.shape[i];
  for (std::uint64_t block = 0; block < outer; ++block) {
    for (const std::uint64_t index : indices) {
      const std::uint64_t from = (block * tensor.shape[dim] + index) * inner;
      for (std::uint64_t i = 0; i < inner; ++i) taken.values.push_back(tensor.values[from + i]);
    }
  }
  return taken;
}

// The `part`th of `parts` equal parts of `dim`.
inline Tensor part(const Tensor& tensor, std::size_t dim, std::uint64_t part, std::uint64_t parts) {
  const std::uint64_t size = tensor.shape[dim] / parts;
  return take(tensor, dim, range(part * size, (part + 1) * size));
}

// Chunks `part` and 2 * parts - 1 - part of 2 * parts.
inline Tensor zigzag(const Tensor& tensor, std::size_t dim, std::uint64_t part,
                     std::uint64_t parts) {
  const std::uint64_t size = tensor.shape[dim] / (2 * parts);
  const std::uint64_t mirror = 2 * parts - 1 - part;
  return take(
      tensor, dim,
      joined(range(part * size, (part + 1) * size), range(mirror * size, (mirror + 1) * size)));
}

// ---- traces ----

struct Field {
  Key key;
  DType dtype = DType::float32;
  RecordKind kind = RecordKind::full;
  std::string layout;  // JSON, "" = none declared
  std::uint32_t flags = 0;
};

class TraceBuilder {
 public:
  explicit TraceBuilder(std::string name) : name_(std::move(name)) {}

  // Coordinates of rank r: the axes outermost first, counted like a mixed-radix number.
  void mesh(const std::vector<std::pair<std::string, std::uint64_t>>& axes) {
    std::uint64_t world = 1;
    for (const auto& [axis, size] : axes) world *= size;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      Coordinates where;
      std::uint64_t rest = rank;
      for (std::size_t i = axes.size(); i-- > 0;) {
        where[axes[i].first] = {rest % axes[i].second, axes[i].second};
        rest /= axes[i].second;
      }
      places_[static_cast<std::int32_t>(rank)] = where;
    }
  }
  // A rank at a place of its own choice; an empty place: no mesh was recorded.
  void place(std::int32_t rank, const Coordinates& where) { places_[rank] = where; }
  [[nodiscard]] const std::map<std::int32_t, Coordinates>& places() const { return places_; }

  void add(std::int32_t rank, const Field& field, const Tensor& tensor) {
    Stored stored{field, tensor.shape, {}};
    if (field.dtype == DType::int64) {
      store<std::int64_t>(tensor, stored.bytes);
    } else if (field.dtype == DType::boolean) {
      store<bool>(tensor, stored.bytes);
    } else if (field.dtype == DType::bfloat16) {
      store_bfloat16(tensor, stored.bytes);
    } else {
      store<float>(tensor, stored.bytes);
    }
    records_[{rank, field.key.iteration}].push_back(std::move(stored));
  }

  // Writes the trace and opens it.
  [[nodiscard]] Trace write() const {
    const std::filesystem::path root = folder_.path() / name_;
    std::set<std::int32_t> ranks;
    for (const auto& [rank, where] : places_) ranks.insert(rank);
    for (const auto& [segment, stored] : records_) ranks.insert(segment.first);
    write_ranks(root, ranks);
    return Trace::open(root);
  }
  // Only the files of these ranks, and trace.json.
  void write_ranks(const std::filesystem::path& root, const std::set<std::int32_t>& ranks) const {
    std::filesystem::create_directories(root);
    std::ofstream(root / "trace.json") << R"({"format":"ttrace-trace","version":1,"run_id":"r"})";
    for (const auto& [rank, where] : places_) {
      if (ranks.count(rank) != 0) write_rank(root, rank, where);
    }
    for (const auto& [segment, stored] : records_) {
      if (ranks.count(segment.first) != 0) write_segment(root, segment, stored);
    }
  }

 private:
  struct Stored {
    Field field;
    Shape shape;
    std::vector<std::byte> bytes;
  };

  template <class Element>
  static void store(const Tensor& tensor, std::vector<std::byte>& bytes) {
    for (const float value : tensor.values) {
      const Element element = static_cast<Element>(value);
      const auto* first = reinterpret_cast<const std::byte*>(&element);
      bytes.insert(bytes.end(), first, first + sizeof element);
    }
  }

  // Of values that bfloat16 holds: the upper half of a float32.
  static void store_bfloat16(const Tensor& tensor, std::vector<std::byte>& bytes) {
    for (const float value : tensor.values) {
      const auto* half = reinterpret_cast<const std::byte*>(&value) + 2;
      bytes.insert(bytes.end(), half, half + 2);
    }
  }

  static std::string padded(std::int64_t number, std::size_t width) {
    const std::string digits = std::to_string(number);
    return std::string(width - digits.size(), '0') + digits;
  }

  void write_rank(const std::filesystem::path& root, std::int32_t rank,
                  const Coordinates& where) const {
    const std::filesystem::path folder = root / ("rank" + padded(rank, 5));
    std::filesystem::create_directories(folder);
    std::string axes;
    for (const auto& [name, position] : where) {
      axes += std::string(axes.empty() ? "" : ",") + R"({"name":")" + name + R"(","size":)" +
              std::to_string(position.size) + R"(,"coord":)" + std::to_string(position.coord) + "}";
    }
    std::ofstream(folder / "rank.json")
        << R"({"format":"ttrace-rank","version":1,"run_id":"r","rank":)" << rank
        << R"(,"world_size":)" << places_.size() << R"(,"axes":[)" << axes << "]}";
  }

  static void write_segment(const std::filesystem::path& root,
                            const std::pair<std::int32_t, std::int64_t>& segment,
                            const std::vector<Stored>& records) {
    const auto file =
        root / ("rank" + padded(segment.first, 5)) / ("it" + padded(segment.second, 6) + ".h5");
    SegmentWriter writer(file, {"r", segment.first, segment.second, true});
    for (const Stored& stored : records) {
      Record record;
      record.key = stored.field.key;
      record.dtype = stored.field.dtype;
      record.kind = stored.field.kind;
      record.shape = stored.shape;
      record.flags = stored.field.flags;
      record.bytes = stored.bytes.size();
      writer.begin(record, stored.field.layout);
      writer.append(stored.bytes);
      writer.commit();
    }
    writer.close(true);
  }

  TemporaryFolder folder_;
  std::string name_;
  std::map<std::int32_t, Coordinates> places_;
  std::map<std::pair<std::int32_t, std::int64_t>, std::vector<Stored>> records_;
};

inline Key key_of(const std::string& text) {
  const std::optional<Key> key = parse_key(text);
  if (!key) throw std::invalid_argument(text);
  return *key;
}

}  // namespace ttrace::testing
