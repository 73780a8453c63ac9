#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is every layout found and proved? Each row is a run of a sample compared with its one-rank run.

A row is as it should be when ttrace-diff says "same" and has compared every tensor it expected. The
table says how each layout came to be known: `only` one fits the shape, `content` decides, it is
`like` another tensor's, `declared` by the program, `parts` of calls for several micro-batches, or
`assumed` from layouts that fit equally well. Results are kept per row, so an interrupted run goes
on where it stopped. A row takes 2 to 30 seconds.
"""
from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Tuple

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "test"))
import forkserver  # noqa: E402

SERVER = forkserver.Server()
FORKED = SOURCE / "test/capture/programs/forked.py"
PROGRAMS = {"megatron": SOURCE / "samples/megatron/pretrain_gpt.py",
            "torch": SOURCE / "samples/torch/train.py",
            "handwritten": SOURCE / "samples/handwritten/train.py"}
SOURCES = ("only", "content", "like", "declared", "parts", "assumed")


class Row(NamedTuple):
    sample: str
    ranks: int
    model: str  # arguments of both sides
    layout: str  # of the candidate only
    undeclared: bool = False  # what the program declares is not looked at

    @property
    def name(self) -> str:
        words = " ".join((self.sample, self.layout, self.model)).split()
        return " ".join(words) + (" (undeclared)" if self.undeclared else "")


LLAMA = "--swiglu --rope --rmsnorm --untie --kv-heads 2"
ROWS = [
    Row("megatron", 2, "", "--tp 2"),
    Row("megatron", 4, "", "--tp 4"),
    Row("megatron", 2, "", "--tp 2 --sp"),
    Row("megatron", 2, LLAMA, "--tp 2 --sp"),
    Row("megatron", 2, LLAMA, "--cp 2"),
    Row("megatron", 4, LLAMA, "--tp 2 --pp 2 --sp"),
    Row("megatron", 4, LLAMA, "--tp 2 --cp 2 --sp"),
    Row("megatron", 4, "--kv-heads 4 --heads 8", "--tp 4"),
    Row("megatron", 2, "--kv-heads 1", "--tp 2"),
    Row("megatron", 4, "--kv-heads 2", "--tp 4"),
    Row("megatron", 2, "", "--pp 2"),
    Row("megatron", 2, "", "--pp 2 --vpp 2"),
    Row("megatron", 4, "--layers 8", "--pp 4 --vpp 2"),
    Row("megatron", 2, "", "--dp 2"),
    Row("megatron", 2, "", "--dp 2 --distributed-optimizer"),
    Row("megatron", 4, "", "--tp 2 --dp 2 --distributed-optimizer --bucket-size 100000"),
    Row("megatron", 2, "", "--tp 2 --recompute"),
    Row("megatron", 2, "--flash", "--cp 2"),
    Row("megatron", 2, "--experts 4", "--ep 2"),
    Row("megatron", 2, "--experts 4", "--tp 2 --sp --ep 2"),
    Row("megatron", 2, "--experts 4", "--ep 2 --dispatcher alltoall"),
    Row("megatron", 2, "--experts 4", "--tp 2 --sp --ep 2 --dispatcher alltoall"),
    Row("megatron", 2, "--experts 4", "--tp 2 --sp --etp 2"),
    Row("megatron", 2, "--experts 4", "--tp 2 --sp --etp 2 --dispatcher alltoall"),
    Row("megatron", 4, "--experts 4", "--tp 2 --sp --etp 2 --ep 2"),
    Row("megatron", 4, "--experts 4", "--pp 2 --ep 2"),
    Row("megatron", 4, "--experts 4", "--ep 2 --dp 4 --distributed-optimizer"),
    Row("megatron", 4, "--experts 4", "--tp 2 --sp --ep 4 --dispatcher alltoall"),
    Row("megatron", 2, "--mtp 2", "--tp 2 --sp"),
    Row("megatron", 2, f"--mtp 1 {LLAMA}", "--pp 2"),
    Row("megatron", 2, "--mtp 1 --per-token-loss", "--cp 2"),
    Row("megatron", 2, "--mtp 1", "--dp 2 --distributed-optimizer"),
    Row("megatron", 4, "--vocab 100 --pad-vocab 64", "--tp 2 --dp 2"),
    Row("megatron", 4, LLAMA, "--tp 2 --pp 2 --sp", True),
    Row("megatron", 4, "", "--tp 2 --cp 2 --sp", True),
    Row("torch", 1, "", "--micro-batch-size 1"),
    Row("torch", 2, "", "--micro-batch-size 1 --dp 2"),
    Row("torch", 2, "", "--micro-batch-size 2 --tp 2 --sp"),
    Row("torch", 2, "--micro-batch-size 2", "--dp 2"),
    Row("torch", 2, "--micro-batch-size 2", "--tp 2"),
    Row("torch", 2, "--micro-batch-size 2", "--tp 2 --sp"),
    Row("torch", 2, "--micro-batch-size 2", "--dp 2 --fsdp"),
    Row("torch", 4, "--micro-batch-size 1", "--dp 4 --fsdp"),
    Row("torch", 4, "--micro-batch-size 2", "--dp 2 --tp 2 --sp"),
    Row("torch", 4, "--micro-batch-size 2", "--dp 2 --tp 2 --sp --fsdp"),
    Row("torch", 2, "--micro-batch-size 2", "--dp 2 --fsdp1"),
    Row("torch", 4, "--micro-batch-size 1", "--dp 4 --fsdp1"),
    Row("torch", 4, "--micro-batch-size 1 --hidden 60 --vocab 50", "--dp 4 --fsdp1"),
    Row("torch", 4, "--micro-batch-size 1", "--dp 4 --fsdp1 joined"),
    Row("torch", 4, "--micro-batch-size 1", "--dp 4 --fsdp1 --replicas 2"),
    Row("torch", 4, "--micro-batch-size 2 --clip-grad 0", "--dp 2 --tp 2 --sp --fsdp1"),
    Row("torch", 4, "--micro-batch-size 1", "--dp 4 --fsdp --replicas 2"),
    Row("torch", 4, "--micro-batch-size 2 --hidden 60 --vocab 126", "--dp 2 --tp 2 --fsdp"),
    Row("torch", 2, "--micro-batch-size 2 --fsdp --mixed", "--dp 2"),
    Row("torch", 4, "--micro-batch-size 2 --fsdp --mixed", "--dp 2 --tp 2"),
    Row("torch", 2, "--micro-batch-size 2 --fsdp1 --mixed", "--dp 2"),
    Row("torch", 2, "--micro-batch-size 2", "--dp 2 --zero"),
    Row("torch", 4, "--micro-batch-size 1", "--dp 4 --zero"),
    Row("torch", 2, "--micro-batch-size 2", "--tp 2 --sp", True),
    Row("torch", 4, "--micro-batch-size 2", "--dp 2 --tp 2 --sp --fsdp", True),
    Row("handwritten", 2, "", "--tp 2"),
    Row("handwritten", 4, "", "--tp 4 --sp"),
    Row("handwritten", 2, "", "--cp 2"),
    Row("handwritten", 2, "", "--dp 2"),
    Row("handwritten", 4, "", "--cp 2 --tp 2 --zigzag --sp"),
    Row("handwritten", 8, "", "--dp 2 --cp 2 --tp 2"),
    Row("handwritten", 4, "--bf16", "--cp 2 --tp 2 --zigzag --sp"),
    Row("handwritten", 2, "", "--pp 2"),
    Row("handwritten", 4, "", "--pp 2 --tp 2 --sp"),
    Row("handwritten", 8, "", "--pp 2 --dp 2 --tp 2"),
    Row("handwritten", 2, "--packed", "--cp 2"),
    Row("handwritten", 4, "--packed", "--cp 4 --zigzag"),
    Row("handwritten", 4, "--packed", "--cp 2 --tp 2 --zigzag --sp"),
    Row("handwritten", 8, "--packed", "--dp 2 --cp 2 --tp 2 --zigzag"),
    Row("handwritten", 4, "--packed --bf16", "--cp 2 --tp 2 --zigzag --sp"),
]


def call(words: List[Any], good: Tuple[int, ...] = (0,)) -> str:
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode not in good:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr[-1500:]}")
    return done.stdout


def capture(tools: pathlib.Path, output: pathlib.Path, row: Row, arguments: str, ranks: int,
            options: Tuple[Any, ...] = ()) -> None:
    fork = [] if ranks == 1 else [FORKED, ranks]
    call([tools / "ttrace-capture", "-q", "--overwrite", "-o", output, *options, "--",
          *SERVER.command(), *fork, PROGRAMS[row.sample], *arguments.split(), "--iters", "1"])


def run(tools: pathlib.Path, folder: pathlib.Path, row: Row) -> Dict[str, Any]:
    name = "-".join([row.sample, *row.model.replace("--", "").split()])
    reference, candidate = folder / name / "ref", folder / "candidate"
    if not (folder / name / "done").exists():
        capture(tools, reference, row, row.model, 1)
        (folder / name / "done").touch()
    # The hand-written program has its own equal weights: nothing declares how they are cut.
    start = () if row.sample == "handwritten" else ("--init-from", reference)
    capture(tools, candidate, row, f"{row.model} {row.layout}", row.ranks, start)
    rules = folder / "undeclared"
    rules.write_text("* ?\n")
    options = ["--layout", rules] if row.undeclared else []
    report = json.loads(call([tools / "ttrace-diff", reference, candidate, "--json", "-",
                              *options], good=(0, 1, 2)))
    return {"verdict": report["verdict"], "compared": report["coverage"]["compared"],
            "expected": report["coverage"]["expected"], "sources": sources(report["layouts"]),
            "findings": [f"{finding['kind']} {finding['key']}: {finding['message'][:200]}"
                         for finding in report["findings"][:5]]}


def sources(layouts: List[Dict[str, Any]]) -> Dict[str, int]:
    """Tensors by how their layout came to be known."""
    counts: Dict[str, int] = collections.Counter()
    for line in layouts:
        first = "assumed" if line["assumed"] else line["reason"].split()[0].strip("():,")
        counts[first] += line["count"]
    return counts


def right(result: Dict[str, Any]) -> bool:
    return result["verdict"] == "same" and result["compared"] == result["expected"] > 0


def table(results: Dict[str, Dict[str, Any]]) -> str:
    lines = ["| run | verdict | compared | " + " | ".join(SOURCES) + " | other |",
             "|---|---|---|" + "---|" * (len(SOURCES) + 1)]
    for name, result in results.items():
        counts = [result["sources"].get(source, 0) for source in SOURCES]
        other = sum(result["sources"].values()) - sum(counts)
        lines.append(f"| {name} | {result['verdict']} | {result['compared']} of "
                     f"{result['expected']} | " + " | ".join(map(str, counts)) + f" | {other} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="Example: bench/layouts.sh --only handwritten")
    parser.add_argument("--tools", type=pathlib.Path, default=SOURCE / "build/tools")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("layouts-out"))
    parser.add_argument("--only", default="", help="rows whose names contain this")
    args = parser.parse_args()
    rows = [row for row in ROWS if args.only in row.name]
    if not (args.tools / "ttrace-diff").exists():
        parser.error(f"no ttrace-diff in {args.tools}: run ./test/run.sh --build-only, or give --tools")
    if importlib.util.find_spec("torch") is None:
        parser.error("this Python has no torch: put the .venv/bin of the clone on PATH")
    if not rows:
        parser.error(f"--only {args.only}: no row has that in its name")
    folder = args.output.resolve()
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    results = {}
    for number, row in enumerate(rows, 1):
        kept = folder / "rows" / (row.name.replace(" ", "_") + ".json")
        if not kept.exists():
            print(f"[{number}/{len(rows)}] {row.name}", file=sys.stderr, flush=True)
            try:
                kept.write_text(json.dumps(run(args.tools.resolve(), folder, row), indent=1))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"  {error}", file=sys.stderr)
                continue
        results[row.name] = json.loads(kept.read_text())
    shutil.rmtree(folder / "candidate", ignore_errors=True)
    print(table(results))
    wrong = [row.name for row in rows if row.name not in results or not right(results[row.name])]
    for name in wrong:
        found = results.get(name, {}).get("findings", ["it did not run"])
        print(f"not as it should be: {name}: {found[0] if found else 'not all was compared'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
