// SPDX-License-Identifier: Apache-2.0
#include "invariant/traincheck_reader.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "invariant/line_file.hpp"
#include "invariant/traincheck_line.hpp"

namespace ttrace::invariant {

namespace {

bool is_trace_file(const std::string& name) {
  return name.starts_with("trace_") || name.starts_with("proxy_log.json");
}

// The number that ends at `end`, which goes before it and the '_' in front; -1 when there is none.
std::int64_t last_number(const std::string& name, std::size_t& end) {
  std::size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  std::int64_t number = -1;
  if (std::from_chars(name.data() + begin, name.data() + end, number).ec != std::errc()) return -1;
  end = begin > 0 ? begin - 1 : 0;
  return number;
}

// Process and thread of "trace_API_<process>_<thread>.log"; files without them come first.
std::tuple<std::int64_t, std::int64_t, std::string> order_of(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  std::size_t end = std::min(name.rfind('.'), name.size());
  if (!name.starts_with("trace_")) return {-1, -1, name};
  const std::int64_t thread = last_number(name, end);
  const std::int64_t process = thread < 0 ? -1 : last_number(name, end);
  return {process, thread, name};
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Room for the file's records, so that they need not move. Lines have 300 to 1200 bytes.
void reserve(std::vector<Record>& records, const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return;
  const std::size_t wanted = records.size() + static_cast<std::size_t>(bytes / 500);
  if (wanted > records.capacity()) records.reserve(std::max(wanted, records.capacity() * 3 / 2));
}

void read_file(const std::filesystem::path& path, TraincheckLine& reader, Records& records) {
  LineFile file(path);
  LineHashes hashes;
  Damage damage;
  damage.file = path.string();
  Record record;
  reserve(records.records, path);
  const auto keep = [&](std::uint32_t line) {
    record.file = static_cast<std::uint32_t>(records.files.size());
    record.line = line;
    records.records.push_back(std::move(record));
  };
  std::string_view line;
  while (file.next(line)) {
    if (is_blank(line)) continue;
    if (!hashes.add(line)) {
      ++damage.duplicates;
    } else if (reader.read(line.data(), line.size(), record)) {
      keep(file.number());
    } else if (++damage.malformed == 1) {
      damage.first_malformed = file.number();
    }
  }
  line = file.rest();
  if (!is_blank(line)) {
    if (!reader.read(line.data(), line.size(), record)) {
      damage.partial_tail = true;
    } else if (!hashes.add(line)) {
      ++damage.duplicates;
    } else {
      keep(file.number() + 1);
    }
  }
  if (damage.duplicates + damage.malformed > 0 || damage.partial_tail)
    records.damage.push_back(damage);
  records.files.push_back(path.string());
}

}  // namespace

std::vector<std::filesystem::path> traincheck_files(const std::filesystem::path& trace) {
  std::error_code error;
  const auto status = std::filesystem::status(trace, error);
  if (!std::filesystem::exists(status)) return {};
  if (!std::filesystem::is_directory(status)) return {trace};
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entries(trace, error);
  if (error) throw system_trouble("cannot read", trace, error.value());
  for (const auto& entry : entries) {
    if (is_trace_file(entry.path().filename().string()) && !entry.is_directory(error))
      files.push_back(entry.path());
  }
  std::ranges::sort(files, {}, order_of);
  return files;
}

Records read_traincheck(const std::filesystem::path& trace, const ReadOptions& options) {
  Values pool;
  Records records = read_traincheck(trace, pool, options);
  records.values = std::move(pool);
  return records;
}

Records read_traincheck(const std::filesystem::path& trace, Values& pool,
                        const ReadOptions& options) {
  Records records;
  TraincheckLine reader(pool, options);
  const std::vector<std::filesystem::path> files = traincheck_files(trace);
  if (files.empty()) {
    std::error_code error;
    if (!std::filesystem::exists(trace, error))
      throw Trouble("cannot read", trace.string(), "there is no such file or folder");
    throw Trouble("no trace", trace.string(),
                  "it holds no file named trace_API_*, trace_VAR_* or proxy_log.json; give the "
                  "folder that traincheck-collect wrote (its --output-dir)");
  }
  for (const std::filesystem::path& file : files) read_file(file, reader, records);
  return records;
}

}  // namespace ttrace::invariant
