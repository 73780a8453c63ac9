# SPDX-License-Identifier: Apache-2.0
"""What is compared in the detection benchmark: healthy layouts, and bugs with their first module.

A row is one candidate against one reference. Bugs and what must be named first are those of
samples/*/expected.json, which were written down before the bugs were run.
"""
from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

SOURCE = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = {"megatron": SOURCE / "samples/megatron/pretrain_gpt.py",
            "torch": SOURCE / "samples/torch/train.py"}
# Flags of the run, and of its high replay: that of --amp is the model without autocast.
PRECISIONS = {"fp32": ([], ["--fp64"]), "bf16": (["--bf16"], []), "amp": (["--amp"], [])}


class Row(NamedTuple):
    name: str
    sample: str
    precision: str
    model: Tuple[str, ...]  # both sides
    layout: Tuple[str, ...]  # the candidate only
    ranks: int
    first: Tuple[Dict[str, Any], ...]  # any of these may be named first; () is a healthy row
    capture: Tuple[str, ...] = ()  # options of every capture
    cause: Optional[Dict[str, Any]] = None  # what must be said of it; None: nothing is knowable

    @property
    def bug(self) -> str:
        return self.layout[self.layout.index("--bug") + 1] if "--bug" in self.layout else ""


MODELS = {
    "gpt": (),
    "llama": ("--swiglu", "--rope", "--rmsnorm", "--untie", "--kv-heads", "2"),
    "deep": ("--layers", "8", "--untie"),
    "moe": ("--experts", "4"),
}
LAYOUTS = {
    "tp2": (2, "--tp 2"),
    "tp2-sp": (2, "--tp 2 --sp"),
    "tp4": (4, "--tp 4"),
    "pp2": (2, "--pp 2"),
    "dp2": (2, "--dp 2"),
    "dp2-zero": (2, "--dp 2 --distributed-optimizer"),
    "cp2": (2, "--cp 2"),
    "tp2-pp2": (4, "--tp 2 --pp 2"),
    "tp2-pp2-sp": (4, "--tp 2 --pp 2 --sp"),
    "tp2-dp2": (4, "--tp 2 --dp 2"),
    "tp2-recompute": (2, "--tp 2 --recompute"),
    "ep2": (2, "--tp 2 --sp --ep 2"),
    "dp2-ep2": (2, "--dp 2 --ep 2"),
}
TORCH_LAYOUTS = {
    "dp2": (2, "--dp 2"),
    "tp2": (2, "--tp 2"),
    "tp2-sp": (2, "--tp 2 --sp"),
    "fsdp2": (2, "--dp 2 --fsdp"),
    "dp2-tp2-sp": (4, "--dp 2 --tp 2 --sp"),
}
PLAIN = ("tp2", "tp2-sp", "tp4", "pp2", "dp2", "dp2-zero", "cp2", "tp2-pp2-sp", "tp2-dp2",
         "tp2-recompute")
# Two key-value heads are not cut four times here.
FITTING = {
    "gpt": PLAIN,
    "llama": tuple(name for name in PLAIN if name != "tp4"),
    "deep": tuple(name for name in PLAIN if "2-" in name),
    "moe": ("ep2", "dp2-ep2"),
}
SEEDS = {"gpt": "tp2", "llama": "tp2", "moe": "dp2-ep2"}  # in this layout, with other seeds
# Megatron does not cut sequences under autocast (arguments.py of the sample).
UNDER_AUTOCAST = {
    "gpt": ("tp2", "tp4", "dp2-zero", "cp2", "tp2-pp2"),
    "llama": ("tp2", "pp2", "tp2-dp2"),
    "deep": (),
    "moe": ("dp2-ep2",),
}
TORCH_MODEL = ("--micro-batch-size", "2")


def megatron(precision: str, model: str, layout: str, seed: str = "") -> Row:
    ranks, words = LAYOUTS[layout]
    flags = (("--seed", seed) if seed else ()) + MODELS[model] + tuple(PRECISIONS[precision][0])
    name = f"healthy-{precision}-{model}-{layout}" + (f"-seed{seed}" if seed else "")
    return Row(name, "megatron", precision, flags, tuple(words.split()), ranks, ())


def healthy() -> List[Row]:
    rows = []
    for precision, (flags, _) in PRECISIONS.items():
        fitting = UNDER_AUTOCAST if precision == "amp" else FITTING
        for model, layouts in fitting.items():
            rows += [megatron(precision, model, layout) for layout in layouts]
        for name, (ranks, layout) in TORCH_LAYOUTS.items():
            rows.append(Row(f"healthy-{precision}-torch-{name}", "torch", precision,
                            TORCH_MODEL + tuple(flags), tuple(layout.split()), ranks, ()))
        for model, layout in SEEDS.items():
            rows += [megatron(precision, model, layout, seed) for seed in ("7", "8")]
    return rows


def without(words: List[str], option: str) -> List[str]:
    """The words without that option and its value: all rows train for one iteration."""
    if option not in words:
        return list(words)
    place = words.index(option)
    return [*words[:place], *words[place + 2:]]


NOT_UNDER_AUTOCAST = {"--sp", "--flash", "--fp8", "--recompute"}  # in Megatron


def under_autocast(sample: str, runs: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Of each bug the first run that the sample can make so."""
    first: Dict[str, Dict[str, Any]] = {}
    for run in runs:
        if sample == "torch" or not {*run["model"], *run["layout"]} & NOT_UNDER_AUTOCAST:
            first.setdefault(run["bug"], run)
    return list(first.values())


def bugs() -> List[Row]:
    rows = []
    for sample in PROGRAMS:
        expected = json.loads((SOURCE / "samples" / sample / "expected.json").read_text())
        for precision, (flags, _) in PRECISIONS.items():
            runs = expected["runs"]
            for run in under_autocast(sample, runs) if precision == "amp" else runs:
                model = without(run["model"], "--iters")
                rows.append(Row(f"bug-{precision}-{sample}-{run['name']}".replace(" ", "_"),
                                sample, precision, tuple(model + flags),
                                tuple([*run["layout"], "--bug", run["bug"]]), run["ranks"],
                                tuple([run["first"], *run["also"]]),
                                tuple(run.get("capture", ())), run["cause"]))
    return rows


# One each of what the benchmark has: for a test of minutes.
FEW = ("healthy-fp32-gpt-tp2", "healthy-bf16-gpt-tp2-pp2-sp", "healthy-bf16-llama-tp2-sp",
       "healthy-fp32-gpt-dp2-zero", "healthy-fp32-torch-tp2-sp", "healthy-amp-torch-tp2-sp",
       "bug-bf16-megatron-attention-scale_on_two_ranks",
       "bug-fp32-megatron-embedding-mask_on_two_ranks",
       "bug-bf16-megatron-final-norm-grad_on_two_ranks", "bug-fp32-torch-grad-factor:_--dp_2")


def all_rows() -> List[Row]:
    return healthy() + bugs()
