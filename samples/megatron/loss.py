# SPDX-License-Identifier: Apache-2.0
"""The loss of a micro-batch, as Megatron's schedules want it: a sum, its tokens, and a report.

The schedule divides: by the micro-batch's own tokens, or, with --per-token-loss, nothing until
finalize_model_grads divides all gradients by the tokens of all micro-batches and ranks.
"""

import torch


def mask(samples, length: int, ragged: bool) -> torch.Tensor:
    """Ones; or, of ragged samples, zeros behind an end that depends on the sample's number."""
    if not ragged:
        return torch.ones(len(samples), length)
    ends = torch.tensor([length - (index * 5) % (3 * length // 4) for index in samples])
    return (torch.arange(length) < ends[:, None]).float()


def counted(loss: torch.Tensor, tokens: torch.Tensor):
    """What is handed to the schedule: losses and tokens are both sums."""
    return loss, tokens


def loss_function(loss_mask: torch.Tensor, output: torch.Tensor):
    loss_mask = loss_mask.view(-1).float()
    loss = torch.sum(output.view(-1).float() * loss_mask)
    tokens = loss_mask.sum().detach().to(torch.int)
    report = torch.cat([loss.detach().view(1), tokens.view(1)])
    return *counted(loss, tokens), {"lm loss": report}
