# SPDX-License-Identifier: Apache-2.0
"""Less usual programs; the first argument names one, the second a file for what it computed."""
import sys

import torch
from torch import nn

CASE, FILE = sys.argv[1:3]
saved = {}


def keep(module, args, output):
    saved[type(module).__name__] = output


class Kind(nn.Module):
    """Returns what `make` makes of its input."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


def kind(name, make):
    module = type(name, (Kind,), {})(make)
    module.register_forward_hook(keep)
    return module


class Zoo(nn.Module):
    """One module for each kind of tensor, in a list that PyTorch does not know of."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3))
        self.known = nn.ModuleDict({
            "transposed": kind("Transposed", lambda x: x.t()),
            "expanded": kind("Expanded", lambda x: x[:, :1].expand(2, 5)),
            "scalar": kind("Scalar", lambda x: x.sum()),
            "empty": kind("Empty", lambda x: x[:0]),
            "boolean": kind("Boolean", lambda x: x > 2),
            "complex": kind("Complex", lambda x: torch.complex(x, -x)),
            "float16": kind("Float16", lambda x: x.half()),
            "bfloat": kind("BFloat", lambda x: x.bfloat16() / 3),
            "float8": kind("Float8", lambda x: x.detach().to(torch.float8_e4m3fn)),
            "unsigned": kind("Unsigned", lambda x: (x.detach() + 65000).to(torch.uint16)),
            "sparse": kind("Sparse", lambda x: x.detach().to_sparse()),
            "text": kind("Text", lambda x: "no tensor"),
        })
        self.hidden = [kind("Unregistered", lambda x: x * 2)]

    def forward(self, x):
        x = x * self.weight
        outputs = [module(x) for module in self.known.values()]
        return (self.hidden[0](x) + outputs[2]).sum()


def zoo():
    model = Zoo()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).backward()
    optimizer.step()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def spectrum():
    """A complex parameter, as layers that multiply spectra have."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])))
    model.forward = lambda x: (x * model.weight).abs().sum()
    saved["initial"] = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2)).backward()
    saved["gradient"] = model.weight.grad.clone()
    optimizer.step()
    saved["stepped"] = model.weight.detach().clone()


def autocast():
    """Losses overflow in iteration 1, whose step the scaler leaves out."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for iteration in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.ones(2, 4)).float().square().mean()
        factor = float("inf") if iteration == 1 else 1.0
        scaler.scale(loss * factor).backward()
        saved[f"scaled{iteration}"] = model.a.weight.grad.clone()
        scaler.step(optimizer)
        saved[f"stepped{iteration}"] = model.a.weight.detach().clone()
        scaler.update()
        optimizer.zero_grad()


def adversaries():
    """Two models and two optimizers; the second steps without a forward pass in between."""
    one, two = Net(), nn.Sequential(nn.Linear(4, 1))
    first = torch.optim.SGD(one.parameters(), lr=0.1)
    second = torch.optim.SGD(two.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        two(one(torch.ones(2, 4))).sum().backward()
        nn.utils.clip_grad_norm_(one.parameters(), 1.0)
        first.step()
        nn.utils.clip_grad_value_(two.parameters(), 0.5)
        second.step()
        first.zero_grad()
        second.zero_grad()


def compiled():
    model = Net()
    model.b = torch.compile(model.b, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def marked():
    """No optimizer at all; the program says itself where an iteration ends, and what is shown."""
    import ttrace_agent
    model = Net()
    for _ in range(2):
        output = model(torch.ones(2, 4))
        ttrace_agent.record("my_loss", {"value": output.sum()})
        output.sum().backward()
        with ttrace_agent.paused():
            with ttrace_agent.paused():
                pass
            model(torch.ones(2, 4))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        ttrace_agent.mark_iteration()


torch.manual_seed(0)
{"zoo": zoo, "autocast": autocast, "adversaries": adversaries, "compiled": compiled,
 "marked": marked, "spectrum": spectrum}[CASE]()
torch.save(saved, FILE)
