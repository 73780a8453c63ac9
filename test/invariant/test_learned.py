# SPDX-License-Identifier: Apache-2.0
"""ttrace-infer and ttrace-check on the golden traces: healthy runs are silent, each bug is found at its
root, while the run goes on, too."""
from __future__ import annotations

import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import golden

HEALTHY = ["s01_sgd_mlp", "s02_adam_sched", "s03_tiny_lm", "s05_amp_bf16", "s07_sgd_mlp_sampler",
           "s08_sgd_mlp_subclass", "m3_sgd_mlp", "dup_head_s01"]
# Healthy runs of a program that another trace is of: as it was, for more steps, by other trackers.
RERUNS = [("s02_adam_sched", "rerun_s02_adam_sched"), ("s01_sgd_mlp", "m3_sgd_mlp"),
          ("s01_sgd_mlp", "dup_head_s01"), ("s01_sgd_mlp", "s07_sgd_mlp_sampler"),
          ("s01_sgd_mlp", "s08_sgd_mlp_subclass"), ("m3_sgd_mlp", "s01_sgd_mlp")]
# bug -> healthy run, what the first group of violated invariants names, the first step.
BUGS = {
    "b01_no_zero_grad": ("s01_sgd_mlp", "torch.optim.optimizer.Optimizer.zero_grad", 1),
    "b02_stale_params": ("s01_sgd_mlp", "torch.optim.sgd.sgd", 1),
    "b03_frozen": ("s01_sgd_mlp", "requires_grad", 0),
    "b05_wrong_dtype": ("s05_amp_bf16", "torch.set_autocast_enabled", 1),
    "b07_sched_first": ("s02_adam_sched", "torch.optim.lr_scheduler.LRScheduler.step", 0),
    "b09_no_backward": ("s01_sgd_mlp", "torch._tensor.Tensor.backward", 1),
}


