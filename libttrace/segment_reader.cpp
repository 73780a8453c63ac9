// SPDX-License-Identifier: Apache-2.0
// Reads a segment: libhdf5 for the index alone, then the file is mapped and a payload is an offset.
// Every row is checked against the file before it is believed, so that a view never leaves it.
#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "libttrace/file.hpp"
#include "libttrace/h5.hpp"
#include "libttrace/segment.hpp"
#include "libttrace/segment_collectives.hpp"
#include "libttrace/segment_index.hpp"
#include "libttrace/segment_repacked.hpp"

namespace ttrace {
namespace {

// Turns rows into records; remembers which row it is at, for the message.
class RowChecker {
 public:
  RowChecker(const h5::Caller& caller, const SegmentIndex& index, std::int64_t iteration)
      : caller_(caller), index_(index), iteration_(iteration) {}

  std::vector<Record> records() {
    std::vector<Record> all;
    all.reserve(index_.rows.size());
    for (; at_ < index_.rows.size(); ++at_) all.push_back(record_of(index_.rows[at_]));
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    caller_.fail("row " + std::to_string(at_) + " of /index: " + why);
  }

  const std::string& name(std::int32_t row, const char* what) const {
    if (row < 0 || static_cast<std::size_t>(row) >= index_.names.size()) {
      fail(std::string(what) + " is not a row of /names");
    }
    return index_.names[static_cast<std::size_t>(row)];
  }

  Record record_of(const IndexRow& row) const {
    Record record;
    record.sequence = at_;
    record.key.iteration = iteration_;
    record.key.microbatch = row.microbatch;
    if (row.phase >= kPhaseCount) fail("unknown phase; a newer ttrace wrote it");
    record.key.phase = static_cast<Phase>(row.phase);
    record.key.module = name(row.module, "module");
    record.key.call = row.call;
    record.key.slot = name(row.slot, "slot");
    if (row.raw_name != -1) record.raw_name = name(row.raw_name, "raw_name");
    const std::optional<DType> dtype = dtype_from_code(row.dtype);
    if (!dtype) fail("unknown dtype; a newer ttrace wrote it");
    record.dtype = *dtype;
    record.kind = static_cast<RecordKind>(row.kind);
    if (row.ndim > kMaxDimensions) fail("more than 16 dimensions");
    record.shape.assign(row.shape.begin(), row.shape.begin() + row.ndim);
    record.flags = row.flags;
    if (row.layout < kNoLayout || row.layout >= static_cast<std::int64_t>(index_.layouts.size())) {
      fail("layout is not a row of /layouts");
    }
    record.layout = row.layout;
    record.bytes = row.bytes;
    record.offset = row.offset;
    record.hash = row.hash;
    record.statistics = row.statistics;
    record.alias_of = row.alias_of;
    if (packed_size(record.shape, record.dtype) != record.bytes) {
      fail("its size is not that of its shape and type");
    }
    check_alias(row);
    return record;
  }

  void check_alias(const IndexRow& row) const {
    if (row.alias_of == kNotAlias) return;
    if (row.alias_of < 0 || static_cast<std::uint64_t>(row.alias_of) >= at_) {
      fail("it is an alias of a row that does not come before it");
    }
    const IndexRow& target = index_.rows[static_cast<std::size_t>(row.alias_of)];
    if (target.bytes != row.bytes) fail("it is an alias of a row of another size");
  }

  const h5::Caller& caller_;
  const SegmentIndex& index_;
  std::int64_t iteration_;
  std::size_t at_ = 0;
};

SegmentInfo read_info(const h5::Caller& caller, h5::Id file) {
  if (!h5::has_attribute(file, "format") ||
      h5::string_attribute(caller, file, "format") != kFormatName) {
    caller.fail("it is an HDF5 file, but not a segment of a trace");
  }
  const std::int64_t version = h5::integer_attribute(caller, file, "version");
  if (version > kSegmentVersion) {
    caller.fail("it has format version " + std::to_string(version) + ", this ttrace reads up to " +
                std::to_string(kSegmentVersion) + "; use a newer ttrace");
  }
  SegmentInfo info;
  info.run_id = h5::string_attribute(caller, file, "run_id");
  info.rank = static_cast<std::int32_t>(h5::integer_attribute(caller, file, "rank"));
  info.iteration = h5::integer_attribute(caller, file, "iteration");
  info.complete = h5::integer_attribute(caller, file, "complete") != 0;
  return info;
}

}  // namespace

class SegmentReader::Impl {
 public:
  Impl(std::filesystem::path path, ReadMode mode);

  [[nodiscard]] std::span<const std::byte> bytes(const Record& asked) const;
  void release(std::span<const std::byte> view) const {
    if (view.empty()) return;
    if (copies_) return copies_->release(view);
    file_->release(static_cast<std::uint64_t>(view.data() - file_->mapped().data()), view.size());
  }
  [[nodiscard]] const std::byte* view(const Record& asked, std::uint64_t offset, std::size_t count,
                                      ReadBuffer& buffer) const {
    if (repacked_) return bytes(asked).subspan(offset, count).data();
    return file_->view(target_of(asked).offset + offset, count, buffer);
  }
  void release(const Record& asked, std::uint64_t offset, std::size_t count) const {
    if (repacked_) return release(bytes(asked).subspan(offset, count));
    file_->release(target_of(asked).offset + offset, count);
  }
  void expect(Access access) const { file_->expect(access); }
  [[nodiscard]] bool resident(const Record& asked, std::uint64_t offset, std::size_t count) const {
    return repacked_ || file_->resident(target_of(asked).offset + offset, count);
  }

