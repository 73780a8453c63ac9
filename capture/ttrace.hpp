// SPDX-License-Identifier: Apache-2.0
// The C interface (ttrace.h) for C++17: objects that end what they begin, types that say what they
// are.
//
//   ttrace::Run run;                        // opens the trace, closes it at the end of the block
//   run.axis("tp", tp_size, tp_rank);       // where this rank is in the mesh
//   for (int step = 0; step < steps; ++step) {
//     const ttrace::Iteration iteration(step);
//     for (int i = 0; i < microbatches; ++i) {
//       const ttrace::Microbatch microbatch(i);
//       const ttrace::Scope scope("layers.0.fc");
//       ttrace::record(ttrace::output(), activation, {rows, columns});
//     }
//     ttrace::record(ttrace::gradient("layers.0.fc.weight"), gradient, {columns, inner});
//   }
//
// Without ttrace-capture nothing happens. What a call returns need not be looked at: an error is in
// the trace, and the program goes on. Nothing throws but Result::check().
#ifndef TTRACE_HPP
#define TTRACE_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ttrace.h"
#include "ttrace_types.hpp"

namespace ttrace {
inline namespace api {

// ---- what a tensor is ----

// Module and micro-batch are those of the scope and the iteration, unless it says otherwise.
class Place {
 public:
  Place(ttrace_phase phase, std::string slot) : slot_(std::move(slot)) {
    tensor_.struct_size = sizeof tensor_;
    tensor_.phase = static_cast<std::uint8_t>(phase);
    tensor_.microbatch = TTRACE_CURRENT;
    tensor_.alias_of = -1;
  }
  Place& module(std::string name) { return set(module_, std::move(name)); }
  Place& raw_name(std::string name) { return set(raw_name_, std::move(name)); }
  // JSON, e.g. {"dims":"h[tp] d","shape":[256,64]}; or those two.
  Place& layout(std::string json) { return set(layout_, std::move(json)); }
  Place& layout(const std::string& dims, const Extents& whole) {
    std::string shape;
    for (std::size_t i = 0; i < whole.dimensions(); ++i) {
      shape += (i == 0 ? "" : ",") + std::to_string(whole.data()[i]);
    }
    return layout("{\"dims\":\"" + dims + "\",\"shape\":[" + shape + "],\"source\":\"program\"}");
  }
  Place& microbatch(std::int32_t number) { return set(tensor_.microbatch, number); }
  Place& call(std::uint32_t number) { return set(tensor_.call, number); }
  Place& kind(ttrace_kind kind) { return set(tensor_.kind, static_cast<std::uint8_t>(kind)); }
  Place& flag(ttrace_flag flag) {
    return set(tensor_.flags, tensor_.flags | static_cast<std::uint32_t>(flag));
  }
  Place& alias_of(std::int64_t sequence) { return set(tensor_.alias_of, sequence); }
  // The data are on a device, or perhaps, and ready on this cudaStream_t.
  Place& on(ttrace_device device, void* stream) {
    tensor_.stream = stream;
    return set(tensor_.device, static_cast<std::uint32_t>(device));
  }

  // For a call of the C interface; valid while both live.
  [[nodiscard]] ttrace_tensor describe(const void* data, ttrace_dtype dtype,
                                       const Extents& shape) const noexcept {
    const auto text = [](const std::string& of) { return of.empty() ? nullptr : of.c_str(); };
    ttrace_tensor tensor = tensor_;
    tensor.dtype = static_cast<std::uint8_t>(dtype);
    tensor.ndim = shape.dimensions();
    tensor.module = text(module_);
    tensor.slot = slot_.c_str();
    tensor.raw_name = text(raw_name_);
    tensor.layout = text(layout_);
    tensor.shape = shape.data();
    tensor.data = data;
    return tensor;
  }

 private:
  template <class Member, class Value>
  Place& set(Member& member, Value&& value) {
    member = std::forward<Value>(value);
    return *this;
  }

  ttrace_tensor tensor_{};
  std::string module_, slot_, raw_name_, layout_;
};

inline Place input(std::string slot = "input.0") { return {TTRACE_FORWARD, std::move(slot)}; }
inline Place output(std::string slot = "output.0") { return {TTRACE_FORWARD, std::move(slot)}; }
inline Place grad_output(std::string slot = "grad_output.0") {
  return {TTRACE_BACKWARD, std::move(slot)};
}
inline Place of_parameter(ttrace_phase phase, std::string name, std::string slot) {
  Place place(phase, std::move(slot));
  place.module(std::move(name)).microbatch(-1).flag(TTRACE_TRAINABLE);
  return place;
}
inline Place parameter(std::string name, std::string slot = "value") {
  return of_parameter(TTRACE_PARAM, std::move(name), std::move(slot));
}
// "reduced" and "clipped"; what one micro-batch adds is "local".
inline Place gradient(std::string name, std::string slot = "reduced") {
  const std::int32_t microbatch = slot == "local" ? TTRACE_CURRENT : -1;
  return of_parameter(TTRACE_GRAD, std::move(name), std::move(slot)).microbatch(microbatch);
}
inline Place step(std::string name, std::string slot = "param") {
  return of_parameter(TTRACE_STEP, std::move(name), std::move(slot));
}
// What goes into and comes out of a collective: "all_reduce.input".
inline Place buffer(std::string slot) { return {TTRACE_COMM, std::move(slot)}; }

// ---- record and feed: a pointer and a shape, or what has data() and size() ----

namespace detail {
template <class Range>
using Element = std::remove_pointer_t<decltype(std::declval<Range&>().data())>;
template <class Range>
using IfRange =
    std::enable_if_t<std::is_integral_v<std::decay_t<decltype(std::declval<Range&>().size())>>,
                     Element<Range>>;
template <class T>
inline constexpr ttrace_dtype kDtype = dtype_of<std::remove_cv_t<T>>::value;

inline Result wrong_size(const Place& place, const Extents& shape, std::size_t size) {
  const ttrace_tensor tensor = place.describe(nullptr, TTRACE_UINT8, shape);
  const std::string where =
      std::string(tensor.module == nullptr ? ttrace_scope() : tensor.module) + "/" + tensor.slot;
  const std::string why = "its shape has " + std::to_string(shape.elements()) +
                          " elements, the container " + std::to_string(size);
  ttrace_note("not recorded", where.c_str(), why.c_str());
  return Result(-EINVAL, where + ": " + why);
}
}  // namespace detail

inline Result record(const Place& place, const void* data, ttrace_dtype dtype,
                     const Extents& shape) {
  const ttrace_tensor tensor = place.describe(data, dtype, shape);
  return Result(ttrace_record(&tensor));
}
template <class T>
Result record(const Place& place, const T* data, const Extents& shape) {
  return record(place, data, detail::kDtype<T>, shape);
}
template <class Range, class T = detail::IfRange<const Range>>
Result record(const Place& place, const Range& values, const Extents& shape) {
  if (!active()) return Result(-ENOTCONN);
  if (shape.elements() != values.size()) return detail::wrong_size(place, shape, values.size());
  return record(place, values.data(), detail::kDtype<T>, shape);
}
template <class Range, class T = detail::IfRange<const Range>>
Result record(const Place& place, const Range& values) {
  return record(place, values.data(), detail::kDtype<T>, Extents(values.size()));
}

// In a replay, writes over `data` what the other run computed there; call it right after record.
inline Result feed(const Place& place, void* data, ttrace_dtype dtype, const Extents& shape) {
  const ttrace_tensor tensor = place.describe(data, dtype, shape);
  return Result(ttrace_feed(&tensor, data));
}
template <class T>
Result feed(const Place& place, T* data, const Extents& shape) {
  return feed(place, data, detail::kDtype<T>, shape);
}
template <class Range, class T = detail::IfRange<Range>>
Result feed(const Place& place, Range& values, const Extents& shape) {
  if (!active()) return Result(-ENOTCONN);
  if (shape.elements() != values.size()) return detail::wrong_size(place, shape, values.size());
  return feed(place, values.data(), detail::kDtype<T>, shape);
}

// ---- collectives that ttrace does not see by itself ----

// With the members set that every call has; the caller sets the others.
inline ttrace_collective collective(const char* function, const char* group, std::int32_t member,
                                    std::int32_t size) noexcept {
  ttrace_collective call{};
  call.struct_size = sizeof call;
  call.function = function;
  call.group = group;
  call.member = member;
  call.size = size;
  call.factor = 1;
  call.peer = -1;
  call.microbatch = TTRACE_CURRENT;
  call.dtype = TTRACE_FLOAT32;
  call.input = call.output = call.position = -1;
  return call;
}
inline Result record(const ttrace_collective& call) {
  return Result(ttrace_record_collective(&call));
}
// Before it is made; record(call) then says that it has ended.
inline Result begin(ttrace_collective call) {
  call.flags |= TTRACE_BEGUN;
  return record(call);
}

// ---- where the program is ----

struct Options {
  std::string directory;  // "": from the environment, as with all of these
  std::string writer;
  std::string run_id;
  std::int32_t rank = -1;
  std::int32_t world_size = 0;
  std::uint64_t ring_bytes = 0;
  bool feeds = true;  // false: feed will not be called
};

// Constructors of what would end at once without a name; compilers know that since C++20, and most
// of them in C++17, too.
#if __has_cpp_attribute(nodiscard) >= 201907L
#define TTRACE_NEEDS_NAME [[nodiscard]]
#else
#define TTRACE_NEEDS_NAME
#endif

// What ends with its block, so it needs a name: `ttrace::Scope scope("fc");`. result() is that of
// its beginning.
class Mark {
 public:
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  [[nodiscard]] const Result& result() const noexcept { return result_; }

 protected:
  explicit Mark(std::int64_t returned) : result_(returned) {}
  ~Mark() = default;

 private:
  Result result_;
};

// The trace of this process, one at a time.
class Run : public Mark {
 public:
  TTRACE_NEEDS_NAME Run() : Mark(ttrace_open(nullptr)) {}
  TTRACE_NEEDS_NAME explicit Run(const Options& options) : Mark(open(options)) {}
  ~Run() { ttrace_close(); }

  Result axis(const char* name, std::int32_t size, std::int32_t coordinate) {
    return Result(ttrace_axis(name, size, coordinate));
  }
  Result group(const char* name, const std::vector<std::int32_t>& ranks) {
    return Result(ttrace_group(name, ranks.data(), ranks.size()));
  }
  Result set(const std::string& json) { return Result(ttrace_set(json.c_str())); }
  // Now, for who wants to know whether all records reached the disk.
  Result close() { return Result(ttrace_close()); }

 private:
  static int open(const Options& options) {
    ttrace_options given{};
    given.struct_size = sizeof given;
    given.rank = options.rank;
    given.world_size = options.world_size;
    given.flags = options.feeds ? 0 : static_cast<std::uint32_t>(TTRACE_NO_FEED);
    given.directory = options.directory.c_str();
    given.writer = options.writer.c_str();
    given.run_id = options.run_id.c_str();
    given.ring_bytes = options.ring_bytes;
    return ttrace_open(&given);
  }
};

class Iteration : public Mark {
 public:
  TTRACE_NEEDS_NAME explicit Iteration(std::int64_t number)
      : Mark(ttrace_begin_iteration(number)) {}
  ~Iteration() { ttrace_end_iteration(); }
};

class Microbatch : public Mark {
 public:
  TTRACE_NEEDS_NAME explicit Microbatch(std::int32_t number)
      : Mark(ttrace_begin_microbatch(number)) {}
  ~Microbatch() { ttrace_begin_microbatch(-1); }
};

// Collectives that begin in this block are not recorded from outside, as NCCL's are.
class Pause {
 public:
  Pause() noexcept : before_(ttrace_pause(1)) {}
  ~Pause() { ttrace_pause(before_); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  int before_;
};

// The module that this thread is in, by its name in all layouts.
class Scope : public Mark {
 public:
  TTRACE_NEEDS_NAME explicit Scope(const char* module) : Mark(ttrace_push_scope(module)) {}
  TTRACE_NEEDS_NAME explicit Scope(const std::string& module) : Scope(module.c_str()) {}
  ~Scope() {
    if (result().done()) ttrace_pop_scope();
  }
};

#undef TTRACE_NEEDS_NAME

}  // namespace api
}  // namespace ttrace

#endif  // TTRACE_HPP