def run(program: str, *arguments: object, code: int | None = 0) -> subprocess.CompletedProcess:
    command = [str(golden.BUILD / "tools" / program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if code is not None and done.returncode != code:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Learned(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.signatures = golden.unpacked("signatures.json.gz", cls.folder)
        cls.files: dict[tuple[str, ...], pathlib.Path] = {}

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.folder)

    def trace(self, name: str) -> pathlib.Path:
        return golden.trace(name, self.folder)

    def invariants(self, *names: str) -> pathlib.Path:
        if names not in self.files:
            self.files[names] = self.folder / ("+".join(names) + ".json")
            run("ttrace-infer", *map(self.trace, names), "-o", self.files[names], "--signatures", self.signatures, "-q")
        return self.files[names]

    def check(self, trace: pathlib.Path, invariants: pathlib.Path, *arguments: object, code: int | None = None) -> dict:
        done = run("ttrace-check", trace, "-i", invariants, "--signatures", self.signatures, "--json", "-", *arguments,
                   code=code)
        self.assertNotEqual(done.returncode, 2, done.stderr)
        return json.loads(done.stdout)

    def failed(self, report: dict) -> list[str]:
        return [entry["text"] for entry in report["invariants"] if entry["verdict"] == "failed"]


class TestHealthy(Learned):
    def test_no_trace_violates_what_was_learned_from_it(self) -> None:
        for name in HEALTHY:
            with self.subTest(name):
                report = self.check(self.trace(name), self.invariants(name), code=0)
                self.assertEqual((report["failed"], report["not_triggered"]), (0, 0))
                self.assertGreater(report["passed"], 200)

    def test_no_trace_of_several_violates_what_was_learned_from_them(self) -> None:
        names = ("s01_sgd_mlp", "s02_adam_sched", "s03_tiny_lm", "s05_amp_bf16")
        for name in names:
            with self.subTest(name):
                self.assertEqual(self.check(self.trace(name), self.invariants(*names), code=0)["failed"], 0)

    def test_reruns_are_silent(self) -> None:
        for learned, name in RERUNS:
            with self.subTest(f"{name} against {learned}"):
                report = self.check(self.trace(name), self.invariants(learned))
                self.assertEqual(self.failed(report), [])

    def test_names_of_files_do_not_matter(self) -> None:
        other = self.folder / "renamed"
        other.mkdir()
        # Processes and threads are in the records; the files' names only give an order.
        for source, name in zip(sorted(self.trace("s07_sgd_mlp_sampler").iterdir()),
                                ["trace_VAR_1_1.log", "trace_API_9_9.log"]):
            shutil.copy(source, other / name)
        learned = self.folder / "renamed.json"
        run("ttrace-infer", other, "-o", learned, "--signatures", self.signatures, "-q")
        self.assertEqual(learned.read_text(), self.invariants("s07_sgd_mlp_sampler").read_text())


class TestBugs(Learned):
    def test_each_is_found_at_its_root(self) -> None:
        for bug, (healthy, name, step) in BUGS.items():
            with self.subTest(bug):
                report = self.check(self.trace(bug), self.invariants(healthy), code=1)
                first = report["groups"][0]
                self.assertEqual(first.get("function", first.get("attribute")), name)
                entry = report["invariants"][first["invariants"][0]]
                self.assertEqual(entry["violations"][0]["records"][0]["step"], step)

    def test_records_of_a_violation_are_lines_of_the_trace(self) -> None:
        report = self.check(self.trace("b09_no_backward"), self.invariants("s01_sgd_mlp"), code=1)
        for entry in report["invariants"]:
            for violation in entry["violations"]:
                for record in violation["records"]:
                    lines = pathlib.Path(record["file"]).read_text().splitlines()
                    line = json.loads(lines[record["line"] - 1])
                    self.assertEqual(line["time"], record["time"])
                    self.assertEqual(line["function"], record["function"])
                    self.assertEqual(line["meta_vars"]["step"], record["step"])

    def test_all_reports_count_alike(self) -> None:
        document = self.folder / "junit.xml"
        results = self.folder / "results"
        trace = self.trace("b07_sched_first")
        report = self.check(trace, self.invariants("s02_adam_sched"), "--junit", document, "-o", results, code=1)
        suites = xml.parse(document).getroot()
        self.assertEqual(int(suites.get("failures")), report["failed"])
        self.assertEqual(int(suites.get("skipped")), report["not_triggered"] + report["possible"])
        self.assertEqual(int(suites.get("tests")), len(report["invariants"]))
        summary = json.loads((results / trace.name / "violations_summary.json").read_text())
        self.assertEqual(sum(entry["occurrences"] for entry in summary["violations"]) > 0, True)
        text = run("ttrace-check", trace, "-i", self.invariants("s02_adam_sched"), "--signatures", self.signatures,
                   code=1).stdout
        self.assertTrue(text.startswith(f"violated: {report['failed']} invariants, first in step 0"), text[:200])

    def test_a_trace_of_another_program_is_no_verdict(self) -> None:
        empty = self.folder / "other"
        empty.mkdir()
        line = json.loads(next(self.trace("s01_sgd_mlp").glob("trace_API*")).read_text().splitlines()[0])
        (empty / "trace_API_1_1.log").write_text(json.dumps(line | {"function": "other.function"}) + "\n")
        done = run("ttrace-check", empty, "-i", self.invariants("s01_sgd_mlp"), "--signatures", self.signatures, code=2)
        self.assertIn("cannot tell", done.stdout)


class Live:
    """Writes a trace as its run did, file by file in the order of time, with a tracker that lags behind."""

    def __init__(self, source: pathlib.Path, target: pathlib.Path, seed: int) -> None:
        self.random = random.Random(seed)
        lines = [(json.loads(line)["time"] + (self.random.randrange(10**6) if "proxy" in file.name else 0), file.name, line)
                 for file in sorted(source.iterdir()) for line in file.read_text().splitlines(keepends=True)]
        self.lines = sorted(lines, key=lambda entry: entry[0])
        self.names = sorted({name for _, name, _ in lines})
        self.target = target
        target.mkdir()

    def write(self, share: float) -> None:
        """Up to a share of the lines; the last one may be cut."""
        count = int(len(self.lines) * share)
        for name in self.names:
            text = "".join(line for _, other, line in self.lines[:count] if other == name)
            if share < 1 and text:
                text = text[:-self.random.randrange(1, 40)]
            (self.target / name).touch()
            with (self.target / name).open("r+") as file:
                file.seek(0, os.SEEK_END)
                file.write(text[file.tell():])


class TestFollow(Learned):
    def follow(self, name: str, learned: str, seed: int) -> tuple[dict, bool]:
        live = Live(self.trace(name), self.folder / f"live_{name}_{seed}", seed)
        report = self.folder / f"{name}_{seed}.json"
        said = self.folder / f"{name}_{seed}.txt"
        command = [golden.BUILD / "tools/ttrace-check", live.target, "-i", self.invariants(learned), "--signatures",
                   self.signatures, "--follow", "--idle", "2", "--json", report]
        early = False
        with said.open("w") as out, subprocess.Popen(list(map(str, command)), stdout=out,
                                                     stderr=subprocess.DEVNULL) as child:
            for i in range(1, 21):
                live.write(i / 20)
                time.sleep(0.15)
                early = early or (i < 20 and "violated:" in said.read_text())
            child.wait(60)
        return json.loads(report.read_text()), early

    def test_the_final_result_is_that_of_the_whole_trace(self) -> None:
        for bug in ["b01_no_zero_grad", "b07_sched_first"]:
            with self.subTest(bug):
                healthy = BUGS[bug][0]
                report, early = self.follow(bug, healthy, 7)
                whole = self.check(self.trace(bug), self.invariants(healthy), code=1)
                self.assertTrue(early, "nothing was said before the run ended")
                self.assertEqual(report["late_records"], 0)
                for one, other in zip(report["invariants"], whole["invariants"]):
                    for key in ["text", "verdict", "examples", "violation_count"]:
                        self.assertEqual(one[key], other[key])

    def test_memory_does_not_grow_with_the_run(self) -> None:
        sizes = {}
        learned = self.folder / "long.json"
        for times in [8, 64]:
            trace = repeated(self.trace("s01_sgd_mlp"), self.folder / f"long{times}", times)
            if times == 8:
                run("ttrace-infer", trace, "-o", learned, "--signatures", self.signatures, "-q")
            command = [str(golden.BUILD / "tools/ttrace-check"), str(trace), "-i", str(learned),
                       "--signatures", str(self.signatures), "--follow", "--idle", "0.2", "-q"]
            pid = os.spawnv(os.P_NOWAIT, command[0], command)
            _, status, usage = os.wait4(pid, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), 0)
            sizes[times] = usage.ru_maxrss / 1024
        megabytes = sum(file.stat().st_size for file in (self.folder / "long64").iterdir()) / 2**20
        self.assertGreater(megabytes, 15)
        self.assertLess(sizes[64] - sizes[8], 4, sizes)


def repeated(source: pathlib.Path, target: pathlib.Path, times: int) -> pathlib.Path:
    """A longer run: the steps of a trace again and again, with other times, steps and calls."""
    target.mkdir()
    files = {file.name: [json.loads(line) for line in file.read_text().splitlines()] for file in source.iterdir()}
    records = [record for lines in files.values() for record in lines]
    span = max(r["time"] for r in records) - min(r["time"] for r in records) + 10**6
    steps = max(r["meta_vars"]["step"] for r in records)
    for name, lines in files.items():
        with (target / name).open("w") as out:
            for k in range(times):
                for record in lines:
                    if k and record["meta_vars"]["step"] == 0:
                        continue
                    again = record | {"time": record["time"] + k * span,
                                      "meta_vars": record["meta_vars"] | {"step": record["meta_vars"]["step"] + k * steps}}
                    if "func_call_id" in again:
                        again["func_call_id"] += f"_{k}"
                    for hash in ("data", "grad"):
                        if isinstance(again.get("attributes", {}).get(hash), int):
                            again["attributes"] = again["attributes"] | {hash: again["attributes"][hash] ^ k << 8}
                    out.write(json.dumps(again) + "\n")
    return target


class TestSpeed(Learned):
    def test_time_grows_with_the_trace_and_no_faster(self) -> None:
        seconds = {}
        for times in [16, 128]:
            trace = repeated(self.trace("s01_sgd_mlp"), self.folder / f"time{times}", times)
            learned = self.folder / f"time{times}.json"
            begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            run("ttrace-infer", trace, "-o", learned, "--signatures", self.signatures, "-q")
            run("ttrace-check", trace, "-i", learned, "--signatures", self.signatures, "-q")
            seconds[times] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
        # Eight times the records. An exponent of 1.2 is 12; the clock is coarse and the machine shared.
        self.assertLess(seconds[128], 16 * seconds[16] + 0.2, seconds)


if __name__ == "__main__":
    unittest.main()