  [[nodiscard]] const std::vector<Collective>& collectives();

  std::filesystem::path path_;
  SegmentInfo info_;
  std::vector<Record> records_;
  std::vector<std::string> layouts_;

 private:
  void check_offsets() const;
  [[nodiscard]] const Record& target_of(const Record& asked) const;
  void copy(const Record& record, std::span<std::byte> out) const;

  h5::Caller caller_;
  std::optional<FileBytes> file_;
  bool repacked_ = false;
  std::unique_ptr<CopiedPayloads> copies_;  // of what is not mapped
  std::mutex collectives_mutex_;
  std::optional<std::vector<Collective>> collectives_;  // once they were asked for
};

SegmentReader::Impl::Impl(std::filesystem::path path, ReadMode mode)
    : path_(std::move(path)), caller_("cannot read segment", path_.string()) {
  if (path_.extension() == ".part") {
    caller_.fail("it is still being written, or its writer died; only closed segments can be read");
  }
  file_.emplace(path_, mode, Descriptors::on_demand);
  const h5::Lock lock;
  if (H5Fis_hdf5(path_.c_str()) <= 0) caller_.fail("it is not an HDF5 file, or only a part of one");
  h5::Handle file = h5::open_file(caller_);
  info_ = read_info(caller_, file.get());
  SegmentIndex index = read_index(caller_, file.get());
  records_ = RowChecker(caller_, index, info_.iteration).records();
  layouts_ = std::move(index.layouts);
  repacked_ = !offsets_hold(caller_, file.get(), records_);
  if (!repacked_) check_offsets();
  if (repacked_) {
    copies_ = std::make_unique<CopiedPayloads>(records_, repacked_reader(caller_, std::move(file)));
  } else if (mode == ReadMode::no_mmap) {
    copies_ = std::make_unique<CopiedPayloads>(
        records_, [this](const Record& record, std::span<std::byte> out) { copy(record, out); });
  }
}

void SegmentReader::Impl::copy(const Record& record, std::span<std::byte> out) const {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  ReadBuffer buffer;
  for (std::size_t done = 0; done < out.size(); done += kPiece) {
    const std::size_t count = std::min(kPiece, out.size() - done);
    std::memcpy(out.data() + done, file_->view(record.offset + done, count, buffer), count);
    copies_->release(out.subspan(done, count));
  }
}

void SegmentReader::Impl::check_offsets() const {
  const std::uint64_t size = file_->size();
  for (const Record& record : records_) {
    if (!has_payload(record)) continue;
    if (record.offset == 0 || record.bytes > size || record.offset > size - record.bytes) {
      caller_.fail("row " + std::to_string(record.sequence) +
                   " of /index: its bytes are not inside the file");
    }
  }
}

const Record& SegmentReader::Impl::target_of(const Record& asked) const {
  if (asked.sequence >= records_.size()) caller_.fail("it has no such record");
  const Record* record = &records_[asked.sequence];
  while (record->alias_of != kNotAlias) {  // each points to an earlier row
    record = &records_[static_cast<std::size_t>(record->alias_of)];
  }
  if (record->kind != RecordKind::full)
    caller_.fail(to_string(asked.key) + " was kept without bytes");
  return *record;
}

std::span<const std::byte> SegmentReader::Impl::bytes(const Record& asked) const {
  const Record& record = target_of(asked);
  if (record.bytes == 0) return {};
  if (copies_) return copies_->bytes(record);
  return file_->mapped().subspan(record.offset, record.bytes);
}

const std::vector<Collective>& SegmentReader::Impl::collectives() {
  const std::lock_guard guard(collectives_mutex_);
  if (!collectives_) {
    const h5::Lock lock;
    const h5::Handle file = h5::open_file(caller_);
    collectives_ = read_collectives(caller_, file.get(), records_.size());
  }
  return *collectives_;
}

SegmentReader::SegmentReader(std::filesystem::path path, ReadMode mode)
    : impl_(std::make_unique<Impl>(std::move(path), mode)) {}
SegmentReader::~SegmentReader() = default;
SegmentReader::SegmentReader(SegmentReader&&) noexcept = default;
SegmentReader& SegmentReader::operator=(SegmentReader&&) noexcept = default;

const std::filesystem::path& SegmentReader::path() const { return impl_->path_; }
const SegmentInfo& SegmentReader::info() const { return impl_->info_; }
const std::vector<Record>& SegmentReader::records() const { return impl_->records_; }
const std::vector<std::string>& SegmentReader::layouts() const { return impl_->layouts_; }
const std::vector<Collective>& SegmentReader::collectives() const { return impl_->collectives(); }
std::span<const std::byte> SegmentReader::bytes(const Record& record) const {
  return impl_->bytes(record);
}
void SegmentReader::release(std::span<const std::byte> view) const { impl_->release(view); }
const std::byte* SegmentReader::view(const Record& record, std::uint64_t offset, std::size_t count,
                                     ReadBuffer& buffer) const {
  return impl_->view(record, offset, count, buffer);
}
void SegmentReader::release(const Record& record, std::uint64_t offset, std::size_t count) const {
  impl_->release(record, offset, count);
}
void SegmentReader::expect(Access access) const { impl_->expect(access); }
bool SegmentReader::resident(const Record& record, std::uint64_t offset, std::size_t count) const {
  return impl_->resident(record, offset, count);
}

}  // namespace ttrace
