// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>

#include "capture/events/events.hpp"

namespace ttrace::events {

namespace {

constexpr int kDepth = 4;  // of containers in containers
constexpr std::size_t kTypesKept = 4096;

enum class Kind : std::uint8_t {
  none,
  text,
  number,  // bool, int, float: equal ones of two types are two values
  tensor,
  tensor_subclass,
  sequence,
  mapping,
  function,
  object,  // with attributes of its own
  itself,  // the value is its key
  opaque,  // its type alone counts
};

struct Torch {
  PyTypeObject* tensor = nullptr;
  PyTypeObject* parameter = nullptr;
  PyTypeObject* dtype = nullptr;
  PyTypeObject* device = nullptr;
  PyObject* key_of_subclass = nullptr;
  PyObject* modes_active = nullptr;
  PyObject* without_modes = nullptr;
} torch;

std::unordered_map<PyTypeObject*, Kind>& kinds() {
  static std::unordered_map<PyTypeObject*, Kind> known;
  return known;
}

bool is_function(PyTypeObject* type) {
  static const PyTypeObject* kinds_of_functions[3]{};
  if (kinds_of_functions[0] == nullptr) {
    const Owned types(PyImport_ImportModule("types"));
    int i = 0;
    for (const char* kind : {"FunctionType", "BuiltinFunctionType", "MethodType"}) {
      kinds_of_functions[i++] =
          reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(types.get(), kind));
    }
  }
  for (const PyTypeObject* kind : kinds_of_functions) {
    if (type == kind) return true;
  }
  return PyType_IsSubtype(type, &PyType_Type) != 0;
}

Kind find_kind(PyTypeObject* type) {
  if (type == Py_TYPE(Py_None)) return Kind::none;
  if (type == &PyUnicode_Type) return Kind::text;
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type) return Kind::number;
  if (type == torch.tensor || type == torch.parameter) return Kind::tensor;
  if (PyType_IsSubtype(type, torch.tensor)) return Kind::tensor_subclass;
  if (type == torch.dtype || type == torch.device) return Kind::itself;
  if (PyType_IsSubtype(type, &PyList_Type) || PyType_IsSubtype(type, &PyTuple_Type)) {
    return Kind::sequence;
  }
  if (PyType_IsSubtype(type, &PyDict_Type)) return Kind::mapping;
  if (is_function(type)) return Kind::function;
  const Owned offset(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names.dictoffset));
  if (offset == nullptr) PyErr_Clear();
  return offset != nullptr && PyObject_IsTrue(offset.get()) == 1 ? Kind::object : Kind::opaque;
}

Kind kind_of(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  const auto known = kinds().find(type);
  if (known != kinds().end()) return known->second;
  const Kind kind = find_kind(type);
  if (kinds().size() < kTypesKept) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));  // so that its address stays its own
    kinds().emplace(type, kind);
  }
  return kind;
}

bool is_plain(Kind kind) {
  return kind == Kind::none || kind == Kind::text || kind == Kind::number;
}

bool is_container(Kind kind) { return kind == Kind::sequence || kind == Kind::mapping; }

PyObject* type_of(PyObject* value) { return reinterpret_cast<PyObject*>(Py_TYPE(value)); }

// Parts of a key, put together at the end.
class Parts {
 public:
  // Takes the reference; null stands for an error that is set.
  bool take(PyObject* part) {
    if (part == nullptr) return false;
    parts_.emplace_back(part);
    return true;
  }
  bool add(PyObject* part) { return take(borrow(part)); }
  // A plain value; its type tells 1, 1.0 and True apart.
  bool plain(PyObject* value) { return add(type_of(value)) && add(value); }

  PyObject* tuple() {
    PyObject* key = PyTuple_New(static_cast<Py_ssize_t>(parts_.size()));
    if (key == nullptr) return nullptr;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      PyTuple_SetItem(key, static_cast<Py_ssize_t>(i), parts_[i].release());
    }
    return key;
  }

 private:
  std::vector<Owned> parts_;
};

