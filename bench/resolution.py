#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How small an error does each mode of ttrace find, and does the report say so truly?

One linear layer of a GPT on two tensor-parallel ranks computes 1 + 2^-K times what it should, before
the product is rounded. Each K is compared in four modes. The healthy run's report printed, before anything was wrong, how small
a factor it would have flagged: the smallest that was found should be that. Results are kept per K,
so an interrupted run goes on where it stopped. The plot is SVG, written here.
"""
from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from detection import Bench, Failed
from detection_rows import PRECISIONS, SOURCE, Row

from resolution_plot import plot

LAYER = 2
MODULE = f"decoder.layers.{LAYER}.mlp.linear_fc2"
OUTPUT = re.compile(rf"it0/mb\d+/forward/{re.escape(MODULE)}/output\.0")
MODES = ("bound", "envelope", "own", "local")
SIZES = {"fp32": range(2, 25), "bf16": range(2, 13)}  # of K; the factor is 1 + 2^-K
HEALTHY = 0  # stands for a K
AGREES = 2  # what was printed and what was found may be that far apart: a K is a factor of 2


class Measured(NamedTuple):
    precision: str
    k: int
    modes: Dict[str, Dict[str, Any]]


def row_of(precision: str, k: int) -> Row:
    model = tuple(PRECISIONS[precision][0])
    bug = ("--bug", "fc2-factor", "--bug-size", str(k), "--bug-layer", str(LAYER))
    layout = ("--tp", "2") + (() if k == HEALTHY else bug)
    return Row(f"{precision}-{k:02d}", "megatron", precision, model, layout, 2, ())


class ResolutionBench(Bench):
    def measure(self, row: Row) -> Dict[str, Any]:
        """What each mode says of this candidate."""
        references = self.reference(row)
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        reference, candidate, pack = references / "ref", work / "cand", work / "cand.pack"
        self.capture(candidate, self.program(row, [*row.model, *row.layout], row.ranks),
                     ["--init-from", reference])
        self.call([self.tools / "ttrace-merge", "-q", candidate, "--pack", "--like", reference,
                   "-o", pack], good=(0, 1))
        low, high = PRECISIONS[row.precision]
        models = {"own": list(row.model),
                  "high": [word for word in row.model if word not in low] + high}
        for name, model in models.items():
            self.capture(work / name, self.program(row, model, 1), ["--replay", pack])
        reports = {
            "bound": self.diff(reference, candidate),
            "envelope": self.diff(reference, candidate,
                                  ["--limits", references / "limits.json"]),
            "own": self.diff(work / "own", candidate),
            "local": self.diff(work / "own", candidate, ["--high", work / "high"]),
        }
        if not self.keep:
            shutil.rmtree(work)
        return {mode: told(report) for mode, report in reports.items()}


# ---- what a report says ----


def told(report: Dict[str, Any]) -> Dict[str, Any]:
    """The verdict, and all about the tensors that the module makes."""
    findings = report["findings"]
    first = findings[0] if findings else {}
    own = [line for line in report["tensors"] if made_by_module(line["key"])]
    return {"verdict": report["verdict"], "message": report.get("message"),
            "first": first.get("key"), "first_score": first.get("score"),
            "findings": len(findings),
            "elsewhere": sum(line["score"] > 1 for line in report["tensors"]
                             if not made_by_module(line["key"])),
            "factors": {finding["key"]: text for finding in findings
                        if (text := factor_text(finding)) and finding["key"]},
            "tensors": own}


def made_by_module(key: str) -> bool:
    """Its outputs, and the gradients that it computes: not what others give to it."""
    words = key.split("/")
    slot = words[-1]
    if words[-2] == MODULE:
        return slot.startswith(("output", "grad_input"))
    return words[-2].startswith(MODULE + ".") and slot in ("local", "reduced")


def factor_text(finding: Dict[str, Any]) -> Optional[str]:
    evidence = finding["evidence"]
    return evidence.get("common factor") or evidence.get("factor")


def outputs(answer: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The module's output, once a micro-batch."""
    return [line for line in answer["tensors"] if OUTPUT.fullmatch(line["key"])]


def output_score(answer: Dict[str, Any]) -> float:
    return max(line["score"] for line in outputs(answer))


def output_factor(answer: Dict[str, Any]) -> str:
    """Of the micro-batch with the largest score."""
    worst = max(outputs(answer), key=lambda line: line["score"])
    return answer["factors"].get(worst["key"], "-")


def printed(lines: List[Dict[str, Any]]) -> float:
    """The smallest factor that would have been flagged: by itself, or as an error of the norm."""
    smallest = math.inf
    for line in lines:
        resolution = line["resolution"] or {}
        smallest = min(smallest, *(resolution[name] for name in ("norm", "factor")
                                   if name in resolution))
    return smallest


# ---- the tables ----


def found(rows: List[Measured], mode: str, test: Callable[[Dict[str, Any]], bool]) -> Optional[int]:
    """The largest K up to which all were found; None when not even the first was."""
    largest = None
    for row in rows:
        if row.k != HEALTHY and not test(row.modes[mode]):
            break
        largest = row.k or None
    return largest


def differs(answer: Dict[str, Any]) -> bool:
    return answer["verdict"] == "differs"


