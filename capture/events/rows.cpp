// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "capture/events/events.hpp"

namespace ttrace::events {

PyTypeObject* rows_type = nullptr;

namespace {

PyObject* make(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* object = PyType_GenericAlloc(type, 0);
  if (object != nullptr) reinterpret_cast<Rows*>(object)->values = new std::vector<std::int64_t>;
  return object;
}

void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<Rows*>(self)->values;
  PyObject_Free(self);
  Py_DECREF(type);
}

Py_ssize_t length(PyObject* self) {
  return static_cast<Py_ssize_t>(reinterpret_cast<Rows*>(self)->values->size());
}

PyObject* append(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  std::int64_t row[4]{};
  if (count != 4) {
    PyErr_SetString(PyExc_TypeError, "a row has four integers");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < 4; ++i) row[i] = PyLong_AsLongLong(arguments[i]);
  if (PyErr_Occurred() != nullptr) return nullptr;
  reinterpret_cast<Rows*>(self)->append(row[0], row[1], row[2], row[3]);
  Py_RETURN_NONE;
}

// All integers as bytes; none are left.
PyObject* cut(PyObject* self, PyObject*) {
  std::vector<std::int64_t>& values = *reinterpret_cast<Rows*>(self)->values;
  PyObject* bytes =
      PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                static_cast<Py_ssize_t>(values.size() * sizeof(std::int64_t)));
  if (bytes != nullptr) values.clear();
  return bytes;
}

PyMethodDef methods[] = {{"append", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(append)),
                          METH_FASTCALL, "append(a, b, c, d): one row."},
                         {"cut", cut, METH_NOARGS, "All integers as bytes; none are left."},
                         {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, slot(make)},
                       {Py_tp_dealloc, slot(destroy)},
                       {Py_sq_length, slot(length)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"_ttrace_events.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool add_rows(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  rows_type = reinterpret_cast<PyTypeObject*>(type);
  return type != nullptr && PyModule_AddObjectRef(module, "Rows", type) == 0;
}

}  // namespace ttrace::events
