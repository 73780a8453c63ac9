// SPDX-License-Identifier: Apache-2.0
// Writes a segment. libhdf5 lays out the file, we fill it: a dataset is created with its space
// allocated and its payload goes there with pwrite, through no buffer of libhdf5's. The dataset
// gets its name only when the record is committed, so an abandoned one never was in the file.
#include <fcntl.h>
#include <hdf5.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "libttrace/file.hpp"
#include "libttrace/h5.hpp"
#include "libttrace/hash.hpp"
#include "libttrace/segment.hpp"
#include "libttrace/segment_collectives.hpp"
#include "libttrace/segment_index.hpp"
#include "libttrace/statistics.hpp"

namespace ttrace {
namespace {

// Hash, statistics and pwrite each walk over the bytes: in slices that stay in the cache.
constexpr std::size_t kSlice = std::size_t{256} << 10;

// Set aside so that records survive a full disk: an upper bound of what is not yet on the disk of
// the file's structure, and the tables (240 bytes a row, names).
constexpr std::uint64_t kReserve = std::uint64_t{2} << 20;
constexpr std::uint64_t kReserveStep = 1024;  // rows
constexpr std::uint64_t kReservePerRow = 1024;

constexpr std::size_t kOpenGroups = 64;

std::filesystem::path part_of(const std::filesystem::path& path) {
  std::filesystem::path part = path;
  part += ".part";
  return part;
}

bool is_storable(const std::string& name) {  // in HDF5's own strings
  return !name.empty() && name.find('\0') == std::string::npos;
}

}  // namespace

class SegmentWriter::Impl {
 public:
  Impl(std::filesystem::path path, SegmentInfo info);
  ~Impl();

  std::uint64_t begin(const Record& record, const std::string& layout_json);
  void append(std::span<const std::byte> bytes);
  void commit();
  void abandon();
  std::size_t add_collective(const Collective& collective);
  void change_collective(std::size_t row, const Collective& collective) {
    collectives_.at(row) = row_of(collective);
  }
  void close(bool complete);
  [[nodiscard]] std::uint64_t record_count() const { return index_.rows.size(); }

 private:
  // The record between begin and commit.
  struct InFlight {
    Record record;
    std::string layout;
    std::string wanted_path;  // of its dataset below /data
    std::string path;         // the same, or with the next free call number
    h5::Handle dataset;
    std::uint64_t received = 0;
    [[nodiscard]] bool is_alias() const { return record.alias_of != kNotAlias; }
    [[nodiscard]] bool keeps_bytes() const {
      return !is_alias() && record.kind == RecordKind::full;
    }
  };

  void check(const Record& record) const;
  void reserve_row();
  void choose_free_call(InFlight& flight);
  void create_dataset(InFlight& flight);
  h5::Id type_of(DType dtype);
  h5::Id group_of(const std::string& path);
  CollectiveRow row_of(const Collective& collective);
  [[nodiscard]] h5::Handle new_group(h5::Id parent, const char* name) const;
  void link_dataset(InFlight& flight);
  IndexRow row_of(const InFlight& flight);
  int release_handles();
  InFlight& in_flight();
  [[noreturn]] void refuse(const Key& key, const std::string& why) const;

