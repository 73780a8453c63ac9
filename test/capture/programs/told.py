# SPDX-License-Identifier: Apache-2.0
"""Two optimizers in an iteration, groups with settings of their own, and a layer that joins late."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleDict({name: nn.Linear(4, 4, bias=False) for name in ("a", "b", "late", "c")})
adam = torch.optim.AdamW([{"params": [model["a"].weight, model["late"].weight]},
                          {"params": [model["b"].weight], "lr": torch.tensor(0.25),
                           "betas": (0.5, 0.75)}], lr=0.125, weight_decay=0.0)
sgd = torch.optim.SGD(model["c"].parameters(), lr=0.5, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: 1 / (1 + step))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = model

    def forward(self, x, late):
        x = self.layers["b"](self.layers["a"](x))
        return self.layers["c"](self.layers["late"](x) if late else x)


net = Net()
for iteration in range(2):
    adam.zero_grad()
    sgd.zero_grad()
    net(torch.ones(2, 4), iteration > 0).sum().backward()
    adam.step()
    sgd.step()
    schedule.step()
