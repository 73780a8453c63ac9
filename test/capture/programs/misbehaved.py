# SPDX-License-Identifier: Apache-2.0
"""Ways in which real programs end, fork and surprise. The first argument names some: A+B."""
import os
import sys

import torch
from torch import nn

CASES = sys.argv[1].split("+")


class Strange(dict):
    """A mapping that cannot be read."""

    def items(self):
        raise ValueError("not for you")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)

    def forward(self, x):
        y = self.b(self.a(x))
        if "raise-once" in CASES and x[0, 0] == 0:
            raise RuntimeError("the program's own error")
        return Strange(y=y) if "strange" in CASES else y


def step(model, optimizer, x):
    output = model(x)
    loss = (dict.get(output, "y") if "strange" in CASES else output).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


class Samples(torch.utils.data.Dataset):
    """Calls a module in the worker, as some data pipelines do."""

    def __init__(self):
        self.transform = nn.Linear(3, 3)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.transform(torch.full((3,), float(index))).detach()


def fork(model, optimizer):
    child = os.fork()
    if child == 0:
        for _ in range(2):
            step(model, optimizer, torch.ones(2, 3))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if "raise-once" in CASES:
        try:
            model(torch.zeros(2, 3))
        except RuntimeError as error:
            print("caught:", error)
    if "workers" in CASES:
        loader = torch.utils.data.DataLoader(Samples(), num_workers=2)
        for sample in loader:
            step(model, optimizer, sample)
    for number in range(12 if "strange" in CASES else 3):
        print(step(model, optimizer, torch.ones(2, 3)).hex())
        if "fork" in CASES and number == 0:
            fork(model, optimizer)
    sys.stdout.flush()
    if "exit" in CASES:
        sys.exit(5)
    if "os-exit" in CASES:
        os._exit(3)
    if "raise" in CASES:
        model(torch.ones(2, 4))


main()
