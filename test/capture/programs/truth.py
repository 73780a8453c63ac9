# SPDX-License-Identifier: Apache-2.0
"""What a program computed, saved by its own hooks beside those of the agent.

Nothing of the agent is used: modules have the names of named_modules(), calls are counted here, and
every value is cloned under the key that a trace should give it, after "it<iteration>/".
"""
import torch


def tensors(value, path=()):
    """(slot, tensor) of a tensor, or of all in tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield ".".join(path) or "0", value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors(inner, (*path, str(key)))
    elif isinstance(value, (tuple, list)):
        for number, inner in enumerate(value):
            yield from tensors(inner, (*path, str(number)))


class Truth:
    def __init__(self):
        self.values = {}
        self._names, self._calls = {}, {}
        self._iteration, self._microbatch, self._training = 0, -1, False

    def watch(self, model):
        """`model` is what the trace calls @root."""
        self._names = {module: name or "@root" for name, module in model.named_modules()}
        model.register_forward_pre_hook(self._begin_microbatch)
        for module in self._names:
            module.register_forward_hook(self._after)

    def begin(self, iteration):
        self._iteration, self._microbatch, self._training = iteration, -1, True

    def end(self):
        self._training = False

    def save(self, key, tensor):
        self.values[f"it{self._iteration}/{key}"] = tensor.detach().clone()

    def parameters(self, model, phase, slot):
        for name, parameter in model.named_parameters():
            value = parameter if slot in ("value", "param") else parameter.grad
            if value is not None and (phase == "param" or parameter.requires_grad):
                self.save(f"{phase}/{name}/{slot}", value)

    def _begin_microbatch(self, module, args):
        self._microbatch += self._training
        self._calls = {}

    def _after(self, module, args, output):
        if not self._training:
            return
        name = self._names[module]
        call = self._calls.get(name, 0)
        self._calls[name] = call + 1
        place = f"{name}#{call}" if call else name
        for slot, tensor in tensors(output):
            self.save(f"mb{self._microbatch}/forward/{place}/output.{slot}", tensor)
            if tensor.requires_grad and not isinstance(tensor, torch.nn.Parameter):
                key = f"mb{self._microbatch}/backward/{place}/grad_output.{slot}"
                tensor.register_hook(lambda gradient, key=key: self.save(key, gradient))
