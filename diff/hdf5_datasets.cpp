// SPDX-License-Identifier: Apache-2.0
// See hdf5_datasets.hpp. What lies in one piece in both files is handed to the crew, which compares
// it while the next datasets are opened.
#include "diff/hdf5_datasets.hpp"

#include <algorithm>

#include "diff/hdf5_boxes.hpp"
#include "diff/hdf5_elements.hpp"
#include "diff/judge.hpp"
#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

constexpr const char* kWhat = "compare";

std::uint64_t elements_of(const h5::Dataset& dataset, const h5::Caller& caller,
                          const std::string& path) {
  const std::uint64_t size = std::max<std::uint64_t>(dataset.type().size, 1);
  std::uint64_t bytes = size;
  for (const std::uint64_t length : dataset.extent().shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes)) caller.fail(path + " has too many elements");
  }
  return bytes / size;
}

// What an element of both sides is, from the files themselves.
std::string values_at(const NumberJob& job, std::uint64_t at) {
  if (at == kNoIndex) return "";
  ReadBuffer buffer;
  const auto text = [&](const NumberSide& side) {
    h5::ElementType type;
    type.kind = h5::ElementType::Kind::number;
    type.number = side.format;
    type.size = size_of(side.format.dtype);
    return element_text({type, side.file->view(side.offset + at * type.size, type.size, buffer)});
  };
  return text(job.reference) + " against " + text(job.candidate);
}

// What was measured of one pair of elements, of `times` that are all the same.
void repeat(NumberMetrics& numbers, std::uint64_t times) {
  Metrics& total = numbers.total;
  for (std::uint64_t* count :
       {&numbers.bits_only, &total.count, &total.unequal, &total.zero_reference,
        &total.reference_nan, &total.reference_inf, &total.candidate_nan, &total.candidate_inf,
        &total.nonfinite_mismatch}) {
    *count *= times;
  }
  for (std::uint64_t& count : total.ulp) count *= times;
  const auto many = static_cast<double>(times);
  for (double* sum :
       {&total.sums.error_squares, &total.sums.reference_squares, &total.sums.candidate_squares,
        &total.sums.error_products, &total.sums.errors}) {
    *sum *= many;
  }
}

std::string types_text(const DatasetLine& line) {
  const std::string text = *line.reference_type + " against " + *line.candidate_type;
  return line.compared_as ? text + ", compared as " + std::string(name_of(*line.compared_as))
                          : text;
}

std::string message_of(const DatasetLine& line) {
  const Metrics& total = line.numbers.total;
  std::string text = std::to_string(total.unequal) + " of " + std::to_string(total.count) +
                     " elements differ, the first at " +
                     index_text(total.first_unequal, line.extent.shape) + ": " + line.first_values;
  if (total.nonfinite_mismatch > 0) {
    text += "; " + std::to_string(total.nonfinite_mismatch) + " with NaN or Inf on one side only";
  }
  if (total.worst == kNoIndex) return text;
  return text + "; relative error " + short_number(line.relative_error) + ", largest error " +
         short_number(total.max_error) + " at " + index_text(total.worst, line.extent.shape) +
         ": " + line.worst_values;
}

}  // namespace

std::string extent_text(const h5::Extent& extent) {
  if (extent.null) return "null";
  std::string text;
  for (const std::uint64_t size : extent.shape) {
    text += (text.empty() ? "" : ",") + std::to_string(size);
  }
  return "[" + text + "]";
}

std::string index_text(std::uint64_t flat, const Shape& shape) {
  std::string text;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::uint64_t size = std::max<std::uint64_t>(shape[d], 1);
    text = std::to_string(flat % size) + (text.empty() ? "" : ",") + text;
    flat /= size;
  }
  return "[" + text + "]";
}

Hdf5Side::Hdf5Side(const std::filesystem::path& path, ReadMode mode)
    : caller_(kWhat, path.string()), mode_(mode) {
  if (std::filesystem::is_directory(path)) {
    caller_.fail("it is a folder; give two traces, or two HDF5 files");
  }
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::fifo || kind == std::filesystem::file_type::socket) {
    caller_.fail("it is no regular file");
  }
  file_ = h5::open_any_file(caller_);
}

const h5::Dataset& Hdf5Side::open(const h5::Object& object) {
  h5::Dataset dataset(caller_, object.handle.get(), latest_ ? &*latest_ : nullptr);
  return latest_.emplace(std::move(dataset));
}

const FileBytes& Hdf5Side::bytes(const h5::Object& object) {
  auto& entry = bytes_[object.identity.file];
  if (entry) return *entry;
  auto made = std::make_unique<FileBytes>(h5::file_of(caller_, object), mode_);
  if (made->identity() != object.identity.file) {
    throw Trouble(kWhat, made->path().string(),
                  "another file has taken its place; try again when nothing writes there");
  }
  entry = std::move(made);
  return *entry;
}

const h5::References* Hdf5Side::references(const h5::Object& object, const h5::ElementType& type) {
  if (!h5::has_references(type)) return nullptr;
  const auto found = references_.find(object.identity.file);
  if (found != references_.end()) return &found->second;
  return &references_.emplace(object.identity.file, h5::References(caller_, object.handle.get()))
              .first->second;
}