  std::filesystem::path path_;
  std::filesystem::path part_;
  SegmentInfo info_;
  h5::Caller caller_;
  DiskReserve reserve_;
  h5::Handle file_;
  h5::Handle creation_;  // properties of datasets
  h5::Handle data_;      // /data
  std::array<h5::Handle, kDTypeCount> types_;
  std::unordered_set<std::string> groups_;  // below /data
  std::unordered_map<std::string, h5::Handle> open_groups_;
  FileDescriptor payload_;
  SegmentIndex index_;
  std::vector<CollectiveRow> collectives_;
  StringTable names_;
  StringTable layouts_;
  std::unordered_map<std::string, std::uint32_t> taken_;  // path: the next call number to try
  std::optional<InFlight> flight_;
  HashStream hash_;
  StatisticsStream statistics_;
  bool closed_ = false;
};

SegmentWriter::Impl::Impl(std::filesystem::path path, SegmentInfo info)
    : path_(std::move(path)),
      part_(part_of(path_)),
      info_(std::move(info)),
      caller_("cannot write segment", part_.string()),
      reserve_(path_.parent_path()) {
  const h5::Lock lock;
  reserve_.grow_to(kReserve);
  file_ = h5::create_file(caller_);
  creation_ = caller_.own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  caller_.check(H5Pset_alloc_time(creation_.get(), H5D_ALLOC_TIME_EARLY));
  caller_.check(H5Pset_fill_time(creation_.get(), H5D_FILL_TIME_NEVER));
  caller_.check(H5Pset_obj_track_times(creation_.get(), false));
  data_ = new_group(file_.get(), "data");
  payload_ = open_file(part_, O_WRONLY);
}

SegmentWriter::Impl::~Impl() {
  try {
    if (!closed_) close(false);
  } catch (const std::exception&) {
    // The ".part" stays; whoever wants the reason calls close().
  }
  const h5::Lock lock;
  release_handles();
}

void SegmentWriter::Impl::refuse(const Key& key, const std::string& why) const {
  throw Trouble("cannot write record", path_.string() + ": " + to_string(key), why);
}

void SegmentWriter::Impl::check(const Record& record) const {
  if (closed_) refuse(record.key, "the segment is closed");
  if (flight_) refuse(record.key, "the record before it was neither committed nor abandoned");
  if (!is_storable(record.key.module) || !is_storable(record.key.slot)) {
    refuse(record.key, "module and slot must not be empty nor contain NUL bytes");
  }
  if (record.raw_name.find('\0') != std::string::npos) {
    refuse(record.key, "its raw name contains a NUL byte");
  }
  if (record.kind > RecordKind::hash) refuse(record.key, "unknown kind");
  if (record.shape.size() > kMaxDimensions) refuse(record.key, "more than 16 dimensions");
  if (packed_size(record.shape, record.dtype) != record.bytes) {
    refuse(record.key, "its size is not that of its shape and type");
  }
  if (record.alias_of == kNotAlias) return;
  if (record.alias_of < 0 || static_cast<std::uint64_t>(record.alias_of) >= record_count()) {
    refuse(record.key, "it is an alias of a record that is not there");
  }
  const IndexRow& target = index_.rows[static_cast<std::size_t>(record.alias_of)];
  if (target.bytes != record.bytes || target.dtype != static_cast<std::uint8_t>(record.dtype)) {
    refuse(record.key, "it is an alias of a record of another size or type");
  }
}

std::uint64_t SegmentWriter::Impl::begin(const Record& record, const std::string& layout_json) {
  check(record);
  reserve_row();
  InFlight flight;
  flight.record = record;
  flight.record.sequence = record_count();
  flight.record.offset = 0;
  flight.layout = layout_json;
  choose_free_call(flight);
  if (flight.keeps_bytes()) create_dataset(flight);
  hash_.reset();
  statistics_.reset(record.dtype);
  flight_ = std::move(flight);
  return record_count();
}

void SegmentWriter::Impl::reserve_row() {
  const std::uint64_t rows = index_.rows.size() + collectives_.size();
  if (rows % kReserveStep == 0) reserve_.grow_to(kReserve + (rows + kReserveStep) * kReservePerRow);
}

void SegmentWriter::Impl::choose_free_call(InFlight& flight) {
  flight.wanted_path = flight.path = hdf5_path(flight.record.key);
  auto taken = taken_.find(flight.path);
  if (taken == taken_.end()) return;
  for (std::uint32_t call = taken->second; taken != taken_.end(); ++call) {
    flight.record.key.call = call;
    flight.path = hdf5_path(flight.record.key);
    taken = taken_.find(flight.path);
  }
}

h5::Id SegmentWriter::Impl::type_of(DType dtype) {
  h5::Handle& type = types_[static_cast<std::size_t>(dtype)];
  if (type.valid()) return type.get();
  type = h5::file_type(caller_, dtype);
  if (dtype == DType::float8_e4m3fn) {  // 256 names: once in the file, not in every dataset
    const h5::Handle group = new_group(file_.get(), "types");
    caller_.check(H5Tcommit2(group.get(), "float8_e4m3fn", type.get(), H5P_DEFAULT, H5P_DEFAULT,
                             H5P_DEFAULT));
    h5::write_attribute(caller_, type.get(), "logical_dtype", std::string(name_of(dtype)));
  }
  return type.get();
}

void SegmentWriter::Impl::create_dataset(InFlight& flight) {
  const h5::Lock lock;
  const Record& record = flight.record;
  std::array<hsize_t, kMaxDimensions> extents{};
  std::copy(record.shape.begin(), record.shape.end(), extents.begin());
  const auto rank = static_cast<int>(record.shape.size());
  const h5::Handle space =
      caller_.own(record.bytes == 0 ? H5Screate(H5S_NULL)
                  : rank == 0       ? H5Screate(H5S_SCALAR)
                                    : H5Screate_simple(rank, extents.data(), nullptr),
                  H5Sclose);
  flight.dataset = caller_.own(
      H5Dcreate_anon(file_.get(), type_of(record.dtype), space.get(), creation_.get(), H5P_DEFAULT),
      H5Dclose);
  if (record.bytes == 0) return;
  const haddr_t offset = H5Dget_offset(flight.dataset.get());
  if (offset == HADDR_UNDEF) caller_.fail("libhdf5 allocated no space");
  flight.record.offset = offset;
}

SegmentWriter::Impl::InFlight& SegmentWriter::Impl::in_flight() {
  if (!flight_) throw Trouble("cannot write record", path_.string(), "no record was begun");
  return *flight_;
}

void SegmentWriter::Impl::append(std::span<const std::byte> bytes) {
  InFlight& flight = in_flight();
  const Record& record = flight.record;
  if (bytes.size() > record.bytes - flight.received || (flight.is_alias() && !bytes.empty())) {
    refuse(record.key, "more bytes came than were announced");
  }
  while (!bytes.empty()) {
    const std::span<const std::byte> slice = bytes.first(std::min(bytes.size(), kSlice));
    if (flight.keeps_bytes()) {
      write_at(payload_, slice, record.offset + flight.received, part_);
    }
    hash_.append(slice);
    if (record.kind != RecordKind::hash) statistics_.append(slice);
    flight.received += slice.size();
    bytes = bytes.subspan(slice.size());
  }
}

// The group at `path` below /data, made if need be. Groups stay open for a while, because the
// records of a module and its neighbours come together, and looking a group up from the root costs
// as much as making a dataset.
h5::Id SegmentWriter::Impl::group_of(const std::string& path) {
  const auto open = open_groups_.find(path);
  if (open != open_groups_.end()) return open->second.get();

  const std::size_t slash = path.rfind('/');
  const bool top = slash == std::string::npos;
  const h5::Id parent = top ? data_.get() : group_of(path.substr(0, slash));
  const char* name = path.c_str() + (top ? 0 : slash + 1);
  h5::Handle group = groups_.insert(path).second
                         ? new_group(parent, name)
                         : caller_.own(H5Gopen2(parent, name, H5P_DEFAULT), H5Gclose);
  if (open_groups_.size() == kOpenGroups) open_groups_.clear();
  return (open_groups_[path] = std::move(group)).get();
}

h5::Handle SegmentWriter::Impl::new_group(h5::Id parent, const char* name) const {
  return caller_.own(H5Gcreate2(parent, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
}

void SegmentWriter::Impl::commit() {
  InFlight& flight = in_flight();
  Record& record = flight.record;
  if (!flight.is_alias() && flight.received != record.bytes) {
    refuse(record.key, "fewer bytes came than were announced");
  }
  if (flight.dataset.valid()) link_dataset(flight);
  index_.rows.push_back(row_of(flight));
  // A key that comes again will come again: its next search starts behind this one.
  if (flight.path != flight.wanted_path) taken_[flight.wanted_path] = record.key.call + 1;
  taken_.emplace(std::move(flight.path), record.key.call + 1);
  flight_.reset();
}

void SegmentWriter::Impl::link_dataset(InFlight& flight) {
  const h5::Lock lock;
  const std::string& path = flight.path;
  const std::size_t slash = path.rfind('/');
  caller_.check(H5Olink(flight.dataset.get(), group_of(path.substr(0, slash)),
                        path.c_str() + slash + 1, H5P_DEFAULT, H5P_DEFAULT));
  flight.dataset.reset();
}

IndexRow SegmentWriter::Impl::row_of(const InFlight& flight) {
  const Record& record = flight.record;
  IndexRow row = ttrace::row_of(record, names_);
  if (!flight.layout.empty()) row.layout = layouts_.row_of(flight.layout);
  if (flight.is_alias()) {
    const IndexRow& target = index_.rows[static_cast<std::size_t>(record.alias_of)];
    row.hash = target.hash;
    row.statistics = target.statistics;
  } else {
    row.hash = hash_.finish();
    if (record.kind != RecordKind::hash) row.statistics = statistics_.finish();
  }
  return row;
}

void SegmentWriter::Impl::abandon() {
  if (!flight_) return;
  const h5::Lock lock;
  if (flight_->record.offset != 0) {  // gives the blocks back, to a disk that may be full
    fallocate(payload_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(flight_->record.offset),
              static_cast<off_t>(flight_->record.bytes));
  }
  flight_.reset();  // a dataset without a name ends with its handle
}

CollectiveRow SegmentWriter::Impl::row_of(const Collective& collective) {
  const std::string problem =
      closed_ ? "the segment is closed" : problem_of(collective, record_count());
  if (!problem.empty()) {
    throw Trouble("cannot write collective", path_.string() + ": " + collective.function, problem);
  }
  return ttrace::row_of(collective, names_);
}

std::size_t SegmentWriter::Impl::add_collective(const Collective& collective) {
  const CollectiveRow row = row_of(collective);
  reserve_row();
  collectives_.push_back(row);
  return collectives_.size() - 1;
}

int SegmentWriter::Impl::release_handles() {
  open_groups_.clear();
  types_ = {};
  for (h5::Handle* handle : {&data_, &creation_}) handle->reset();
  return file_.reset();
}

void SegmentWriter::Impl::close(bool complete) {
  if (closed_) return;
  const h5::Lock lock;
  if (flight_) complete = false;
  abandon();
  closed_ = true;
  reserve_.release();
  index_.names = names_.rows();
  index_.layouts = layouts_.rows();
  write_index(caller_, file_.get(), index_);
  write_collectives(caller_, file_.get(), collectives_);
  h5::write_attribute(caller_, file_.get(), "format", std::string(kFormatName));
  h5::write_attribute(caller_, file_.get(), "version", std::int32_t{kSegmentVersion});
  h5::write_attribute(caller_, file_.get(), "run_id", info_.run_id);
  h5::write_attribute(caller_, file_.get(), "rank", info_.rank);
  h5::write_attribute(caller_, file_.get(), "iteration", info_.iteration);
  h5::write_attribute(caller_, file_.get(), "complete", static_cast<std::int8_t>(complete));
  caller_.check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL));  // whose failure is still reported whole
  caller_.check(release_handles());
  sync_and_rename(payload_, part_, path_);
  payload_.reset();
}

SegmentWriter::SegmentWriter(std::filesystem::path path, SegmentInfo info)
    : impl_(std::make_unique<Impl>(std::move(path), std::move(info))) {}
SegmentWriter::~SegmentWriter() = default;

std::uint64_t SegmentWriter::begin(const Record& record, const std::string& layout_json) {
  return impl_->begin(record, layout_json);
}
void SegmentWriter::append(std::span<const std::byte> bytes) { impl_->append(bytes); }
void SegmentWriter::commit() { impl_->commit(); }
void SegmentWriter::abandon() { impl_->abandon(); }
std::size_t SegmentWriter::add_collective(const Collective& collective) {
  return impl_->add_collective(collective);
}
void SegmentWriter::change_collective(std::size_t row, const Collective& collective) {
  impl_->change_collective(row, collective);
}
std::uint64_t SegmentWriter::record_count() const { return impl_->record_count(); }
void SegmentWriter::close(bool complete) { impl_->close(complete); }

}  // namespace ttrace