PyObject* key_of_tensor(PyObject* tensor) {
  const Owned leaf(PyObject_GetAttr(tensor, names.is_leaf));
  const Owned dtype(PyObject_GetAttr(tensor, names.dtype));
  const Owned shape(PyObject_GetAttr(tensor, names.shape));
  const Owned device(PyObject_GetAttr(tensor, names.device));
  const Owned layout(PyObject_GetAttr(tensor, names.layout));
  if (!leaf || !dtype || !shape || !device || !layout) return nullptr;
  if (leaf.get() != Py_True) {
    const Owned retains(PyObject_GetAttr(tensor, names.retains_grad));
    if (!retains) return nullptr;
    return PyTuple_Pack(6, type_of(tensor), dtype.get(), shape.get(), device.get(), layout.get(),
                        retains.get());
  }
  const Owned requires_grad(PyObject_GetAttr(tensor, names.requires_grad));
  const Owned gradient(PyObject_GetAttr(tensor, names.grad));
  if (!requires_grad || !gradient) return nullptr;
  return PyTuple_Pack(7, type_of(tensor), dtype.get(), shape.get(), device.get(), layout.get(),
                      requires_grad.get(), gradient.get() == Py_None ? Py_False : Py_True);
}

// A list or tuple; borrowed.
PyObject* member(PyObject* sequence, Py_ssize_t i) {
  return PyList_Check(sequence) ? PyList_GetItem(sequence, i) : PyTuple_GetItem(sequence, i);
}

Py_ssize_t size_of(PyObject* sequence) {
  return PyList_Check(sequence) ? PyList_Size(sequence) : PyTuple_Size(sequence);
}

bool fits(PyObject* value, int depth, Py_ssize_t& left);

bool member_fits(PyObject* item, int depth, Py_ssize_t& left) {
  const Kind kind = kind_of(item);
  return is_plain(kind) || (is_container(kind) && fits(item, depth + 1, left));
}

// Whether a container is small and JSON can hold it; `left`: members that it may have in all.
bool fits(PyObject* value, int depth, Py_ssize_t& left) {
  if (depth == kDepth) return false;
  const bool mapping = kind_of(value) == Kind::mapping;
  const Py_ssize_t count = mapping ? PyDict_Size(value) : size_of(value);
  left -= count;
  if (left < 0) return false;
  if (!mapping) {
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!member_fits(member(value, i), depth, left)) return false;
    }
    return true;
  }
  PyObject *key, *item;
  for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item) != 0;) {
    if (!is_plain(kind_of(key)) || !member_fits(item, depth, left)) return false;
  }
  return true;
}

bool fits(PyObject* value) {
  Py_ssize_t left = kLongest;
  return fits(value, 0, left);
}

PyObject* key_of_sequence(PyObject* value) {
  Parts parts;
  if (!parts.add(type_of(value))) return nullptr;
  if (!fits(value)) return parts.add(Py_True) ? parts.tuple() : nullptr;
  const Py_ssize_t count = size_of(value);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = member(value, i);
    if (!(is_plain(kind_of(item)) ? parts.plain(item) : parts.take(key_of(item)))) return nullptr;
  }
  return parts.tuple();
}

PyObject* key_of_mapping(PyObject* value) {
  Parts parts;
  if (!parts.add(type_of(value))) return nullptr;
  if (PyDict_Size(value) > kLongest) return parts.add(Py_True) ? parts.tuple() : nullptr;
  const bool whole = fits(value);
  if (!parts.add(whole ? Py_True : Py_False)) return nullptr;
  PyObject *key, *item;
  for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item) != 0;) {
    const bool plain = is_plain(kind_of(item));
    if (!is_plain(kind_of(key)) || !(plain || whole)) continue;
    if (!parts.plain(key)) return nullptr;
    if (!(plain ? parts.plain(item) : parts.take(key_of(item)))) return nullptr;
  }
  return parts.tuple();
}

PyObject* key_of_function(PyObject* value) {
  Parts parts;
  if (!parts.add(type_of(value))) return nullptr;
  for (PyObject* attribute : {names.module, names.qualname}) {
    PyObject* found = PyObject_GetAttr(value, attribute);
    if (found == nullptr) PyErr_Clear();
    if (!(found != nullptr ? parts.take(found) : parts.add(Py_None))) return nullptr;
  }
  return parts.tuple();
}

