// SPDX-License-Identifier: Apache-2.0
// What we need of libhdf5, with handles that close themselves and failures that are Trouble with
// libhdf5's own reason. This header does not include hdf5.h, so that only .cpp files see it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "libttrace/core/dtype.hpp"

namespace ttrace::h5 {

using Id = std::int64_t;  // hid_t

// Owns an HDF5 identifier. A dataset left open would keep its file open, and locked.
class Handle {
 public:
  Handle() = default;
  Handle(Id id, int (*close)(Id)) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept { swap(other); }
  Handle& operator=(Handle&& other) noexcept {
    Handle(std::move(other)).swap(*this);
    return *this;
  }

  [[nodiscard]] Id get() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }
  int reset() { return valid() ? close_(std::exchange(id_, -1)) : 0; }

 private:
  void swap(Handle& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
  }

  Id id_ = -1;
  int (*close_)(Id) = nullptr;
};

// Held around every use of libhdf5, because not every build of it is thread-safe. Recursive. Also
// keeps libhdf5 from printing its error stack on this thread.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// Knows what is being done to which file, and says so when a call of libhdf5 fails.
class Caller {
 public:
  Caller(std::string what, std::string file) : what_(std::move(what)), file_(std::move(file)) {}

  // `result` is a new identifier, or negative.
  [[nodiscard]] Handle own(Id result, int (*close)(Id)) const {
    check(result);
    return {result, close};
  }
  void check(std::int64_t result) const {
    if (result < 0) fail_with_reason();
  }
  [[noreturn]] void fail(const std::string& why) const;
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  [[noreturn]] void fail_with_reason() const;

  std::string what_;
  std::string file_;
};

// ---- files ----
[[nodiscard]] Handle create_file(const Caller& caller);
// Without locks: segments are read after their writer closed them.
[[nodiscard]] Handle open_file(const Caller& caller);
// A file of anyone, with room for chunks that are read piece by piece.
[[nodiscard]] Handle open_any_file(const Caller& caller);

// ---- element types, as they are in the file ----
[[nodiscard]] Handle file_type(const Caller& caller, DType type);

// ---- attributes of an object, and lists of strings ----
void write_attribute(const Caller& caller, Id object, const char* name, const std::string& value);
void write_attribute(const Caller& caller, Id object, const char* name, std::int8_t value);
void write_attribute(const Caller& caller, Id object, const char* name, std::int32_t value);
void write_attribute(const Caller& caller, Id object, const char* name, std::int64_t value);
[[nodiscard]] bool has_attribute(Id object, const char* name);
[[nodiscard]] std::string string_attribute(const Caller& caller, Id object, const char* name);
[[nodiscard]] std::int64_t integer_attribute(const Caller& caller, Id object, const char* name);

void write_strings(const Caller& caller, Id file, const char* name,
                   const std::vector<std::string>& values);
[[nodiscard]] std::vector<std::string> read_strings(const Caller& caller, Id file,
                                                    const char* name);

}  // namespace ttrace::h5
