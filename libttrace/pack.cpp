// SPDX-License-Identifier: Apache-2.0
// See pack.hpp.
#include "libttrace/pack.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "libttrace/core/trouble.hpp"

namespace ttrace {
namespace {

constexpr std::string_view kMagic = "TTRACEPK";
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kPrefix = 16;  // magic and length

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

Trouble failure(const std::filesystem::path& path, const char* what) {
  return {what, path.string(), std::strerror(errno)};
}

std::string index_text(const std::vector<PackEntry>& entries, const std::string& replay) {
  nlohmann::json tensors = nlohmann::json::object();
  for (const PackEntry& entry : entries) {
    tensors[entry.name] = {{"dtype", name_of(entry.dtype)},
                           {"shape", entry.shape},
                           {"offset", entry.offset},
                           {"bytes", entry.bytes()}};
    if (entry.scale != 1) tensors[entry.name]["scale"] = entry.scale;
  }
  nlohmann::json index = {
      {"format", "ttrace-pack"}, {"version", 1}, {"tensors", std::move(tensors)}};
  if (!replay.empty()) index["replay"] = nlohmann::json::parse(replay);
  return index.dump() + "\n";
}

void write_all(int fd, std::uint64_t at, std::span<const std::byte> bytes,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw failure(path, "write");
    at += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

// ---- writer ----

PackWriter::PackWriter(std::filesystem::path path, std::vector<PackEntry> entries,
                       const std::string& replay)
    : path_(std::move(path)), part_(path_), entries_(std::move(entries)) {
  part_ += ".part";
  std::uint64_t end = 0;
  for (PackEntry& entry : entries_) {
    if (entry.same_as != kOwnPayload) {
      entry.offset = entries_.at(entry.same_as).offset;
      continue;
    }
    entry.offset = aligned(end);
    end = entry.offset + entry.bytes();
  }
  const std::string index = index_text(entries_, replay);
  const std::uint64_t length = index.size();
  payloads_ = aligned(kPrefix + length);
  fd_ = open(part_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw failure(part_, "create");
  try {
    if (ftruncate(fd_, static_cast<off_t>(payloads_ + end)) != 0) throw failure(part_, "write");
    write_all(fd_, 0, std::as_bytes(std::span(kMagic)), part_);
    write_all(fd_, kMagic.size(), std::as_bytes(std::span(&length, 1)), part_);
    write_all(fd_, kPrefix, std::as_bytes(std::span(index)), part_);
  } catch (...) {
    discard();
    throw;
  }
}

PackWriter::~PackWriter() {
  if (fd_ >= 0) discard();
}

void PackWriter::discard() {
  ::close(std::exchange(fd_, -1));
  unlink(part_.c_str());
}

void PackWriter::write(std::size_t index, std::uint64_t at, std::span<const std::byte> bytes) {
  const PackEntry& entry = entries_.at(index);
  if (at > entry.bytes() || bytes.size() > entry.bytes() - at) {
    throw Trouble("write", part_.string(), "more bytes than " + entry.name + " has");
  }
  write_all(fd_, payloads_ + entry.offset + at, bytes, part_);
}

void PackWriter::close() {
  if (::close(std::exchange(fd_, -1)) != 0) throw failure(part_, "write");
  if (std::rename(part_.c_str(), path_.c_str()) != 0) throw failure(path_, "write");
}

// ---- reader ----

namespace {

Trouble broken(const std::filesystem::path& path, const std::string& why) {
  return {"read", path.string(), why + ", write the pack again"};
}

PackEntry entry_from(const std::string& name, const nlohmann::json& json) {
  PackEntry entry;
  entry.name = name;
  const auto dtype = dtype_from_name(json.at("dtype").get<std::string>());
  if (!dtype) throw std::invalid_argument("unknown dtype of " + name);
  entry.dtype = *dtype;
  entry.shape = json.at("shape").get<Shape>();
  entry.offset = json.at("offset").get<std::uint64_t>();
  entry.scale = json.value("scale", 1.0);
  if (json.at("bytes").get<std::uint64_t>() != entry.bytes()) {
    throw std::invalid_argument("shape and bytes of " + name + " disagree");
  }
  return entry;
}

}  // namespace

PackReader::PackReader(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw failure(path, "read");
  struct stat file {};
  const bool known = fstat(fd, &file) == 0;
  size_ = known ? static_cast<std::size_t>(file.st_size) : 0;
  void* address = size_ < kPrefix ? MAP_FAILED : mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (address == MAP_FAILED) throw broken(path, "it is too short or cannot be mapped");
  file_ = static_cast<const std::byte*>(address);

  std::uint64_t length = 0;
  std::memcpy(&length, file_ + kMagic.size(), sizeof length);
  const bool ours = std::memcmp(file_, kMagic.data(), kMagic.size()) == 0;
  try {
    if (!ours || length > size_ - kPrefix) throw std::invalid_argument("it is no pack");
    const auto* text = reinterpret_cast<const char*>(file_) + kPrefix;
    const nlohmann::json index = nlohmann::json::parse(text, text + length);
    if (index.at("version").get<int>() != 1) throw std::invalid_argument("its version is unknown");
    payloads_ = aligned(kPrefix + length);
    if (index.contains("replay")) replay_ = index.at("replay").dump();
    for (const auto& [name, tensor] : index.at("tensors").items()) {
      entries_.push_back(entry_from(name, tensor));
      const PackEntry& entry = entries_.back();
      if (payloads_ > size_ || entry.offset > size_ - payloads_ ||
          entry.bytes() > size_ - payloads_ - entry.offset) {
        throw std::invalid_argument("it ends before " + name);
      }
    }
  } catch (const std::exception& error) {
    munmap(const_cast<std::byte*>(file_), size_);
    throw broken(path, error.what());
  }
}

PackReader::~PackReader() { munmap(const_cast<std::byte*>(file_), size_); }

std::span<const std::byte> PackReader::bytes(const PackEntry& entry) const {
  return {file_ + payloads_ + entry.offset, static_cast<std::size_t>(entry.bytes())};
}

}  // namespace ttrace
