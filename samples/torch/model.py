# SPDX-License-Identifier: Apache-2.0
"""A small pre-LN GPT, written for one device and unaware of any parallel layout.

The parallel code replaces parameters and adds hooks from outside (parallel.py), so attention must
not assume that it sees every head: the head count is left to `view(..., -1, head_size)`. Layers sit
in a ModuleDict keyed by their number, so that a layer keeps its name whatever the others are. There
are no biases. Every parameter is drawn from its own generator, seeded by its name, so that the
start does not depend on the order or number of the modules.
"""

from __future__ import annotations

import zlib
from typing import Optional

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.head_size = hidden // heads
        self.wq = nn.Linear(hidden, hidden, bias=False)
        self.wk = nn.Linear(hidden, hidden, bias=False)
        self.wv = nn.Linear(hidden, hidden, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, _ = x.shape
        return x.view(batch, seq, -1, self.head_size).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (self.split_heads(w(x)) for w in (self.wq, self.wk, self.wv))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.w1 = nn.Linear(hidden, 4 * hidden, bias=False)
        self.w2 = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.gelu(self.w1(x)))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden, bias=False)
        self.attention = Attention(hidden, heads)
        self.ffn_norm = nn.LayerNorm(hidden, bias=False)
        self.feed_forward = FeedForward(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class GPT(nn.Module):
    """Returns the mean cross entropy; `recompute` is None, "reentrant" or "non-reentrant"."""

    def __init__(self, layer_numbers: list[int], hidden: int, heads: int, seq: int, vocab: int,
                 recompute: Optional[str] = None):
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq, hidden)
        self.layers = nn.ModuleDict({str(n): Layer(hidden, heads) for n in layer_numbers})
        self.norm = nn.LayerNorm(hidden, bias=False)
        self.output = nn.Linear(hidden, vocab, bias=False)

    def run_layer(self, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if self.recompute is None:
            return layer(x)
        from torch.utils.checkpoint import checkpoint
        return checkpoint(layer, x, use_reentrant=self.recompute == "reentrant")

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1]).unsqueeze(0)
        x = self.embedding(tokens) + self.positions(places)
        for layer in self.layers.values():
            x = self.run_layer(layer, x)
        logits = self.output(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def initialise(model: nn.Module, seed: int) -> None:
    """Matrices get a standard deviation of 1/sqrt(hidden), norms start at one."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.ones_(parameter)
            continue
        generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
        width = model.norm.normalized_shape[0]
        nn.init.normal_(parameter, std=width ** -0.5, generator=generator)
