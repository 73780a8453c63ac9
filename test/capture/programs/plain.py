# SPDX-License-Identifier: Apache-2.0
"""A small training run that uses what real models use, and writes down the truth itself.

In-place activation, keyword inputs, a dictionary as output, a module that is called twice, tied
weights, a frozen parameter, gradient accumulation, clipping. With a file name as argument the
program's own hooks (truth.py) save every value under the key that a trace should give it.
"""
import sys

import torch
from torch import nn

from truth import Truth


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


def main():
    torch.manual_seed(0)
    model, loss_function = Model(), nn.CrossEntropyLoss()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=0.05)
    truth = Truth() if len(sys.argv) > 1 else None
    if truth:
        truth.watch(model)
    data = torch.Generator().manual_seed(1)
    for iteration in range(3):
        if truth:
            truth.begin(iteration)
            truth.parameters(model, "param", "value")
        for _ in range(2):
            tokens = torch.randint(11, (3, 5), generator=data)
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
            truth.end()
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
