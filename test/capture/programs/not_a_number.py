# SPDX-License-Identifier: Apache-2.0
"""not_a_number.py STEP: the loss is NaN from STEP on, counted from 1."""
import sys

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    optimizer.zero_grad()
    data = torch.randn(3, 4)
    if step >= int(sys.argv[1]):
        data[0, 0] = float("nan")
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