bool is_public(PyObject* attribute) {
  return PyUnicode_Check(attribute) && PyUnicode_GetLength(attribute) > 0 &&
         PyUnicode_ReadChar(attribute, 0) != '_';
}

// Plain public attributes.
PyObject* key_of_object(PyObject* value) {
  const Owned members(PyObject_GetAttr(value, names.dict));
  if (members == nullptr) return nullptr;
  Parts parts;
  if (!parts.add(type_of(value))) return nullptr;
  if (!PyDict_Check(members.get())) return parts.tuple();
  PyObject *attribute, *item;
  for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &attribute, &item) != 0;) {
    const bool counts = is_plain(kind_of(item)) || Py_TYPE(item) == torch.dtype;
    if (!counts || !is_public(attribute)) continue;
    if (!parts.add(attribute) || !parts.plain(item)) return nullptr;
  }
  return parts.tuple();
}

PyObject* key_of_number(PyObject* value) { return PyTuple_Pack(2, type_of(value), value); }

}  // namespace

PyObject* key_of(PyObject* value) {
  switch (kind_of(value)) {
    case Kind::text:
      if (PyUnicode_GetLength(value) > kLongestText)
        return PyUnicode_Substring(value, 0, kLongestText);
      return borrow(value);
    case Kind::none:
    case Kind::itself:
      return borrow(value);
    case Kind::number:
      return key_of_number(value);
    case Kind::tensor:
      return key_of_tensor(value);
    case Kind::tensor_subclass:
      return PyObject_CallFunctionObjArgs(torch.key_of_subclass, value, nullptr);
    case Kind::sequence:
      return key_of_sequence(value);
    case Kind::mapping:
      return key_of_mapping(value);
    case Kind::function:
      return key_of_function(value);
    case Kind::object:
      return key_of_object(value);
    case Kind::opaque:
      break;
  }
  return borrow(type_of(value));
}

PyObject* key_of_result(PyObject* value) {
  if (Py_TYPE(value) != &PyTuple_Type || PyTuple_Size(value) > kLongest) return key_of(value);
  Parts parts;
  const Py_ssize_t count = PyTuple_Size(value);
  if (!parts.take(PyLong_FromSsize_t(count))) return nullptr;  // no other key begins with a number
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!parts.take(key_of(PyTuple_GetItem(value, i)))) return nullptr;
  }
  return parts.tuple();
}

PyObject* use_torch(PyObject*, PyObject* arguments) {
  PyObject *tensor, *parameter, *dtype, *device, *subclass, *active, *without;
  if (PyArg_ParseTuple(arguments, "OOOOOOO", &tensor, &parameter, &dtype, &device, &subclass,
                       &active, &without) == 0) {
    return nullptr;
  }
  torch = {reinterpret_cast<PyTypeObject*>(borrow(tensor)),
           reinterpret_cast<PyTypeObject*>(borrow(parameter)),
           reinterpret_cast<PyTypeObject*>(borrow(dtype)),
           reinterpret_cast<PyTypeObject*>(borrow(device)),
           borrow(subclass),
           borrow(active),
           borrow(without)};
  Py_RETURN_NONE;
}

WithoutModes::WithoutModes() {
  const Owned active(PyObject_CallFunctionObjArgs(torch.modes_active, nullptr));
  if (active.get() == Py_True) {
    context_.reset(PyObject_CallFunctionObjArgs(torch.without_modes, nullptr));
    const Owned entered(context_ ? PyObject_CallMethodObjArgs(context_.get(), names.enter, nullptr)
                                 : nullptr);
    if (!entered) context_.reset();
  }
  PyErr_Clear();
}

WithoutModes::~WithoutModes() {
  if (!context_) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const Owned left(
      PyObject_CallMethodObjArgs(context_.get(), names.exit, Py_None, Py_None, Py_None, nullptr));
  PyErr_Restore(type, value, traceback);
}

}  // namespace ttrace::events
