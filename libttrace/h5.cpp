// SPDX-License-Identifier: Apache-2.0
// Errors, files and element types. Custom float types are made by moving the fields of IEEE
// float32; float8_e4m3fn is an enum over uint8 whose 256 names are the values, because as a float
// type libhdf5 takes its largest exponent for infinity and NaN.
#include "libttrace/h5.hpp"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "libttrace/core/trouble.hpp"
#include "libttrace/file.hpp"

static_assert(std::is_same_v<hid_t, ttrace::h5::Id>);

namespace ttrace::h5 {
namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// The innermost entry of the error stack: the cause, with errno's text where there was one.
herr_t take_first(unsigned depth, const H5E_error2_t* error, void* text) {
  if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// libhdf5 prints times, descriptors and buffer addresses around a system error; one line is enough.
std::string plain_reason(std::string text) {
  constexpr std::string_view kSystemError = "error message = '";
  const std::size_t at = text.find(kSystemError);
  if (at != std::string::npos) {
    const std::size_t begin = at + kSystemError.size();
    return text.substr(begin, text.find('\'', begin) - begin);
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.empty() ? "libhdf5 gives no reason" : text;
}

std::string advice_if_newer(const std::string& reason) {
  if (reason.find("version number") == std::string::npos) return "";
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return "; this is libhdf5 " + std::to_string(major) + "." + std::to_string(minor) + "." +
         std::to_string(release) +
         ", a newer one may have written the file (libver='v110' keeps "
         "h5py from it)";
}

// Of the cache of libhdf5, for files of which only a little is needed again.
constexpr std::size_t kMetadata = std::size_t{256} << 10;

void disable_locks([[maybe_unused]] const Caller& caller, [[maybe_unused]] Id access) {
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
  caller.check(H5Pset_file_locking(access, false, true));
#else
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
#endif
}

// libhdf5 counts what headers take in the file; in memory they take ten times as much and more.
void limit_metadata(const Caller& caller, Id access, std::size_t bytes) {
  H5AC_cache_config_t config;
  config.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  caller.check(H5Pget_mdc_config(access, &config));
  config.set_initial_size = true;
  config.initial_size = config.min_size = config.max_size = bytes;
  config.incr_mode = H5C_incr__off;
  config.flash_incr_mode = H5C_flash_incr__off;
  config.decr_mode = H5C_decr__off;
  caller.check(H5Pset_mdc_config(access, &config));
}

Handle open_with_cache(const Caller& caller, std::size_t chunk_bytes, std::size_t metadata_bytes,
                       H5F_close_degree_t degree) {
  const Handle access = caller.own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  caller.check(H5Pset_fclose_degree(access.get(), degree));
  if (chunk_bytes > 0) caller.check(H5Pset_cache(access.get(), 0, 521, chunk_bytes, 0.75));
  // Others have no descriptor that tells which file it is, as FileBytes must know.
  caller.check(H5Pset_fapl_sec2(access.get()));
  if (metadata_bytes > 0) limit_metadata(caller, access.get(), metadata_bytes);
  disable_locks(caller, access.get());
  return caller.own(H5Fopen(caller.file().c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
}

struct FloatFields {
  std::size_t size, exponent_bits, mantissa_bits, bias;
};

Handle float_type(const Caller& caller, const FloatFields& fields) {
  Handle type = caller.own(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  const std::size_t sign = fields.exponent_bits + fields.mantissa_bits;
  // In this order: each step must leave a valid type.
  caller.check(H5Tset_fields(type.get(), sign, fields.mantissa_bits, fields.exponent_bits, 0,
                             fields.mantissa_bits));
  caller.check(H5Tset_precision(type.get(), sign + 1));
  caller.check(H5Tset_size(type.get(), fields.size));
  caller.check(H5Tset_ebias(type.get(), fields.bias));
  return type;
}

std::string e4m3fn_name(std::uint8_t code) {
  const float value = widen(Float8E4M3{code});
  if (value != value) return code < 0x80 ? "NaN" : "-NaN";
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

Handle e4m3fn_type(const Caller& caller) {
  Handle type = caller.own(H5Tenum_create(H5T_STD_U8LE), H5Tclose);
  for (int code = 0; code < 256; ++code) {
    const auto value = static_cast<std::uint8_t>(code);
    caller.check(H5Tenum_insert(type.get(), e4m3fn_name(value).c_str(), &value));
  }
  return type;
}

Handle boolean_type(const Caller& caller) {  // as h5py spells it
  Handle type = caller.own(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  for (const std::int8_t value : {std::int8_t{0}, std::int8_t{1}}) {
    caller.check(H5Tenum_insert(type.get(), value == 0 ? "FALSE" : "TRUE", &value));
  }
  return type;
}

}  // namespace

Lock::Lock() : guard_(library_mutex()) {
  thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(quiet);
}

void Caller::fail(const std::string& why) const { throw Trouble(what_, file_, why); }

void Caller::fail_with_reason() const {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &text);
  const std::string reason = plain_reason(text);
  fail(reason + advice_if_full(reason) + advice_if_newer(reason));
}

Handle create_file(const Caller& caller) {
  const Handle access = caller.own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  caller.check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST));
  caller.check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG));
  caller.check(H5Pset_alignment(access.get(), 1, 64));
  caller.check(H5Pset_meta_block_size(access.get(), hsize_t{1} << 20));
  disable_locks(caller, access.get());
  const Handle creation = caller.own(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  // The default strategy keeps every gap that alignment leaves and searches them all for each
  // dataset: quadratic, milliseconds a dataset when they are small.
  caller.check(
      H5Pset_file_space_strategy(creation.get(), H5F_FSPACE_STRATEGY_NONE, false, hsize_t{1}));
  return caller.own(H5Fcreate(caller.file().c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
                    H5Fclose);
}

Handle open_file(const Caller& caller) { return open_with_cache(caller, 0, 0, H5F_CLOSE_STRONG); }

Handle open_any_file(const Caller& caller) {
  // As libhdf5 opens what links lead to: one file has one degree, and links may lead back to it.
  return open_with_cache(caller, std::size_t{16} << 20, kMetadata, H5F_CLOSE_WEAK);
}

Handle file_type(const Caller& caller, DType type) {
  const auto copy = [&](Id of) { return caller.own(H5Tcopy(of), H5Tclose); };
  switch (type) {
    case DType::float64:
      return copy(H5T_IEEE_F64LE);
    case DType::float32:
      return copy(H5T_IEEE_F32LE);
    case DType::bfloat16:
      return float_type(caller, {2, 8, 7, 127});
    case DType::float16:
      return float_type(caller, {2, 5, 10, 15});
    case DType::float8_e4m3fn:
      return e4m3fn_type(caller);
    case DType::float8_e5m2:
      return float_type(caller, {1, 5, 2, 15});
    case DType::int8:
      return copy(H5T_STD_I8LE);
    case DType::int16:
      return copy(H5T_STD_I16LE);
    case DType::int32:
      return copy(H5T_STD_I32LE);
    case DType::int64:
      return copy(H5T_STD_I64LE);
    case DType::uint8:
      return copy(H5T_STD_U8LE);
    case DType::boolean:
      return boolean_type(caller);
  }
  caller.fail("unknown element type");
}

}  // namespace ttrace::h5
