# SPDX-License-Identifier: Apache-2.0
"""What is compared in the detection benchmark: healthy layouts, and bugs with their first module.

A row is one candidate against one reference. Bugs and what must be named first are those of
samples/*/expected.json, which were written down before the bugs were run.
"""
from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List, NamedTuple, Tuple

SOURCE = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = {"megatron": SOURCE / "samples/megatron/pretrain_gpt.py",
            "torch": SOURCE / "samples/torch/train.py"}
PRECISIONS = {"fp32": ([], ["--fp64"]), "bf16": (["--bf16"], [])}  # of the run, of its high replay


class Row(NamedTuple):
    name: str
    sample: str
    precision: str
    model: Tuple[str, ...]  # both sides
    layout: Tuple[str, ...]  # the candidate only
    ranks: int
    first: Tuple[Dict[str, Any], ...]  # any of these may be named first; () is a healthy row
    capture: Tuple[str, ...] = ()  # options of every capture

    @property
    def bug(self) -> str:
        return self.layout[self.layout.index("--bug") + 1] if "--bug" in self.layout else ""


MODELS = {
    "gpt": (),
    "llama": ("--swiglu", "--rope", "--rmsnorm", "--untie", "--kv-heads", "2"),
    "deep": ("--layers", "8", "--untie"),
}
LAYOUTS = {
    "tp2": (2, "--tp 2"),
    "tp2-sp": (2, "--tp 2 --sp"),
    "tp4": (4, "--tp 4"),
    "pp2": (2, "--pp 2"),
    "dp2": (2, "--dp 2"),
    "dp2-zero": (2, "--dp 2 --distributed-optimizer"),
    "cp2": (2, "--cp 2"),
    "tp2-pp2-sp": (4, "--tp 2 --pp 2 --sp"),
    "tp2-dp2": (4, "--tp 2 --dp 2"),
    "tp2-recompute": (2, "--tp 2 --recompute"),
}
TORCH_LAYOUTS = {
    "dp2": (2, "--dp 2"),
    "tp2": (2, "--tp 2"),
    "tp2-sp": (2, "--tp 2 --sp"),
    "fsdp2": (2, "--dp 2 --fsdp"),
    "dp2-tp2-sp": (4, "--dp 2 --tp 2 --sp"),
}
EXPERT_LAYOUTS = {
    "ep2": (2, "--tp 2 --sp --ep 2"),
    "dp2-ep2": (2, "--dp 2 --ep 2"),
}
UNFIT = {("llama", "tp4")}  # two key-value heads are not cut four times here
TORCH_MODEL = ("--micro-batch-size", "2")


def healthy() -> List[Row]:
    rows = []
    for precision, (flags, _) in PRECISIONS.items():
        for model, words in MODELS.items():
            for name, (ranks, layout) in LAYOUTS.items():
                if (model, name) in UNFIT or (model == "deep" and "2-" not in name):
                    continue
                rows.append(Row(f"healthy-{precision}-{model}-{name}", "megatron", precision,
                                words + tuple(flags), tuple(layout.split()), ranks, ()))
        for name, (ranks, layout) in TORCH_LAYOUTS.items():
            rows.append(Row(f"healthy-{precision}-torch-{name}", "torch", precision,
                            TORCH_MODEL + tuple(flags), tuple(layout.split()), ranks, ()))
        for seed in ("7", "8"):
            rows.append(Row(f"healthy-{precision}-gpt-tp2-seed{seed}", "megatron", precision,
                            ("--seed", seed) + tuple(flags), ("--tp", "2"), 2, ()))
        for name, (ranks, layout) in EXPERT_LAYOUTS.items():
            rows.append(Row(f"healthy-{precision}-moe-{name}", "megatron", precision,
                            ("--experts", "4") + tuple(flags), tuple(layout.split()), ranks, ()))
    return rows


def without(words: List[str], option: str) -> List[str]:
    """The words without that option and its value: all rows train for one iteration."""
    if option not in words:
        return list(words)
    place = words.index(option)
    return [*words[:place], *words[place + 2:]]


def bugs() -> List[Row]:
    rows = []
    for sample in PROGRAMS:
        expected = json.loads((SOURCE / "samples" / sample / "expected.json").read_text())
        for precision, (flags, _) in PRECISIONS.items():
            for run in expected["runs"]:
                model = without(run["model"], "--iters")
                rows.append(Row(f"bug-{precision}-{sample}-{run['name']}".replace(" ", "_"),
                                sample, precision, tuple(model + flags),
                                tuple([*run["layout"], "--bug", run["bug"]]), run["ranks"],
                                tuple([run["first"], *run["also"]]),
                                tuple(run.get("capture", ()))))
    return rows


# One each of what the benchmark has: for a test of minutes.
FEW = ("healthy-fp32-gpt-tp2", "healthy-bf16-gpt-tp2-pp2-sp", "healthy-bf16-llama-tp2-sp",
       "healthy-fp32-gpt-dp2-zero", "healthy-fp32-torch-tp2-sp", "healthy-bf16-torch-fsdp2",
       "bug-bf16-megatron-attention-scale_on_two_ranks",
       "bug-fp32-megatron-embedding-mask_on_two_ranks",
       "bug-bf16-megatron-final-norm-grad_on_two_ranks", "bug-fp32-torch-grad-factor:_--dp_2")


def all_rows() -> List[Row]:
    return healthy() + bugs()