DatasetComparer::DatasetComparer(Hdf5Side& reference, Hdf5Side& candidate, const Backend& backend,
                                 const Hdf5Options& options, Hdf5Report& report)
    : reference_(reference),
      candidate_(candidate),
      backend_(backend),
      options_(options),
      report_(report),
      crew_(backend) {}

void DatasetComparer::compare(const std::string& path, const h5::Object& reference,
                              const h5::Object& candidate) {
  const auto find = [&](const char* kind, const std::string& message) {
    report_.findings.push_back({kind, path, "", message});
  };
  const h5::Dataset& left = reference_.open(reference);
  const h5::Dataset& right = candidate_.open(candidate);
  if (left.extent() != right.extent()) {
    return find("shape_differs",
                "shape " + extent_text(left.extent()) + " against " + extent_text(right.extent()));
  }
  for (const h5::Dataset* dataset : {&left, &right}) {
    const std::string missing = dataset->what_is_missing();
    if (!missing.empty()) return find("not_compared", missing);
  }
  const std::string types = incomparable(left.type(), right.type());
  if (!types.empty()) {
    const bool unknown = left.type().kind == h5::ElementType::Kind::unknown;
    return find(unknown ? "not_compared" : "dtype_differs", types);
  }
  DatasetLine& line = report_.datasets.emplace_back();
  line.path = path;
  line.reference_type = shared(left.type().description);
  line.candidate_type = shared(right.type().description);
  line.extent = left.extent();
  constexpr auto kNumber = h5::ElementType::Kind::number;
  if (left.type().kind == kNumber && right.type().kind == kNumber) {
    line.compared_as = comparison_type(left.type().number, right.type().number);
  }
  if (*line.reference_type != *line.candidate_type) {
    report_.notes.push_back({"types", path, "", types_text(line)});
  }
  if (!line.extent.null) compare_elements(left, reference, right, candidate, line);
}

void DatasetComparer::compare_elements(const h5::Dataset& left, const h5::Object& reference,
                                       const h5::Dataset& right, const h5::Object& candidate,
                                       DatasetLine& line) {
  const std::uint64_t count = elements_of(left, reference_.caller(), line.path);
  report_.bytes += count * left.type().size;
  if (count == 0) return;
  if (left.offset() && right.offset() && line.compared_as) {
    return add_job(left, reference, right, candidate, count, line);
  }
  const OpenDataset one{left, reference_.references(reference, left.type())};
  const OpenDataset other{right, candidate_.references(candidate, right.type())};
  const bool unwritten = left.is_unwritten() && right.is_unwritten();
  const Shape shape = unwritten ? Shape(line.extent.shape.size(), 1) : line.extent.shape;
  if (line.compared_as) {
    compare_numbers_by_boxes(one, other, shape, backend_, line);
  } else {
    compare_elements_by_boxes(one, other, shape, line);
  }
  if (unwritten) repeat(line.numbers, count);
}

void DatasetComparer::add_job(const h5::Dataset& left, const h5::Object& reference,
                              const h5::Dataset& right, const h5::Object& candidate,
                              std::uint64_t count, DatasetLine& line) {
  const NumberJob job{{&reference_.bytes(reference), *left.offset(), left.type().number},
                      {&candidate_.bytes(candidate), *right.offset(), right.type().number},
                      count,
                      *line.compared_as,
                      &line.numbers};
  crew_.add(job);
  jobs_.emplace_back(&line, job);
}

// Descriptions of types can be long, and most datasets are of few.
std::shared_ptr<const std::string> DatasetComparer::shared(const std::string& text) {
  const auto found = types_.find(text);
  if (found != types_.end()) return found->second;
  auto made = std::make_shared<const std::string>(text);
  types_.emplace(*made, made);
  return made;
}

void DatasetComparer::finish() {
  crew_.finish();
  for (const auto& [line, job] : jobs_) {
    const Metrics& total = line->numbers.total;
    if (total.unequal == 0) continue;
    line->first_values = values_at(job, total.first_unequal);
    line->worst_values = values_at(job, total.worst);
  }
  for (DatasetLine& line : report_.datasets) judge(line);
}

void DatasetComparer::judge(DatasetLine& line) {
  const Metrics& total = line.numbers.total;
  if (line.numbers.bits_only > 0) {
    report_.notes.push_back({"bits", line.path, "",
                             std::to_string(line.numbers.bits_only) +
                                 " equal elements have other bits: -0 against 0, or other NaNs"});
  }
  if (total.unequal == 0) return;
  line.relative_error = relative_error_of(total);
  const bool limited = options_.limits.any() && line.compared_as && is_floating(*line.compared_as);
  line.differs = !within(total, limited ? options_.limits : Hdf5Limits());
  if (!line.differs) return;
  const char* kind = total.nonfinite_mismatch > 0 ? "nonfinite"
                     : limited                    ? "over_limit"
                                                  : "not_equal";
  const bool unlimited = options_.limits.any() && !limited;
  report_.findings.push_back(
      {kind, line.path, "",
       message_of(line) + (unlimited ? "; limits are for floating numbers only" : "")});
}

}  // namespace ttrace
