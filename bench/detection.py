#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which bugs does each mode of ttrace find and explain, and where does it cry wolf?

Each row trains a sample twice for one iteration, as the trusted run on one rank and as the run in
doubt, and compares the two in every mode. Results are kept per row, so an interrupted run goes on
where it stopped. Beside ttrace stand what constants that others gate at would have said of the same
tensors: 8.3 % of the norm, 1 - 2xy/(x^2+y^2) <= 1e-3 (computed here from the merged traces, with
numpy), and `h5diff -p 0.01`.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Optional

from detection_rows import FEW, PRECISIONS, PROGRAMS, SOURCE, Row, all_rows
from detection_table import problems, tables, with_causes

sys.path.insert(0, str(SOURCE / "test"))
import forkserver  # noqa: E402

SERVER = forkserver.Server()
FORKED = SOURCE / "test/capture/programs/forked.py"
PERTURBED = 2


class Failed(RuntimeError):
    """A command that should have worked has not; the message has its last words."""


class Bench:
    def __init__(self, tools: pathlib.Path, folder: pathlib.Path, keep: bool):
        self.tools, self.folder, self.keep = tools, folder, keep
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        (folder / "references").mkdir(exist_ok=True)

    # ---- commands ----

    def call(self, words: List[Any], good=(0,)) -> subprocess.CompletedProcess:
        words = [str(word) for word in words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode not in good:
            raise Failed(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr[-1500:]}")
        return done

    def capture(self, output: pathlib.Path, command: List[Any], options: List[Any] = ()) -> None:
        if (output / "done").exists():
            return
        shutil.rmtree(output, ignore_errors=True)
        self.call([self.tools / "ttrace-capture", "-q", "-o", output, *options, "--", *command])
        (output / "done").touch()

    def program(self, row: Row, arguments: List[str], ranks: int) -> List[Any]:
        fork = [] if ranks == 1 else [FORKED, ranks]
        return [*SERVER.command(), *fork, PROGRAMS[row.sample], "--iters", "1", *arguments]

    def diff(self, reference: pathlib.Path, candidate: pathlib.Path,
             options: List[Any] = ()) -> Dict[str, Any]:
        done = self.call([self.tools / "ttrace-diff", reference, candidate, "--json", "-",
                          *options], good=(0, 1, 2))
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Failed(f"ttrace-diff {reference} {candidate}: {done.stderr[-800:]}")

    # ---- a row ----

    def reference(self, row: Row) -> pathlib.Path:
        """The trusted run and its perturbed ones: the same for all rows of a model."""
        filtered = ("filtered" for word in row.capture if word == "--filter")
        name = "_".join((row.sample, *row.model, *filtered))
        folder = self.folder / "references" / file_name(name)
        command = self.program(row, list(row.model), 1)
        self.capture(folder / "ref", command, row.capture)
        perturbed = []
        for seed in range(1, PERTURBED + 1):
            perturbed.append(folder / f"perturbed{seed}")
            self.capture(perturbed[-1], command, ["--perturb", seed, *row.capture])
        for name, runs in (("limits", perturbed), ("single", perturbed[:1])):
            if not (folder / f"{name}.json").exists():
                self.call([self.tools / "ttrace-tolerance", "-q", folder / "ref", *runs, "-o",
                           folder / f"{name}.json"])
        return folder

    def run(self, row: Row) -> Dict[str, Any]:
        folder, work = self.reference(row), self.work(row)
        reference, candidate = folder / "ref", work / "cand"
        self.capture(candidate, self.program(row, [*row.model, *row.layout], row.ranks),
                     ["--init-from", reference, *row.capture])
        has_high = self.replay(row, reference, work)
        reports = {
            "bound": self.diff(reference, candidate),
            "theorem": self.diff(reference, candidate, ["--bound", "theorem"]),
            "envelope": self.diff(reference, candidate, ["--limits", folder / "limits.json"]),
            "own": self.diff(work / "own", candidate),
        }
        reports["local"] = (self.diff(work / "own", candidate, ["--high", work / "high"])
                            if has_high else reports["own"])
        result = {"name": row.name, "bug": row.bug, "precision": row.precision,
                  "sample": row.sample,
                  "modes": {mode: graded(row, report) for mode, report in reports.items()}}
        result["modes"]["paper x3"] = self.paper(row, reports["bound"], folder / "single.json")
        result["peers"] = self.peers(reference, candidate, work)
        if not self.keep:
            shutil.rmtree(work)
        else:
            (work / "complete").touch()
        return result

    def work(self, row: Row) -> pathlib.Path:
        """An empty folder for the row's traces; with --keep one that may have all of them."""
        work = self.folder / "work" / file_name(row.name)
        if not (self.keep and (work / "complete").exists()):
            shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        return work

    def replay(self, row: Row, reference: pathlib.Path, work: pathlib.Path) -> bool:
        """The trusted program fed the candidate's tensors; whether in a higher precision, too."""
        pack = work / "cand.pack"
        if not pack.exists():
            self.call([self.tools / "ttrace-merge", "-q", work / "cand", "--pack", "--like",
                       reference, "-o", pack], good=(0, 1))
        self.capture(work / "own", self.program(row, list(row.model), 1),
                     ["--replay", pack, *row.capture])
        if "--fp8" in row.model and row.precision == "fp32":  # there is no fp64 of it
            return False
        low, high = PRECISIONS[row.precision]
        model = [word for word in row.model if word not in low] + high
        self.capture(work / "high", self.program(row, model, 1), ["--replay", pack, *row.capture])
        return True

    # ---- others ----

    def paper(self, row: Row, bound: Dict[str, Any], single: pathlib.Path) -> Dict[str, Any]:
        """One perturbed run, three times its response, tensor by tensor in execution order."""
        noise = json.loads(single.read_text())["tensors"]
        over = [line for line in bound["tensors"] if line["compared"] and line["key"] in noise
                and line["error"] > 3 * max(noise[line["key"]]["error"], 1e-9)
                and "/step/" not in line["key"] and "/param/" not in line["key"]]
        flagged = {line["key"] for line in over}
        first = next((finding for finding in bound["findings"]
                      if finding["key"] in flagged or finding["kind"] == "missing"), None)
        return {"verdict": "differs" if over or first else "same", "flagged": len(over),
                "compared": len(bound["tensors"]), "exact": names_it(row, first), "score": None}

    def peers(self, reference: pathlib.Path, candidate: pathlib.Path,
              work: pathlib.Path) -> Dict[str, Any]:
        merged = work / "merged"
        if not merged.exists():
            self.call([self.tools / "ttrace-merge", "-q", candidate, "--like", reference, "-o",
                       merged], good=(0, 1))
        left, right = (path / "rank00000/it000000.h5" for path in (reference, merged))
        flagged = {"8.3 % norm": 0, "cosine-like 1e-3": 0}
        for mine, theirs in common_tensors(left, right):
            error, size = norm(mine - theirs), norm(mine)
            flagged["8.3 % norm"] += bool(size and error / size > 0.083)
            squares = size ** 2 + norm(theirs) ** 2
            flagged["cosine-like 1e-3"] += bool(squares and error ** 2 / squares > 1e-3)
        answers = {name: count > 0 for name, count in flagged.items()}
        if shutil.which("h5diff"):
            answers["h5diff -p 0.01"] = self.call(
                ["h5diff", "-q", "-p", "0.01", left, right, "/data", "/data"],
                good=(0, 1, 2)).returncode == 1
        return answers


def file_name(name: str) -> str:
    return name.replace("/", "-")


def norm(values: Any) -> float:
    import numpy

    return float(numpy.linalg.norm(values.ravel().astype(numpy.float64)))


def common_tensors(left: pathlib.Path, right: pathlib.Path):
    """Floating tensors that both files have, in equal shapes."""
    import h5py

    with h5py.File(left, "r") as mine, h5py.File(right, "r") as theirs:
        names: List[str] = []
        mine["data"].visititems(lambda name, item: names.append(name)
                                if isinstance(item, h5py.Dataset) else None)
        for name in names:
            other = theirs["data"].get(name)
            if other is None or other.shape != mine["data"][name].shape:
                continue
            if mine["data"][name].dtype.kind == "f" and mine["data"][name].size:
                yield (mine["data"][name][()].astype("float64"), other[()].astype("float64"))


def names_it(row: Row, first: Optional[Dict[str, Any]]) -> bool:
    """Whether the finding is at one of the places written down for the row."""
    if not row.first or first is None:
        return False
    key = first["key"].split("/") if first.get("key") else []
    for place in row.first:
        if place["phase"] == "missing":
            if first["kind"] == "missing" and place["module"] in (first.get("key") or ""):
                return True
        elif all(str(place[part]) in key for part in ("phase", "slot")) and any(
                word.split("#")[0] == place["module"] for word in key):
            return True
    return False


def graded(row: Row, report: Dict[str, Any]) -> Dict[str, Any]:
    findings = report.get("findings") or []
    first = findings[0] if findings else None
    tensors = report.get("tensors") or []
    return {"verdict": report["verdict"], "message": report.get("message"),
            "flagged": sum(line["score"] > 1 for line in tensors), "compared": len(tensors),
            "findings": len(findings), "first": first and first.get("key"),
            "exact": names_it(row, first),
            "causes": [cause["what"] for cause in (first or {}).get("causes", [])],
            "score": first and max(finding["score"] for finding in findings
                                   if finding["key"] == first["key"]),
            "largest_healthy": max((line["score"] for line in tensors), default=0)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="Example: bench/detection.sh --only healthy-bf16")
    parser.add_argument("--tools", type=pathlib.Path, default=SOURCE / "build/tools")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("detection-out"))
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--few", action="store_true", help="ten rows")
    parser.add_argument("--keep", action="store_true",
                        help="keep the traces; of rows without a result judge kept ones again")
    parser.add_argument("--by-row", action="store_true", help="print a line for each bug, too")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    return parser.parse_args()


def main() -> int:
    args = parse()
    rows = [row for row in all_rows() if args.only in row.name]
    if args.few:
        rows = [row for row in rows if row.name in FEW]
    if args.list:
        print("\n".join(row.name for row in rows))
        return 0
    bench = Bench(args.tools.resolve(), args.output.resolve(), args.keep)
    results, failed = [], []
    for number, row in enumerate(rows, 1):
        kept = bench.folder / "rows" / f"{file_name(row.name)}.json"
        if not kept.exists():
            print(f"[{number}/{len(rows)}] {row.name}", file=sys.stderr, flush=True)
            try:
                kept.write_text(json.dumps(bench.run(row), indent=1))
            except (Failed, subprocess.TimeoutExpired) as error:
                print(f"  {error}", file=sys.stderr)
                failed.append(row.name)
                continue
        results.append(with_causes(json.loads(kept.read_text()), row.cause))
    print(tables(results, by_row=args.by_row))
    wrong = problems(results, "local")
    for line in wrong:
        print(f"not as it should be: {line}")
    for name in failed:
        print(f"not run: {name}")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
