// SPDX-License-Identifier: Apache-2.0
// Pairs of datasets at equal paths: whether they can be compared, by what way their elements are
// read, and what the numbers then say.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "diff/hdf5_compare.hpp"
#include "diff/hdf5_numbers.hpp"
#include "libttrace/h5_object.hpp"
#include "libttrace/h5_references.hpp"

namespace ttrace {

// One of the two files, and those that its links lead to.
class Hdf5Side {
 public:
  Hdf5Side(const std::filesystem::path& path, ReadMode mode);

  [[nodiscard]] const h5::Caller& caller() const { return caller_; }
  [[nodiscard]] h5::Object root() const { return h5::root_of(caller_, file_.get()); }
  // Valid until the next one is opened.
  const h5::Dataset& open(const h5::Object& object);
  // The bytes of the file that holds the object.
  const FileBytes& bytes(const h5::Object& object);
  // What references in elements of the type, which the object has, refer to; nullptr: it has none.
  const h5::References* references(const h5::Object& object, const h5::ElementType& type);

 private:
  h5::Caller caller_;
  ReadMode mode_;
  h5::Handle file_;
  std::map<FileIdentity, std::unique_ptr<FileBytes>> bytes_;
  std::map<FileIdentity, h5::References> references_;
  std::optional<h5::Dataset> latest_;  // its type is likely that of the next
};

class DatasetComparer {
 public:
  DatasetComparer(Hdf5Side& reference, Hdf5Side& candidate, const Backend& backend,
                  const Hdf5Options& options, Hdf5Report& report);

  // May return before their elements are compared.
  void compare(const std::string& path, const h5::Object& reference, const h5::Object& candidate);
  // Waits for all of them, and adds what they say to the report.
  void finish();

 private:
  void compare_elements(const h5::Dataset& left, const h5::Object& reference,
                        const h5::Dataset& right, const h5::Object& candidate, DatasetLine& line);
  void add_job(const h5::Dataset& left, const h5::Object& reference, const h5::Dataset& right,
               const h5::Object& candidate, std::uint64_t count, DatasetLine& line);
  void judge(DatasetLine& line);
  std::shared_ptr<const std::string> shared(const std::string& text);

  Hdf5Side& reference_;
  Hdf5Side& candidate_;
  const Backend& backend_;
  const Hdf5Options& options_;
  Hdf5Report& report_;
  std::vector<std::pair<DatasetLine*, NumberJob>> jobs_;
  std::map<std::string_view, std::shared_ptr<const std::string>> types_;  // that were described
  NumberCrew crew_;
};

[[nodiscard]] std::string extent_text(const h5::Extent& extent);

}  // namespace ttrace
