# SPDX-License-Identifier: Apache-2.0
"""A model whose modules and glue do all that makes it hard to put other values in their places.

usage: replayed.py [--dtype NAME] [--bug] [--iters N] [--start N]
`--bug`: one module in the middle is wrong by a factor. Prints the loss of each iteration.
"""
import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, WORDS, ROWS = 16, 2, 11, 6


class SkipBias(nn.Linear):
    """Hands its bias on beside the output, as Megatron's linear layers do."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight), self.bias


class Twice(nn.Module):
    """A norm that uses its input twice: with a skip around it three gradients meet."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Core(nn.Module):
    """Attention: queries, keys and values come by keyword and are views."""

    def forward(self, *, query, key, value):
        scores = torch.matmul(query, key.transpose(-1, -2)) / 3
        return torch.matmul(torch.softmax(scores, dim=-1), value)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.same = nn.Identity()
        self.core = Core()
        self.out = SkipBias(WIDTH, WIDTH)

    def forward(self, x):
        mixed = self.qkv(x).view(ROWS, HEADS, 3 * WIDTH // HEADS).transpose(0, 1)
        query, key, value = torch.split(mixed, WIDTH // HEADS, dim=-1)
        heads = self.core(query=self.same(query), key=key, value=value)
        return self.out(heads.transpose(0, 1).reshape(ROWS, WIDTH))


class Turned(nn.Module):
    """Its output is not contiguous."""

    def forward(self, x):
        return (x * 1.25).reshape(WIDTH, ROWS).t()


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH, bias=False)
        self.factor = 1.0

    def forward(self, x):
        return self.inner(x) * self.factor


class Outer(nn.Module):
    """Returns the very object that the module inside returned."""

    def __init__(self, inner):
        super().__init__()
        self.inside = inner

    def forward(self, x):
        return self.inside(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Awkward(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.norm = Twice()
        self.attention = Attention()
        self.turned = Turned()
        self.middle = Outer(Middle())
        self.reentrant, self.other = Block(), Block()
        self.squash = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + 0.5
        out, bias = self.attention(self.norm(x))
        x = x + (out + bias)
        x = x + self.turned(x)
        x = x + self.middle(torch.exp(x / 8))  # exp needs its result in the backward pass
        x = checkpoint(self.reentrant, x, use_reentrant=True)
        x = checkpoint(self.other, x, use_reentrant=False)
        return {"logits": self.head(self.squash(x)), "rows": tokens.shape[0]}


def loss_of(logits, tokens):
    """Works on the logits in place, as a frugal cross entropy does."""
    picked = logits[torch.arange(ROWS), tokens.roll(-1)]
    logits.sub_(logits.detach().max())
    return (torch.logsumexp(logits, -1) - picked + logits.detach().max()).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--bug", action="store_true")
    parser.add_argument("--iters", type=int, default=2)
    parser.add_argument("--sgd", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = Awkward().to(getattr(torch, args.dtype))
    if args.bug:
        model.middle.inside.factor = 1.5
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for iteration in range(args.iters):
        for number in range(2):
            tokens = torch.arange(ROWS) * (2 + iteration + 3 * number) % WORDS
            loss = loss_of(model(tokens)["logits"], tokens)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        print(f"iteration {iteration} loss {loss.item().hex()}", flush=True)


if __name__ == "__main__":
    main()
