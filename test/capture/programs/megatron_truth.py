# SPDX-License-Identifier: Apache-2.0
"""The sample's Megatron-Core training, whose every value is saved by hooks of its own.

    megatron_truth.py FOLDER_OF_THE_SAMPLE FILE ARGUMENTS_OF_THE_SAMPLE...

Rank R writes FILE.R. The sample is used as it is; three of its functions are wrapped to be told
when the model exists, when gradients are final, and when an iteration begins and ends.
"""
import functools
import os
import sys

import torch

SAMPLE, FILE = sys.argv[1:3]
sys.argv[1:] = sys.argv[3:]
sys.path.insert(0, SAMPLE)

import pretrain_gpt  # noqa: E402
from truth import Truth  # noqa: E402

truth = Truth()
model = None  # what DDP and Float16Module wrap


def wrapped(name):
    """Puts the decorated function in the place of the sample's, which is its first argument."""
    def replace(decorated):
        function = getattr(pretrain_gpt, name)
        setattr(pretrain_gpt, name, functools.partial(decorated, function))
        return decorated
    return replace


@wrapped("build_model")
def build(function, *args):
    global model
    chunks = function(*args)
    (model,) = chunks
    while isinstance(getattr(model, "module", None), torch.nn.Module):
        model = model.module
    truth.watch(model)
    return chunks


@wrapped("finalize_model_grads")
def finalize(function, *args, **kwargs):
    function(*args, **kwargs)
    for name, parameter in model.named_parameters():
        truth.save(f"grad/{name}/reduced", parameter.main_grad)


@wrapped("train_step")
def step(function, *args):
    truth.begin(step.iteration)
    step.iteration += 1
    truth.parameters(model, "param", "value")
    result = function(*args)
    truth.parameters(model, "step", "param")
    for name, parameter in model.named_parameters():
        if getattr(parameter, "main_param", None) is not None:  # of a bf16 parameter
            truth.save(f"step/{name}/master", parameter.main_param)
    truth.end()
    return result


def main():
    step.iteration = 0
    pretrain_gpt.main()
    torch.save(truth.values, f"{FILE}.{os.environ['RANK']}")


if __name__ == "__main__":
    main()
