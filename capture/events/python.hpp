// SPDX-License-Identifier: Apache-2.0
// Python's stable interface: one library for every CPython from 3.10 on.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>

namespace ttrace::events {

struct Release {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Release>;  // a reference; null: an exception is set

inline PyObject* borrow(PyObject* object) {
  Py_XINCREF(object);
  return object;
}

// A function object of a type's table of slots.
template <class Function>
void* slot(Function function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace ttrace::events
