# SPDX-License-Identifier: Apache-2.0
"""A model that recomputes activations, under schedules in which micro-batches overlap.

Arguments: how (none, reentrant, non-reentrant), the schedule (accumulate: forward and backward one
after another; gpipe: all forward passes first; 1f1b: one forward pass ahead) and a file for the
gradients that the program's own hooks see.
"""
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

HOW, SCHEDULE, TRUTH = sys.argv[1:4]


class Layer(nn.Module):
    def __init__(self, width, act):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.act = act  # the same module in all layers
        self.down = nn.Linear(width, width)

    def forward(self, x, scale=1.0):
        return x + self.down(self.act(self.up(x))) * scale


class Model(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        act = nn.Tanh()
        self.first = nn.Linear(width, width)
        self.layers = nn.ModuleList([Layer(width, act) for _ in range(3)])
        self.pair = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.shared = Layer(width, nn.GELU())

    def both(self, x):
        return self.pair[1](torch.sin(self.pair[0](x)))

    def run(self, function, *args, **kwargs):
        if HOW == "none":
            return function(*args, **kwargs)
        if HOW == "reentrant":
            return checkpoint(lambda *given: function(*given, **kwargs), *args, use_reentrant=True)
        return checkpoint(function, *args, use_reentrant=False, **kwargs)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = self.run(layer, x, scale=0.5)
        x = self.run(self.both, x)
        for _ in range(2):  # one module, two checkpoints
            x = self.run(self.shared, x)
        return x


def batches(count):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(4, 6, generator=generator) for _ in range(count)]


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients, waiting = [], []
    ahead = {"accumulate": 0, "1f1b": 1, "gpipe": 3}[SCHEDULE]
    for batch in batches(3) + [None] * ahead:
        if batch is not None:
            waiting.append(model(batch))
        if len(waiting) > ahead or batch is None and waiting:
            waiting.pop(0).square().mean().backward()
    for name, parameter in model.named_parameters():
        gradients.append((name, parameter.grad.clone()))
    optimizer.step()
    torch.save(gradients, TRUTH)
    print(sum(gradient.sum() for _, gradient in gradients).item().hex())


main()
