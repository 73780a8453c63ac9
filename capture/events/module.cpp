// SPDX-License-Identifier: Apache-2.0
// The module _ttrace_events, which ttrace_agent.events loads from beside libttrace_capture.so.
#include "capture/events/events.hpp"

namespace ttrace::events {

Names names{};

namespace {

bool intern_names() {
  const std::pair<PyObject**, const char*> all[] = {
      {&names.data_ptr, "data_ptr"},
      {&names.device, "device"},
      {&names.dict, "__dict__"},
      {&names.dictoffset, "__dictoffset__"},
      {&names.dtype, "dtype"},
      {&names.enter, "__enter__"},
      {&names.exit, "__exit__"},
      {&names.grad, "grad"},
      {&names.is_contiguous, "is_contiguous"},
      {&names.is_cpu, "is_cpu"},
      {&names.is_leaf, "is_leaf"},
      {&names.layout, "layout"},
      {&names.module, "__module__"},
      {&names.nbytes, "nbytes"},
      {&names.qualname, "__qualname__"},
      {&names.requires_grad, "requires_grad"},
      {&names.retains_grad, "retains_grad"},
      {&names.rows, "rows"},
      {&names.shape, "shape"},
      {&names.untyped_storage, "untyped_storage"},
      {&names.version, "_version"},
  };
  for (const auto& [place, text] : all) {
    *place = PyUnicode_InternFromString(text);
    if (*place == nullptr) return false;
  }
  return true;
}

PyMethodDef functions[] = {{"use_torch", use_torch, METH_VARARGS,
                            "use_torch(Tensor, Parameter, dtype, device, key_of_subclass, "
                            "modes_active, without_modes): before all else."},
                           {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_ttrace_events",
                          "What ttrace_agent.events does at every call.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyObject* make_module() {
  Owned module(PyModule_Create(&definition));
  const bool made = module != nullptr && intern_names() && add_rows(module.get()) &&
                    add_recorder(module.get()) && add_variables(module.get());
  return made ? module.release() : nullptr;
}

}  // namespace ttrace::events

PyMODINIT_FUNC PyInit__ttrace_events() { return ttrace::events::make_module(); }