def named(answer: Dict[str, Any]) -> bool:
    """The module is the first, or a parameter of it."""
    return differs(answer) and any(f"{word}.".startswith(MODULE + ".")
                                   for word in (answer["first"] or "").split("/"))


def over(answer: Dict[str, Any]) -> bool:
    return output_score(answer) > 1


def told_and_flagged(rows: List[Measured], mode: str) -> Tuple[float, Optional[int]]:
    """What the healthy report printed for the output, and the largest K that flagged it."""
    return printed(outputs(rows[0].modes[mode])), found(rows, mode, over)


def power(k: Optional[int]) -> str:
    return "none" if k is None else f"2^-{k}"


def ratio(rows: List[Measured], mode: str) -> str:
    told_before, flagged = told_and_flagged(rows, mode)
    if flagged is None:
        return "-"
    return f"{told_before * 2 ** flagged:.2f}"


def by_precision(rows: List[Measured]) -> Dict[str, List[Measured]]:
    """The healthy run first, then by K."""
    return {precision: sorted((row for row in rows if row.precision == precision),
                              key=lambda row: row.k)
            for precision in SIZES if any(row.precision == precision for row in rows)}


def summary(rows: List[Measured]) -> str:
    lines = ["| precision | mode | smallest found | smallest found, module named | "
             "smallest with its output flagged | printed for that output | printed / flagged |",
             "|---|---|---|---|---|---|---|"]
    for precision, mine in by_precision(rows).items():
        for mode in MODES:
            told_before, flagged = told_and_flagged(mine, mode)
            lines.append(f"| {precision} | {mode} | {power(found(mine, mode, differs))} | "
                         f"{power(found(mine, mode, named))} | {power(flagged)} | "
                         f"{told_before:.2g} = 2^{math.log2(told_before):.1f} | "
                         f"{ratio(mine, mode)} |")
    return "\n".join(lines)


def details(rows: List[Measured]) -> str:
    """Everything, a line per candidate and mode."""
    lines = ["| precision | K | mode | verdict | first | score of the output | 2^-K | "
             "estimated factor |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        true = 0.0 if row.k == HEALTHY else 2.0 ** -row.k
        for mode in MODES:
            answer = row.modes[mode]
            lines.append(f"| {row.precision} | {row.k or 'healthy'} | {mode} | "
                         f"{answer['verdict']} | {answer['first'] or '-'} | "
                         f"{output_score(answer):.3g} | {true:.3e} | {output_factor(answer)} |")
    return "\n".join(lines)


def problems(rows: List[Measured]) -> List[str]:
    """What is not as it should be. End to end an error may show first in what comes of it."""
    wrong = []
    for row in rows:
        for mode, answer in row.modes.items():
            place = f"{row.precision}, {mode}, K {row.k or 'none'}: {answer['verdict']}, first " \
                    f"{answer['first']}"
            healthy = row.k == HEALTHY and answer["verdict"] != "same"
            elsewhere = mode in ("own", "local") and differs(answer) and not named(answer)
            if healthy or elsewhere:
                wrong.append(place)
    for precision, mine in by_precision(rows).items():
        told_before, flagged = told_and_flagged(mine, "local")
        if flagged is None:
            continue
        if not 1 / AGREES <= told_before * 2 ** flagged <= AGREES:
            wrong.append(f"{precision}, local: printed {told_before:.2g}, flagged {power(flagged)}")
    return wrong


# ---- the run ----


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="Example: bench/resolution.sh --only bf16")
    parser.add_argument("--tools", type=pathlib.Path, default=SOURCE / "build/tools")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("resolution-out"))
    parser.add_argument("--only", choices=SIZES, help="this precision")
    parser.add_argument("--svg", type=pathlib.Path, help="where to put the plot")
    parser.add_argument("--keep", action="store_true", help="keep the traces of the latest K")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every comparison")
    return parser.parse_args()


def measure_all(args: argparse.Namespace) -> List[Measured]:
    """Throws Failed; what was measured before is kept."""
    bench = ResolutionBench(args.tools.resolve(), args.output.resolve(), args.keep)
    rows = []
    for precision in [args.only] if args.only else SIZES:
        for k in (HEALTHY, *SIZES[precision]):
            row = row_of(precision, k)
            kept = bench.folder / "rows" / f"{row.name}.json"
            if not kept.exists():
                print(row.name, file=sys.stderr, flush=True)
                kept.write_text(json.dumps(bench.measure(row), indent=1))
            rows.append(Measured(precision, k, json.loads(kept.read_text())))
    return rows


def curves(rows: List[Measured]) -> Dict[str, Dict[str, Dict[int, float]]]:
    """precision -> mode -> K -> score of the output."""
    scores: Dict[str, Dict[str, Dict[int, float]]] = {}
    for row in rows:
        if row.k == HEALTHY:
            continue
        for mode, answer in row.modes.items():
            scores.setdefault(row.precision, {}).setdefault(mode, {})[row.k] = output_score(answer)
    return scores


def main() -> int:
    args = parse()
    try:
        rows = measure_all(args)
    except (Failed, subprocess.TimeoutExpired) as error:
        print(f"resolution.py: {error}", file=sys.stderr)
        return 2
    if args.verbose:
        print(details(rows) + "\n")
    print(summary(rows))
    if args.svg:
        args.svg.write_text(plot(curves(rows)))
    wrong = problems(rows)
    for line in wrong:
        print(f"not as it should be: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
