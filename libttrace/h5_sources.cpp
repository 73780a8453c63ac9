// SPDX-License-Identifier: Apache-2.0
// See h5_sources.hpp.
#include "libttrace/h5_sources.hpp"

#include <fcntl.h>
#include <hdf5.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "libttrace/core/trouble.hpp"
#include "libttrace/file.hpp"
#include "libttrace/h5_link.hpp"

namespace ttrace::h5 {
namespace {

constexpr int kMostNested = 16;  // virtual datasets of virtual datasets

// The text that `get(buffer, size)` gives.
template <class Get>
std::string text_from(const Caller& caller, Get get) {
  const ssize_t length = get(nullptr, std::size_t{0});
  caller.check(length);
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  caller.check(get(text.data(), text.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

// "%b" stands for numbers, "%%" for "%".
bool is_numbered(const std::string& name) {
  for (std::size_t at = 0; at + 1 < name.size(); ++at) {
    if (name[at] != '%') continue;
    if (name[++at] == 'b') return true;
  }
  return false;
}

std::string without_escapes(std::string name) {
  for (std::size_t at = name.find("%%"); at != std::string::npos; at = name.find("%%", at + 1)) {
    name.erase(at, 1);
  }
  return name;
}

std::string missing(const Caller& caller, Id dataset, Id creation, int depth);

// The sources of one virtual dataset. Most often many are in one file, which stays open.
class Sources {
 public:
  Sources(const Caller& caller, Id dataset, int depth)
      : caller_(caller), own_(caller.own(H5Iget_file_id(dataset), H5Fclose)), depth_(depth) {
    holder_ = text_from(
        caller, [&](char* buffer, std::size_t size) { return H5Fget_name(dataset, buffer, size); });
  }

  std::string missing_of(const std::string& file, const std::string& name) {
    const std::string text = "its source " + file + ":" + name;
    if (is_numbered(file) || is_numbered(name)) {
      return text + " stands for numbered ones, of which it is not known how many there are";
    }
    const Id id = open(without_escapes(file));
    if (id < 0) return text + " is not there: no such file";
    const Handle dataset(H5Dopen2(id, without_escapes(name).c_str(), H5P_DEFAULT), H5Dclose);
    if (!dataset.valid()) {
      if (failed_for_want_of_a_name()) return text + " is not there";
      caller_.check(H5Dopen2(id, without_escapes(name).c_str(), H5P_DEFAULT));
    }
    const Handle creation = caller_.own(H5Dget_create_plist(dataset.get()), H5Pclose);
    const std::string deeper = missing(caller_, dataset.get(), creation.get(), depth_ + 1);
    return deeper.empty() ? "" : text + ": " + deeper;
  }

 private:
  Id open(const std::string& file) {
    if (file == ".") return own_.get();
    if (file != latest_name_ || !latest_.valid()) {
      latest_ = open_first(places_of(holder_, file, "HDF5_VDS_PREFIX"));
      latest_name_ = file;
    }
    return latest_.get();
  }

  const Caller& caller_;
  Handle own_, latest_;
  std::string holder_, latest_name_;
  int depth_;
};

std::string missing_raw_file(const Caller& caller, Id dataset, Id creation) {
  const int count = H5Pget_external_count(creation);
  if (count <= 0) return "";
  const Handle access = caller.own(H5Dget_access_plist(dataset), H5Pclose);
  const std::filesystem::path folder = text_from(caller, [&](char* buffer, std::size_t size) {
    return H5Pget_efile_prefix(access.get(), buffer, size);
  });
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    std::array<char, 4096> name{};
    off_t offset = 0;
    hsize_t size = 0;
    caller.check(H5Pget_external(creation, i, name.size() - 1, name.data(), &offset, &size));
    const std::filesystem::path path = folder / name.data();
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid()) continue;
    if (errno != ENOENT && errno != ENOTDIR) throw system_trouble("cannot read", path, errno);
    return "its elements are in " + path.string() +
           ", which is not there; HDF5_EXTFILE_PREFIX names the folder of such files";
  }
  return "";
}

std::string missing(const Caller& caller, Id dataset, Id creation, int depth) {
  if (H5Pget_layout(creation) != H5D_VIRTUAL) return missing_raw_file(caller, dataset, creation);
  if (depth > kMostNested) return "its sources are virtual, too, and lead in a circle";
  std::size_t count = 0;
  caller.check(H5Pget_virtual_count(creation, &count));
  Sources sources(caller, dataset, depth);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string file = text_from(caller, [&](char* buffer, std::size_t size) {
      return H5Pget_virtual_filename(creation, i, buffer, size);
    });
    const std::string name = text_from(caller, [&](char* buffer, std::size_t size) {
      return H5Pget_virtual_dsetname(creation, i, buffer, size);
    });
    std::string text = sources.missing_of(file, name);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

std::string missing_source(const Caller& caller, Id dataset, Id creation) {
  return missing(caller, dataset, creation, 0);
}

void prepare_environment() {
  setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}", 0);
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
}

}  // namespace ttrace::h5
