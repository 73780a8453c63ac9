// SPDX-License-Identifier: Apache-2.0
// Reads raw bits: the memory type is the file's own, so that libhdf5 converts nothing.
#include "libttrace/segment_repacked.hpp"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

namespace ttrace {
namespace {

constexpr std::size_t kSamples = 8;

h5::Handle open_dataset(const h5::Caller& caller, h5::Id file, const Record& record) {
  const std::string path = "/data/" + hdf5_path(record.key);
  h5::Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) caller.fail("the index lists " + path + ", which cannot be opened");
  return dataset;
}

bool has_shape(const h5::Caller& caller, h5::Id dataset, const Shape& shape) {
  const h5::Handle space = caller.own(H5Dget_space(dataset), H5Sclose);
  std::array<hsize_t, H5S_MAX_RANK> extents{};
  const int rank = H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  return rank == static_cast<int>(shape.size()) &&
         std::equal(shape.begin(), shape.end(), extents.begin());
}

}  // namespace

bool offsets_hold(const h5::Caller& caller, h5::Id file, const std::vector<Record>& records) {
  std::vector<const Record*> stored;
  for (const Record& record : records) {
    if (has_payload(record)) stored.push_back(&record);
  }
  const std::size_t samples = std::min(kSamples, stored.size());
  for (std::size_t i = 0; i < samples; ++i) {  // the first, the last and some between
    const std::size_t at = samples == 1 ? 0 : i * (stored.size() - 1) / (samples - 1);
    const h5::Handle dataset = open_dataset(caller, file, *stored[at]);
    if (H5Dget_offset(dataset.get()) != stored[at]->offset) return false;
  }
  return true;
}

CopiedPayloads::CopiedPayloads(const std::vector<Record>& records, Reader read)
    : read_(std::move(read)), present_(records.size()) {
  std::uint64_t size = 0;
  for (const Record& record : records) {
    offsets_.push_back(size);
    if (has_payload(record)) size += (record.bytes + 63) / 64 * 64;
  }
  scratch_ = MappedFile::scratch(size);
}

std::span<const std::byte> CopiedPayloads::bytes(const Record& record) {
  const std::lock_guard guard(mutex_);
  const std::uint64_t offset = offsets_.at(record.sequence);
  const std::span<std::byte> view = scratch_.writable().subspan(offset, record.bytes);
  if (!present_[record.sequence]) {
    scratch_.reserve(offset, record.bytes);
    read_(record, view);
    scratch_.release(view);  // in memory are only those that are looked at
    present_[record.sequence] = true;
  }
  return view;
}

CopiedPayloads::Reader repacked_reader(h5::Caller caller, h5::Handle file) {
  const auto close = [](h5::Handle* open) {
    const h5::Lock lock;
    delete open;
  };
  const std::shared_ptr<h5::Handle> shared(new h5::Handle(std::move(file)), close);
  return [caller = std::move(caller), shared](const Record& record, std::span<std::byte> out) {
    const h5::Lock lock;
    const h5::Handle dataset = open_dataset(caller, shared->get(), record);
    const h5::Handle type = caller.own(H5Dget_type(dataset.get()), H5Tclose);
    const h5::Handle expected = h5::file_type(caller, record.dtype);
    if (H5Tequal(type.get(), expected.get()) <= 0 ||
        !has_shape(caller, dataset.get(), record.shape)) {
      caller.fail("/data/" + hdf5_path(record.key) +
                  " has another type or shape than in the index");
    }
    caller.check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()));
  };
}

}  // namespace ttrace
