# SPDX-License-Identifier: Apache-2.0
"""A small training run that uses what real models use, and writes down the truth itself.

In-place activation, keyword inputs, a dictionary as output, a module that is called twice, tied
weights, a frozen parameter, gradient accumulation, clipping. With a file name as argument the
program's own hooks save every value under the key that a trace should give it.
"""
import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.ReLU(inplace=True)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, *, scale):
        return x + self.down(self.act(self.up(x))) * scale


class Model(nn.Module):
    def __init__(self, vocabulary=11, width=8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        self.offset = nn.Parameter(torch.full((width,), 0.25), requires_grad=False)

    def forward(self, tokens, mask=None):
        x = self.norm(self.embedding(tokens) + self.offset)
        for block in self.blocks:
            x = block(x, scale=mask)
        x = self.norm(x)
        return {"logits": self.head(x), "hidden": (x, tokens > 3)}


class Truth:
    """Values by key, taken by hooks of this program."""

    def __init__(self, model):
        self.values = {}
        self.microbatch, self.iteration, self.calls = 0, 0, {}
        self.names = {module: name or "@root" for name, module in model.named_modules()}
        for module in self.names:
            module.register_forward_hook(self.after, with_kwargs=True)

    def save(self, key, tensor):
        self.values[f"it{self.iteration}/{key}"] = tensor.detach().clone()

    def after(self, module, args, kwargs, output):
        if not self.training:
            return
        name = self.names[module]
        call = self.calls.get(name, 0)
        self.calls[name] = call + 1
        place = f"{name}#{call}" if call else name
        if isinstance(output, dict):
            found = {"logits": output["logits"], "hidden.0": output["hidden"][0],
                     "hidden.1": output["hidden"][1]}
        else:
            found = {"0": output}
        for slot, tensor in found.items():
            self.save(f"mb{self.microbatch}/forward/{place}/output.{slot}", tensor)
            if tensor.requires_grad:
                key = f"mb{self.microbatch}/backward/{place}/grad_output.{slot}"
                tensor.register_hook(lambda gradient, key=key: self.save(key, gradient))

    def begin(self, microbatch):
        self.microbatch, self.calls, self.training = microbatch, {}, True

    def parameters(self, model, phase, slot):
        for name, parameter in model.named_parameters():
            value = parameter if slot in ("value", "param") else parameter.grad
            if value is not None and (phase == "param" or parameter.requires_grad):
                self.save(f"{phase}/{name}/{slot}", value)


def main():
    torch.manual_seed(0)
    model, loss_function = Model(), nn.CrossEntropyLoss()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=0.05)
    truth = Truth(model) if len(sys.argv) > 1 else None
    data = torch.Generator().manual_seed(1)
    for iteration in range(3):
        if truth:
            truth.iteration = iteration
            truth.parameters(model, "param", "value")
        for microbatch in range(2):
            tokens = torch.randint(11, (3, 5), generator=data)
            if truth:
                truth.begin(microbatch)
            logits = model(tokens, mask=torch.rand(3, 5, 1, generator=data))["logits"]
            loss = loss_function(logits.flatten(0, 1), tokens.flatten())
            (loss / 2).backward()
        if truth:
            truth.parameters(model, "grad", "reduced")
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if truth:
            truth.parameters(model, "grad", "clipped")
            truth.save("grad/@root/norm", norm)
        optimizer.step()
        if truth:
            truth.parameters(model, "step", "param")
            for name, parameter in model.named_parameters():
                for slot in ("exp_avg", "exp_avg_sq"):
                    if parameter in optimizer.state:
                        truth.save(f"step/{name}/{slot}", optimizer.state[parameter][slot])
            truth.training = False
        optimizer.zero_grad()
        with torch.no_grad():  # evaluations, which are no micro-batches
            model(tokens, mask=torch.ones(1))
        model.eval()
        model(tokens, mask=torch.ones(1))
        model.train()
        print(f"loss {loss.item().hex()} norm {norm.item().hex()}")
    if truth:
        torch.save(truth.values, sys.argv[1])


main()
