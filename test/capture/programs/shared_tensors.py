# SPDX-License-Identifier: Apache-2.0
"""Tensors that several consumers share inside and outside of modules, and a second derivative."""
import torch
from torch import nn


class Pair(nn.Module):
    """Returns a value and what it has made of it: its gradient arrives from both."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        y = self.inner(x)
        return y, torch.tanh(y) * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 8, 2, 2)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)
        self.cell = nn.LSTMCell(8, 8)
        self.pair = Pair()
        self.head = nn.Linear(8, 1)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)  # a view with two consumers
        x = x + self.mix(self.norm(x))
        h = c = x.new_zeros(x.shape[0], 8)
        for token in x.unbind(1):
            h, c = self.cell(token, (h, c))
        one, other = self.pair(h)
        return self.head(one + other + c)


torch.manual_seed(5)
torch.set_num_threads(1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for iteration in range(2):
    images = torch.randn(4, 1, 4, 4, requires_grad=True)
    score = model(images)
    slope, = torch.autograd.grad(score.sum(), images, create_graph=True)
    loss = score.square().mean() + 0.1 * slope.square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"iteration {iteration} loss {loss.item().hex()}", flush=True)
