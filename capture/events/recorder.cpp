// SPDX-License-Identifier: Apache-2.0
// What stands between a program and a function: two rows a call.
#include <string>

#include "capture/events/events.hpp"

namespace ttrace::events {

namespace {

PyTypeObject* describer_type = nullptr;

// Numbers of descriptions, by key. What has none yet is described in Python.
struct Describer {
  PyObject ob_base;
  PyObject* table;   // key -> number; Python empties it now and then
  PyObject* define;  // define(key, arguments, keyword arguments) -> number; results: (key, value)
  // Arguments by position that are wanted, true or false each; null: all.
  PyObject* places;
  PyObject* names;  // keyword -> whether it is wanted, "*": those beyond `places`; null: all
  PyObject* wants;  // wants(keyword) -> bool, for `names`
};

struct Recorder {
  PyObject ob_base;
  PyObject* function;
  PyObject* local;      // its `rows` are this thread's, or None
  PyObject* arguments;  // a Describer, or None
  PyObject* results;    // likewise
  PyObject* failed;     // failed(rows, exception)
  PyObject* flush;
  std::int64_t before;  // codes of the rows
  std::int64_t after;
  std::int64_t limit;  // integers that may wait
  int bound;           // a method: its first argument is an object
};

std::int64_t number_of(const Describer& describer, PyObject* key, PyObject* first,
                       PyObject* second) {
  PyObject* known = PyDict_GetItemWithError(describer.table, key);
  if (known != nullptr) return PyLong_AsLongLong(known);
  if (PyErr_Occurred() != nullptr) return kNothing;
  const Owned made(PyObject_CallFunctionObjArgs(describer.define, key, first, second, nullptr));
  return made == nullptr ? kNothing : PyLong_AsLongLong(made.get());
}

bool is_wanted(const Describer& describer, PyObject* keyword) {
  if (describer.names == nullptr) return true;
  PyObject* known = PyDict_GetItemWithError(describer.names, keyword);
  if (known != nullptr) return known == Py_True;
  const Owned found(PyObject_CallFunctionObjArgs(describer.wants, keyword, nullptr));
  if (found == nullptr) return false;
  const bool wanted = PyObject_IsTrue(found.get()) == 1;
  PyDict_SetItem(describer.names, keyword, wanted ? Py_True : Py_False);
  return wanted;
}

bool is_wanted(const Describer& describer, Py_ssize_t place) {
  if (describer.places == nullptr) return true;
  const Py_ssize_t known = PyTuple_Size(describer.places);
  const Py_ssize_t at = place < known ? place : known - 1;  // the last: all further ones
  return PyTuple_GetItem(describer.places, at) == Py_True;
}

// Of the wanted arguments, None in place of the others, then pairs of the wanted keywords.
PyObject* key_of_call(const Describer& describer, PyObject* arguments, PyObject* keywords) {
  const Py_ssize_t count = PyTuple_Size(arguments);
  Owned key(PyTuple_New(count + (keywords == nullptr ? 0 : 1)));
  if (key == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* part =
        is_wanted(describer, i) ? key_of(PyTuple_GetItem(arguments, i)) : borrow(Py_None);
    if (part == nullptr) return nullptr;
    PyTuple_SetItem(key.get(), i, part);
  }
  if (keywords == nullptr) return key.release();
  Owned pairs(PyList_New(0));
  if (pairs == nullptr) return nullptr;
  PyObject *keyword, *value;
  for (Py_ssize_t at = 0; PyDict_Next(keywords, &at, &keyword, &value) != 0;) {
    if (!is_wanted(describer, keyword)) continue;
    const Owned part(key_of(value));
    if (part == nullptr || PyList_Append(pairs.get(), keyword) != 0 ||
        PyList_Append(pairs.get(), part.get()) != 0) {
      return nullptr;
    }
  }
  PyObject* members = PyList_AsTuple(pairs.get());
  if (members == nullptr) return nullptr;
  PyTuple_SetItem(key.get(), count, members);
  return key.release();
}

// Objects whose attributes raise are not described.
std::int64_t known_or_nothing(std::int64_t number) {
  if (PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  return kNothing;
}

std::int64_t describe_call(PyObject* describer, PyObject* arguments, PyObject* keywords) {
  if (describer == Py_None) return kNothing;
  const WithoutModes quiet;
  const Describer& how = *reinterpret_cast<Describer*>(describer);
  const Owned key(key_of_call(how, arguments, keywords));
  return known_or_nothing(key == nullptr ? kNothing
                                         : number_of(how, key.get(), arguments,
                                                     keywords == nullptr ? Py_None : keywords));
}

std::int64_t describe_result(PyObject* describer, PyObject* value) {
  if (describer == Py_None) return kNothing;
  const WithoutModes quiet;
  const Owned key(key_of_result(value));
  return known_or_nothing(key == nullptr ? kNothing
                                         : number_of(*reinterpret_cast<Describer*>(describer),
                                                     key.get(), value, nullptr));
}

// The program's exception goes on as it is.
void record_exception(const Recorder& recorder, PyObject* rows) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned done(PyObject_CallFunctionObjArgs(recorder.failed, rows, value, nullptr));
  if (done == nullptr) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
}

PyObject* call(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  const Recorder& recorder = *reinterpret_cast<Recorder*>(self);
  if (count != 2 || !PyTuple_Check(given[0]) || !PyDict_Check(given[1])) {
    PyErr_SetString(PyExc_TypeError, "a tuple and a dict are expected");
    return nullptr;
  }
  PyObject* arguments = given[0];
  PyObject* keywords = PyDict_Size(given[1]) == 0 ? nullptr : given[1];
  const Owned held(PyObject_GetAttr(recorder.local, names.rows));
  if (held == nullptr) return nullptr;
  const bool unlike_a_method = recorder.bound != 0 && PyTuple_Size(arguments) == 0;
  if (Py_TYPE(held.get()) != rows_type || unlike_a_method) {
    return PyObject_Call(recorder.function, arguments, keywords);
  }
  Rows& rows = *reinterpret_cast<Rows*>(held.get());
  const std::int64_t begun = now();
  const std::int64_t object =
      recorder.bound == 0 ? 0 : reinterpret_cast<std::int64_t>(PyTuple_GetItem(arguments, 0));
  const std::int64_t described = describe_call(recorder.arguments, arguments, keywords);
  rows.append(recorder.before, begun, described, object);
  Owned result(PyObject_Call(recorder.function, arguments, keywords));
  if (result == nullptr) {
    record_exception(recorder, held.get());
    return nullptr;
  }
  const std::int64_t ended = now();
  const std::int64_t returned = describe_result(recorder.results, result.get());
  rows.append(recorder.after, ended, returned, 0);
  if (static_cast<std::int64_t>(rows.values->size()) > recorder.limit) {
    const Owned done(PyObject_CallFunctionObjArgs(recorder.flush, nullptr));
    if (done == nullptr) PyErr_Clear();
  }
  return result.release();
}

// ---- the types ----

PyObject* make_describer(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *table, *define, *places = nullptr, *wants = nullptr;
  if (PyArg_ParseTuple(arguments, "O!O|O!O", &PyDict_Type, &table, &define, &PyTuple_Type, &places,
                       &wants) == 0) {
    return nullptr;
  }
  PyObject* object = PyType_GenericAlloc(type, 0);
  if (object == nullptr) return nullptr;
  auto& describer = *reinterpret_cast<Describer*>(object);
  describer.table = borrow(table);
  describer.define = borrow(define);
  describer.places = borrow(places);
  describer.wants = borrow(wants);
  describer.names = wants == nullptr ? nullptr : PyDict_New();
  return object;
}

PyObject* make_recorder(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *function, *local, *described, *results, *failed, *flush;
  long long before, after, limit;
  int bound;
  if (PyArg_ParseTuple(arguments, "OOOOOOLLLp", &function, &local, &described, &results, &failed,
                       &flush, &before, &after, &limit, &bound) == 0) {
    return nullptr;
  }
  for (PyObject* how : {described, results}) {
    if (how != Py_None && Py_TYPE(how) != describer_type) {
      PyErr_SetString(PyExc_TypeError, "a Describer or None is expected");
      return nullptr;
    }
  }
  PyObject* object = PyType_GenericAlloc(type, 0);
  if (object == nullptr) return nullptr;
  auto& recorder = *reinterpret_cast<Recorder*>(object);
  recorder.function = borrow(function);
  recorder.local = borrow(local);
  recorder.arguments = borrow(described);
  recorder.results = borrow(results);
  recorder.failed = borrow(failed);
  recorder.flush = borrow(flush);
  recorder.before = before;
  recorder.after = after;
  recorder.limit = limit;
  recorder.bound = bound;
  return object;
}

// Both live as long as the process: a wrapper is never taken away.
PyMethodDef recorder_methods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call)), METH_FASTCALL,
     "call(arguments, keyword arguments): calls the function and records it."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot describer_slots[] = {{Py_tp_new, slot(make_describer)}, {0, nullptr}};
PyType_Slot recorder_slots[] = {
    {Py_tp_new, slot(make_recorder)}, {Py_tp_methods, recorder_methods}, {0, nullptr}};
PyType_Spec describer_spec = {"_ttrace_events.Describer", sizeof(Describer), 0, Py_TPFLAGS_DEFAULT,
                              describer_slots};
PyType_Spec recorder_spec = {"_ttrace_events.Recorder", sizeof(Recorder), 0, Py_TPFLAGS_DEFAULT,
                             recorder_slots};

}  // namespace

bool add_recorder(PyObject* module) {
  PyObject* describer = PyType_FromSpec(&describer_spec);
  if (describer == nullptr) return false;
  describer_type = reinterpret_cast<PyTypeObject*>(describer);
  const Owned recorder(PyType_FromSpec(&recorder_spec));
  return recorder != nullptr && PyModule_AddObjectRef(module, "Describer", describer) == 0 &&
         PyModule_AddObjectRef(module, "Recorder", recorder.get()) == 0;
}

}  // namespace ttrace::events
