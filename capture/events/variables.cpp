// SPDX-License-Identifier: Apache-2.0
// Parameters and optimizer states, and what was last seen of them (states.py says when to look).
#include <optional>

#include "capture/events/events.hpp"

namespace ttrace::events {

namespace {

constexpr std::int64_t kState = 3, kStateValues = 4;  // low bits of a row's code (stream.py)
constexpr int kHasData = 1, kHasGradient = 2, kGradientUnknown = 4;
constexpr int kUnseen = 8;  // never in a file
constexpr std::size_t kDescriptionsKept = 64;
constexpr std::int64_t kLowest = std::int64_t{1} << 32;  // of the addresses of 64-bit programs
constexpr std::uint64_t kLongHash = 1 << 20;             // bytes for which other threads may run

enum class Hash : int { no, if_new, surely };

using HashFunction = int (*)(const std::uint64_t* addresses, const std::uint64_t* sizes,
                             std::uint64_t count, std::int64_t* hashes);

struct Description {  // of what a variable is beside its values
  int flags;
  bool requires_grad;
  std::int64_t address;
  std::int64_t number;
};

struct Seen {
  std::int64_t version = -1, address = -1, gradient_version = -1, gradient_id = -1;
  std::int64_t data = 0, gradient = 0;  // hashes
  std::int64_t looked = 0;              // ns
  int flags = kUnseen;
  std::vector<Description> descriptions;
};

PyTypeObject* variable_type = nullptr;

struct Variable {
  PyObject ob_base;
  PyObject* reference;  // weak
  std::int64_t code;    // of its rows
  Seen* seen;
};

struct Looker {
  PyObject ob_base;
  PyTypeObject* tensor;
  PyTypeObject* parameter;
  HashFunction hash;
  PyObject* packed;    // packed(tensor): the same as plain bytes on the CPU, or None
  PyObject* describe;  // describe(tensor) -> number
};

bool integer(PyObject* of, PyObject* attribute, std::int64_t& value) {
  const Owned found(PyObject_GetAttr(of, attribute));
  if (found == nullptr) return false;
  value = PyLong_AsLongLong(found.get());
  return PyErr_Occurred() == nullptr;
}

bool truth(PyObject* found) { return Owned(found).get() == Py_True; }

bool address_of(PyObject* tensor, std::int64_t& address) {
  const Owned found(PyObject_CallMethodObjArgs(tensor, names.data_ptr, nullptr));
  if (found == nullptr) return false;
  address = static_cast<std::int64_t>(PyLong_AsUnsignedLongLong(found.get()));
  return PyErr_Occurred() == nullptr;
}

std::int64_t identity(const PyObject* object) { return reinterpret_cast<std::int64_t>(object); }

// Types whose memory can be asked for.
bool is_plain(const Looker& looker, PyObject* tensor) {
  return Py_TYPE(tensor) == looker.tensor || Py_TYPE(tensor) == looker.parameter;
}

// Programs free the storage of tensors that they go on using as names: resize_(0).
bool is_there(PyObject* tensor, std::int64_t address, std::int64_t size) {
  const Owned storage(PyObject_CallMethodObjArgs(tensor, names.untyped_storage, nullptr));
  if (storage == nullptr) return false;
  const Owned bytes(PyObject_CallMethodObjArgs(storage.get(), names.nbytes, nullptr));
  std::int64_t begin = 0;
  if (bytes == nullptr || !address_of(storage.get(), begin)) return false;
  const std::int64_t length = PyLong_AsLongLong(bytes.get());
  if (PyErr_Occurred() != nullptr) return false;
  return size == 0 || (begin != 0 && address >= begin && address + size <= begin + length);
}

// XXH3 of packed row-major elements. Neither a value nor an exception: it has no plain bytes.
// `there`: its memory is known to be.
std::optional<std::int64_t> hash_of(const Looker& looker, PyObject* tensor, bool there = false) {
  Owned kept;
  const bool plain = is_plain(looker, tensor) && truth(PyObject_GetAttr(tensor, names.is_cpu)) &&
                     truth(PyObject_CallMethodObjArgs(tensor, names.is_contiguous, nullptr));
  if (PyErr_Occurred() != nullptr) return std::nullopt;
  if (!plain) {
    kept.reset(PyObject_CallFunctionObjArgs(looker.packed, tensor, nullptr));
    if (kept == nullptr || kept.get() == Py_None) return std::nullopt;
    tensor = kept.get();
  }
  std::int64_t address = 0, size = 0, hash = 0;
  if (!address_of(tensor, address) || !integer(tensor, names.nbytes, size)) return std::nullopt;
  const bool placed = address >= kLowest || size == 0;  // else an offset into no memory
  if (!(there && plain && placed) && !is_there(tensor, address, size)) return std::nullopt;
  const std::uint64_t addresses[] = {static_cast<std::uint64_t>(address)};
  const std::uint64_t sizes[] = {static_cast<std::uint64_t>(size)};
  if (sizes[0] < kLongHash) {
    looker.hash(addresses, sizes, 1, &hash);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    looker.hash(addresses, sizes, 1, &hash);
    Py_END_ALLOW_THREADS;
  }
  return hash;
}

// What has the same memory and version as before is not hashed again, unless `how` says so: some
// writes, those of collectives, leave the version as it was.
bool look_at_data(const Looker& looker, Seen& seen, PyObject* tensor, Hash how) {
  std::int64_t version = 0, address = identity(tensor);
  if (!integer(tensor, names.version, version)) return false;
  if (is_plain(looker, tensor) && !address_of(tensor, address)) return false;
  if (version == seen.version && address == seen.address && how != Hash::surely) return true;
  const bool there = address == seen.address;  // resizing a storage moves it
  seen.version = version;
  seen.address = address;
  const std::optional<std::int64_t> hash = hash_of(looker, tensor, there);
  seen.data = hash.value_or(0);
  seen.flags = (seen.flags & ~(kHasData | kUnseen)) | (hash ? kHasData : 0);
  return PyErr_Occurred() == nullptr;
}

bool look_at_gradient(const Looker& looker, Seen& seen, PyObject* tensor, Hash how) {
  const Owned gradient(PyObject_GetAttr(tensor, names.grad));
  if (gradient == nullptr) return false;
  if (gradient.get() == Py_None) {
    seen.flags &= kHasData;
    seen.gradient = 0;
    seen.gradient_id = -1;
    return true;
  }
  std::int64_t version = 0;
  if (!integer(gradient.get(), names.version, version)) return false;
  const std::int64_t id = identity(gradient.get());
  if (version == seen.gradient_version && id == seen.gradient_id && how != Hash::surely) {
    return true;
  }
  seen.gradient_version = version;
  seen.gradient_id = id;
  const std::optional<std::int64_t> hash = hash_of(looker, gradient.get());
  seen.gradient = hash.value_or(0);
  seen.flags =
      (seen.flags & ~(kGradientUnknown | kUnseen)) | kHasGradient | (hash ? 0 : kGradientUnknown);
  return PyErr_Occurred() == nullptr;
}

std::optional<std::int64_t> description_of(const Looker& looker, Seen& seen, PyObject* tensor) {
  const Owned found(PyObject_GetAttr(tensor, names.requires_grad));
  if (found == nullptr) return std::nullopt;
  const bool requires_grad = found.get() == Py_True;
  for (const Description& known : seen.descriptions) {
    if (known.flags == seen.flags && known.requires_grad == requires_grad &&
        known.address == seen.address) {
      return known.number;
    }
  }
  const Owned made(PyObject_CallFunctionObjArgs(looker.describe, tensor, nullptr));
  if (made == nullptr) return std::nullopt;
  const std::int64_t number = PyLong_AsLongLong(made.get());
  if (PyErr_Occurred() != nullptr) return std::nullopt;
  if (seen.descriptions.size() >= kDescriptionsKept) seen.descriptions.clear();
  seen.descriptions.push_back({seen.flags, requires_grad, seen.address, number});
  return number;
}

Seen& seen_of(PyObject* variables, Py_ssize_t i) {
  return *reinterpret_cast<Variable*>(PyList_GetItem(variables, i))->seen;
}

// Lists of Variables and of their tensors.
bool are_pairs(PyObject* variables, PyObject* tensors) {
  bool right = PyList_Check(variables) && PyList_Check(tensors) &&
               PyList_Size(variables) == PyList_Size(tensors);
  for (Py_ssize_t i = 0; right && i < PyList_Size(variables); ++i) {
    right = Py_TYPE(PyList_GetItem(variables, i)) == variable_type;
  }
  if (!right) PyErr_SetString(PyExc_TypeError, "a list of Variables and of tensors are expected");
  return right;
}

struct State {
  std::int64_t data, gradient;
  int flags;
  bool operator==(const State&) const = default;
};
State state_of(const Seen& seen) { return {seen.data, seen.gradient, seen.flags}; }

// look(rows, variables, tensors, place, data, gradient, unseen, since, always)
// Rows of what has changed, after looking at data and gradients as Hash says; `unseen`: at the data
// of new variables in any case; `since`: a variable that was looked at after this time and has the
// same version is left out (-1: none is); `always`: rows of the others whether or not they changed.
PyObject* look(PyObject* self, PyObject* arguments) {
  const Looker& looker = *reinterpret_cast<Looker*>(self);
  PyObject *rows, *variables, *tensors;
  long long place, since;
  int data, gradient, unseen, always;
  if (PyArg_ParseTuple(arguments, "O!OOLiipLp", rows_type, &rows, &variables, &tensors, &place,
                       &data, &gradient, &unseen, &since, &always) == 0 ||
      !are_pairs(variables, tensors)) {
    return nullptr;
  }
  const std::int64_t time = now();
  std::vector<std::pair<Py_ssize_t, State>> left;
  for (Py_ssize_t i = 0; i < PyList_Size(variables); ++i) {
    Seen& seen = seen_of(variables, i);
    PyObject* tensor = PyList_GetItem(tensors, i);
    if (since >= 0 && seen.looked > since) {
      std::int64_t version = 0;
      if (!integer(tensor, names.version, version)) return nullptr;
      if (version == seen.version) continue;
    }
    left.emplace_back(i, state_of(seen));
    auto how = static_cast<Hash>(data);
    if (how == Hash::no && unseen != 0 && (seen.flags & kUnseen) != 0) how = Hash::if_new;
    if (how != Hash::no && !look_at_data(looker, seen, tensor, how)) return nullptr;
    how = static_cast<Hash>(gradient);
    if (how != Hash::no && !look_at_gradient(looker, seen, tensor, how)) return nullptr;
    seen.looked = time;
  }
  for (const auto& [i, before] : left) {
    Seen& seen = seen_of(variables, i);
    if (always == 0 && before == state_of(seen)) continue;
    const auto description = description_of(looker, seen, PyList_GetItem(tensors, i));
    if (!description) return nullptr;
    auto& to = *reinterpret_cast<Rows*>(rows);
    to.append(reinterpret_cast<Variable*>(PyList_GetItem(variables, i))->code, time, *description,
              place);
    to.append(kStateValues, seen.data, seen.gradient, seen.flags & ~kUnseen);
  }
  Py_RETURN_NONE;
}

// hash(tensor): XXH3-64 of its elements as a signed integer; None: it has no plain bytes.
PyObject* hash(PyObject* self, PyObject* tensor) {
  const std::optional<std::int64_t> found = hash_of(*reinterpret_cast<Looker*>(self), tensor);
  if (found) return PyLong_FromLongLong(*found);
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_RETURN_NONE;
}

// changed(variables, tensors): whether any has another version or gradient than when looked at.
PyObject* changed(PyObject*, PyObject* arguments) {
  PyObject *variables, *tensors;
  if (PyArg_ParseTuple(arguments, "OO", &variables, &tensors) == 0 ||
      !are_pairs(variables, tensors)) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyList_Size(variables); ++i) {
    const Seen& seen = seen_of(variables, i);
    PyObject* tensor = PyList_GetItem(tensors, i);
    std::int64_t version = 0;
    if (!integer(tensor, names.version, version)) return nullptr;
    if (version != seen.version) Py_RETURN_TRUE;
    const Owned gradient(PyObject_GetAttr(tensor, names.grad));
    if (gradient == nullptr) return nullptr;
    const bool none = gradient.get() == Py_None;
    if (seen.gradient_id != (none ? -1 : identity(gradient.get()))) Py_RETURN_TRUE;
    if (!none && !integer(gradient.get(), names.version, version)) return nullptr;
    if (!none && version != seen.gradient_version) Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

// are(variables, tensors): whether these are still the variables of these tensors.
PyObject* are(PyObject*, PyObject* arguments) {
  PyObject *variables, *tensors;
  if (PyArg_ParseTuple(arguments, "OO", &variables, &tensors) == 0) return nullptr;
  if (PyList_Size(variables) != PyList_Size(tensors)) Py_RETURN_FALSE;
  if (!are_pairs(variables, tensors)) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_Size(variables); ++i) {
    const auto* variable = reinterpret_cast<Variable*>(PyList_GetItem(variables, i));
    const Owned referent(PyObject_CallFunctionObjArgs(variable->reference, nullptr));
    if (referent == nullptr) return nullptr;
    if (referent.get() != PyList_GetItem(tensors, i)) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

// ---- the types ----

PyObject* make_variable(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* reference;
  long long name;
  if (PyArg_ParseTuple(arguments, "OL", &reference, &name) == 0) return nullptr;
  PyObject* object = PyType_GenericAlloc(type, 0);
  if (object == nullptr) return nullptr;
  auto& variable = *reinterpret_cast<Variable*>(object);
  variable.reference = borrow(reference);
  variable.code = static_cast<std::int64_t>(static_cast<std::uint64_t>(name) << 3) | kState;
  variable.seen = new Seen;
  return object;
}

void destroy_variable(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  const auto& variable = *reinterpret_cast<Variable*>(self);
  Py_XDECREF(variable.reference);
  delete variable.seen;
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* referent(PyObject* self, PyObject*) {
  return PyObject_CallFunctionObjArgs(reinterpret_cast<Variable*>(self)->reference, nullptr);
}

// Looker(Tensor, Parameter, address of ttrace_hash, packed, describe); there is one a process.
PyObject* make_looker(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *tensor, *parameter, *packed, *describe;
  unsigned long long hash;
  if (PyArg_ParseTuple(arguments, "OOKOO", &tensor, &parameter, &hash, &packed, &describe) == 0) {
    return nullptr;
  }
  PyObject* object = PyType_GenericAlloc(type, 0);
  if (object == nullptr) return nullptr;
  auto& looker = *reinterpret_cast<Looker*>(object);
  looker.tensor = reinterpret_cast<PyTypeObject*>(borrow(tensor));
  looker.parameter = reinterpret_cast<PyTypeObject*>(borrow(parameter));
  looker.hash = reinterpret_cast<HashFunction>(hash);
  looker.packed = borrow(packed);
  looker.describe = borrow(describe);
  return object;
}

PyMethodDef variable_methods[] = {
    {"ref", referent, METH_NOARGS, "Its tensor; None when that is gone."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot variable_slots[] = {{Py_tp_new, slot(make_variable)},
                                {Py_tp_dealloc, slot(destroy_variable)},
                                {Py_tp_methods, variable_methods},
                                {0, nullptr}};
PyType_Spec variable_spec = {"_ttrace_events.Variable", sizeof(Variable), 0, Py_TPFLAGS_DEFAULT,
                             variable_slots};

PyMethodDef looker_methods[] = {
    {"look", look, METH_VARARGS,
     "look(rows, variables, tensors, place, data, gradient, unseen, since, always)"},
    {"hash", hash, METH_O,
     "hash(tensor): XXH3-64 of its elements as a signed integer; None: it has no plain bytes."},
    {"changed", changed, METH_VARARGS,
     "changed(variables, tensors): whether any has another version or gradient than before."},
    {"are", are, METH_VARARGS,
     "are(variables, tensors): whether these are still the variables of these tensors."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot looker_slots[] = {
    {Py_tp_new, slot(make_looker)}, {Py_tp_methods, looker_methods}, {0, nullptr}};
PyType_Spec looker_spec = {"_ttrace_events.Looker", sizeof(Looker), 0, Py_TPFLAGS_DEFAULT,
                           looker_slots};

}  // namespace

bool add_variables(PyObject* module) {
  PyObject* variable = PyType_FromSpec(&variable_spec);
  if (variable == nullptr) return false;
  variable_type = reinterpret_cast<PyTypeObject*>(variable);
  const Owned looker(PyType_FromSpec(&looker_spec));
  return looker != nullptr && PyModule_AddObjectRef(module, "Variable", variable) == 0 &&
         PyModule_AddObjectRef(module, "Looker", looker.get()) == 0;
}

}  // namespace ttrace::events
