// SPDX-License-Identifier: Apache-2.0
// What ttrace_agent.events does at every call and every step, in C++ because each costs the traced
// program time: rows, keys of values, the recording of a call, the look at parameters. Everything
// that happens once (descriptions, names, files) is Python. Nothing here may fail the program: an
// error while recording is swallowed, one of the program is passed on as it is.
// All of it runs with the interpreter's lock held.
#pragma once

#include <cstdint>
#include <ctime>
#include <vector>

#include "capture/events/python.hpp"

namespace ttrace::events {

inline constexpr std::int64_t kNothing = -1;  // in place of a definition's number
inline constexpr Py_ssize_t kLongest = 256;   // containers with more members in all are named only
inline constexpr Py_ssize_t kLongestText = 4096;  // what of a text counts

// Rows of one thread that are not yet in the file: integers, four a row.
struct Rows {
  PyObject ob_base;
  std::vector<std::int64_t>* values;

  void append(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    values->insert(values->end(), {a, b, c, d});
  }
};
extern PyTypeObject* rows_type;

// As time.monotonic_ns().
inline std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// A hashable object that is equal for values of equal description (values.py); of containers and
// objects it holds what a description would. Runs no code of the program but __eq__ and __hash__ of
// plain values. New reference, or null with an exception.
PyObject* key_of(PyObject* value);
// As key_of, but members of a tuple count one by one.
PyObject* key_of_result(PyObject* value);
// torch's classes and what Python does for keys: (Tensor, Parameter, dtype, device,
// key of a subclass of Tensor, whether a TorchFunctionMode is active, a context without).
PyObject* use_torch(PyObject* module, PyObject* arguments);

// While it lives the program's TorchFunctionModes do not see what is asked of tensors.
class WithoutModes {
 public:
  WithoutModes();
  ~WithoutModes();
  WithoutModes(const WithoutModes&) = delete;
  WithoutModes& operator=(const WithoutModes&) = delete;

 private:
  Owned context_;  // null: there were none
};

// Names of attributes, interned.
struct Names {
  PyObject *data_ptr, *device, *dict, *dictoffset, *dtype, *enter, *exit, *grad, *is_contiguous,
      *is_cpu, *is_leaf;
  PyObject *layout, *module, *nbytes, *qualname, *requires_grad, *retains_grad, *rows, *shape;
  PyObject *untyped_storage, *version;
};
extern Names names;

bool add_rows(PyObject* module);
bool add_recorder(PyObject* module);
bool add_variables(PyObject* module);

}  // namespace ttrace::events
