# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff as a user runs it: exit codes, what is printed where, the JSON document, memory.

The traces are real files with made-up tensors, written by test/diff/make_trace.cpp.
"""
from __future__ import annotations

import copy
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
DIFF = BUILD / "tools" / "ttrace-diff"
INSPECT = BUILD / "tools" / "ttrace-inspect"
MAKE_TRACE = BUILD / "test" / "make_trace"

SAME, DIFFERS, TROUBLE = 0, 1, 2


def single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def values(seed: int, count: int) -> list[float]:
    source = random.Random(seed)
    return [single(source.gauss(0, 1)) for _ in range(count)]


def record(key: str, shape: list[int], numbers: list, dtype: str = "float32", **more) -> dict:
    return {"key": key, "dtype": dtype, "shape": shape, "values": numbers, **more}


def step(layers: int = 2) -> list[dict]:
    """A training step of an embedding, some blocks and a head, in execution order."""
    modules = ["embedding", *(f"layers.{i}.fc" for i in range(layers)), "head"]
    records = [record(f"it0/param/{name}.weight/value", [4, 6], values(100 + i, 24))
               for i, name in enumerate(modules)]
    records.append(record("it0/mb0/forward/@root/input.tokens", [8], list(range(8)), "int64"))
    records += [record(f"it0/mb0/forward/{name}/output.0", [8, 6], values(200 + i, 48))
                for i, name in enumerate(modules)]
    records.append(record("it0/mb0/forward/@root/output.0", [], [2.5]))
    records += [record(f"it0/mb0/backward/{name}/grad_output.0", [8, 6], values(300 + i, 48))
                for i, name in reversed(list(enumerate(modules)))]
    for i, name in enumerate(modules):
        records.append(record(f"it0/grad/{name}.weight/reduced", [4, 6], values(400 + i, 24)))
        records.append(record(f"it0/step/{name}.weight/param", [4, 6], values(500 + i, 24)))
    return records


def rank_json(layers: int = 2, world_size: int = 1, **more) -> dict:
    modules = ["embedding", *(f"layers.{i}.fc" for i in range(layers)), "head"]
    info = {"class": "Linear", "forward": "model.py:12", "expected": True, "calls": 1,
            "returned_tensor": True}
    container = {"class": "ModuleList", "expected": False, "calls": 0, "returned_tensor": False}
    return {
        "world_size": world_size,
        "modules": {**{name: dict(info) for name in modules}, "layers": container,
                    **{f"layers.{i}": {**info, "class": "Block", "expected": False}
                       for i in range(layers)}},
        "parameters": {f"{name}.weight": {"shape": [4, 6], "dtype": "float32", "trainable": True}
                       for name in modules},
        **more,
    }


def with_error(numbers: list[float], relative: float) -> list[float]:
    source = random.Random(9)
    return [single(value * (1 + relative * source.gauss(0, 1))) for value in numbers]


class DiffTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="ttrace-diff-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def write(self, name: str, records: list[dict], **rank) -> pathlib.Path:
        return self.write_ranks(name, [{"rank": 0, "rank_json": rank_json(**rank), "segments": [
            {"iteration": 0, "records": records}]}])

    def write_ranks(self, name: str, ranks: list[dict]) -> pathlib.Path:
        path = self.folder / name
        subprocess.run([MAKE_TRACE], input=json.dumps({"path": str(path), "ranks": ranks}),
                       text=True, check=True, timeout=60)
        return path

    def changed(self, change) -> pathlib.Path:
        """A candidate: the step after `change(records by key)`."""
        records = {entry["key"]: copy.deepcopy(entry) for entry in step()}
        change(records)
        return self.write("candidate.trace", list(records.values()))

    def diff(self, *arguments, code: int) -> subprocess.CompletedProcess:
        done = subprocess.run([DIFF, *map(str, arguments)], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, reference, candidate, *options, code: int) -> dict:
        done = self.diff(reference, candidate, "--json", "-", *options, code=code)
        return json.loads(done.stdout)


class ExitCodes(DiffTest):
    def setUp(self):
        super().setUp()
        self.reference = self.write("reference.trace", step())

    def check_first(self, candidate, key: str, kind: str, *options) -> dict:
        report = self.report(self.reference, candidate, *options, code=DIFFERS)
        self.assertEqual(report["verdict"], "differs")
        self.assertEqual((report["first"]["key"], report["first"]["kind"]), (key, kind))
        return report

    def test_a_trace_is_the_same_as_itself(self):
        done = self.diff(self.reference, self.reference, code=SAME)
        self.assertTrue(done.stdout.startswith("same, up to round-off: 22 of 22 expected tensors"),
                        done.stdout)
        self.assertEqual(done.stderr, "")

    def test_round_off_is_the_same(self):
        key = "it0/mb0/forward/layers.0.fc/output.0"
        candidate = self.changed(
            lambda all: all[key].update(values=with_error(all[key]["values"], 1e-7)))
        report = self.report(self.reference, candidate, code=SAME)
        self.assertEqual(report["coverage"]["compared"], report["coverage"]["expected"])
        line = next(line for line in report["tensors"] if line["key"] == key)
        self.assertFalse(line["bit_equal"])
        self.assertGreater(line["error"], 0)

    def test_a_value(self):
        key = "it0/mb0/forward/layers.1.fc/output.0"
        candidate = self.changed(lambda all: all[key].update(
            values=[2 * value for value in all[key]["values"]]))
        report = self.check_first(candidate, key, "over_limit")
        self.assertEqual(report["first"]["module"], "layers.1.fc")
        self.assertEqual(report["first"]["class"], "Linear")
        text = self.diff(self.reference, candidate, code=DIFFERS).stdout
        self.assertIn("differs: the first module that diverges is `layers.1.fc` (Linear, "
                      "model.py:12), in the forward pass", text)
        self.assertIn("a factor of exactly 2", text)

    def test_a_shape(self):
        key = "it0/mb0/forward/head/output.0"
        candidate = self.changed(lambda all: all[key].update(shape=[16, 3]))
        self.check_first(candidate, key, "shape_differs")

    def test_a_class_of_type(self):
        key = "it0/mb0/forward/head/output.0"
        candidate = self.changed(lambda all: all[key].update(dtype="int64", values=[1] * 48))
        self.check_first(candidate, key, "dtype_differs")

    def test_a_missing_tensor(self):
        key = "it0/mb0/backward/head/grad_output.0"
        candidate = self.changed(lambda all: all.pop(key))
        self.check_first(candidate, key, "missing")

    def test_an_extra_tensor(self):
        key = "it0/mb0/forward/extra/output.0"
        candidate = self.changed(lambda all: all.update({key: record(key, [2], [1, 2])}))
        self.check_first(candidate, key, "unexpected")

    def test_a_nan(self):
        key = "it0/grad/head.weight/reduced"
        candidate = self.changed(lambda all: all[key]["values"].__setitem__(3, "nan"))
        self.check_first(candidate, key, "nonfinite", "--rel", "1e9")

    def test_an_integer(self):
        key = "it0/mb0/forward/@root/input.tokens"
        candidate = self.changed(lambda all: all[key]["values"].__setitem__(3, 77))
        self.check_first(candidate, key, "not_equal", "--rel", "1e9")

    def test_a_start_weight(self):
        key = "it0/param/layers.0.fc.weight/value"
        candidate = self.changed(lambda all: all[key]["values"].__setitem__(0, 0.125))
        self.check_first(candidate, key, "not_equal")

    def test_a_lost_layer_is_named_as_a_whole(self):
        def lose(records):
            for key in [key for key in records if "layers.1." in key]:
                del records[key]
        report = self.report(self.reference, self.changed(lose), code=DIFFERS)
        self.assertEqual(report["first"]["module"], "layers.1")
        self.assertEqual(len(report["findings"]), 1)

    def test_two_models_with_something_in_common_differ(self):
        larger = self.write("larger.trace", step(layers=3), layers=3)
        report = self.report(self.reference, larger, code=DIFFERS)
        self.assertEqual(report["first"]["kind"], "unexpected")
        self.assertEqual(report["first"]["module"], "layers.2")

    def test_two_models_with_nothing_in_common_are_trouble(self):
        other = self.write("other.trace", [record("it0/mb0/forward/x/output.0", [1], [1])])
        done = self.diff(self.reference, other, code=TROUBLE)
        self.assertIn("no tensor in common", done.stderr)

    def test_a_rank_that_is_not_there(self):
        candidate = self.write_ranks("candidate.trace", [
            {"rank": 0, "rank_json": rank_json(world_size=2),
             "segments": [{"iteration": 0, "records": step()}]}])
        report = self.report(self.reference, candidate, code=DIFFERS)
        self.assertEqual(report["first"]["kind"], "incomplete_trace")
        self.assertIsNone(report["first"]["key"])
        self.assertIn("rank 1 of 2", report["first"]["message"])

    def test_a_rank_that_died(self):
        candidate = self.write_ranks("candidate.trace", [
            {"rank": 0, "rank_json": rank_json(),
             "segments": [{"iteration": 0, "records": step(), "complete": False}]}])
        report = self.report(self.reference, candidate, code=DIFFERS)
        self.assertEqual(report["first"]["kind"], "incomplete_trace")

    def test_a_rank_whose_step_ended_in_an_exception(self):
        events = [{"what": "exception", "where": "iteration 0", "why": "ValueError()", "count": 1}]
        report = self.report(self.write("a.trace", step(), events=events),
                             self.write("b.trace", step()), code=DIFFERS)
        self.assertEqual(report["findings"][0]["kind"], "incomplete_trace")
        self.assertIn("by ValueError()", report["findings"][0]["message"])

    def test_an_optimizer_that_updates_what_nobody_sees(self):
        events = [{"what": "not recorded", "where": "optimizer", "why": "it updates more",
                   "count": 1}]
        one = self.write("one.trace", step(), events=events)
        self.assertIn("it updates more", self.report(one, one, code=TROUBLE)["message"])

    def test_a_later_iteration_from_other_parameters_is_trouble(self):
        later = json.loads(json.dumps(step()).replace("it0/", "it1/"))
        drifted = copy.deepcopy(later)
        for entry in drifted:
            if "/param/" in entry["key"]:
                entry["values"][0] = single(entry["values"][0] * (1 + 1e-6))
        one, other = ({"rank": 0, "rank_json": rank_json(), "segments": [
            {"iteration": 0, "records": step()}, {"iteration": 1, "records": records}]}
            for records in (later, drifted))
        traces = [self.write_ranks("one.trace", [one]), self.write_ranks("other.trace", [other])]
        self.diff(*traces, code=SAME)
        self.diff(traces[0], traces[0], "--iteration", 1, code=SAME)
        self.assertIn("begins with other parameters",
                      self.diff(*traces, "--iteration", 1, code=TROUBLE).stderr)
        self.diff(*traces, "--iteration", 1, "--rel", "1e-5", code=SAME)

    def test_no_limit(self):
        self.diff(self.reference, self.reference, "--rel", "nan", code=TROUBLE)

    def test_no_common_iteration(self):
        records = json.loads(json.dumps(step()).replace("it0/", "it5/"))
        candidate = self.write_ranks("candidate.trace", [
            {"rank": 0, "rank_json": rank_json(),
             "segments": [{"iteration": 5, "records": records}]}])
        done = self.diff(self.reference, candidate, code=TROUBLE)
        self.assertIn("no iteration is in both", done.stderr)
        self.assertIn("the candidate has 5", done.stderr)

    def test_an_iteration_that_is_not_there(self):
        done = self.diff(self.reference, self.reference, "--iteration", 3, code=TROUBLE)
        self.assertIn("iteration 3", done.stderr)

    def test_a_filter_that_matches_nothing(self):
        done = self.diff(self.reference, self.reference, "--filter", "*/nothing/*", code=TROUBLE)
        self.assertIn("*/nothing/*", done.stderr)

    def test_a_missing_trace(self):
        done = self.diff(self.reference, self.folder / "none.trace", code=TROUBLE)
        self.assertTrue(done.stderr.startswith("ttrace-diff: "), done.stderr)
        self.assertIn("none.trace", done.stderr)

    def test_a_misspelt_option(self):
        done = self.diff(self.reference, self.reference, "--iteratoin", 0, code=TROUBLE)
        self.assertIn("did you mean --iteration?", done.stderr)

    def test_a_truncated_segment(self):
        candidate = self.changed(lambda all: None)
        segment = candidate / "rank00000" / "it000000.h5"
        segment.write_bytes(segment.read_bytes()[:5000])
        done = self.diff(self.reference, candidate, code=TROUBLE)
        self.assertIn("it000000.h5", done.stderr)

    def test_a_foreign_file(self):
        candidate = self.changed(lambda all: None)
        (candidate / "rank00000" / "it000000.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(4096))
        self.diff(self.reference, candidate, code=TROUBLE)

    def test_a_backend_that_is_not_there(self):
        done = subprocess.run([DIFF, self.reference, self.reference, "--backend", "cuda"],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != SAME:  # a machine with a GPU and a build for it
            self.assertEqual(done.returncode, TROUBLE)
            self.assertIn("--backend cpu", done.stderr)
        self.diff(self.reference, self.reference, "--backend", "abacus", code=TROUBLE)


class Report(DiffTest):
    def setUp(self):
        super().setUp()
        self.reference = self.write("reference.trace", step())

    def test_the_document_has_its_members(self):
        report = self.report(self.reference, self.reference, code=SAME)
        self.assertEqual((report["format"], report["version"]), ("ttrace-report", 1))
        self.assertEqual(report["verdict"], "same")
        self.assertIsNone(report["first"])
        self.assertEqual(report["findings"], [])
        self.assertEqual(report["mode"], "bound")
        self.assertTrue(report["weak"])
        phases = report["coverage"]["phases"]
        self.assertEqual({name: phase["expected"] for name, phase in phases.items()},
                         {"param": 4, "forward": 6, "backward": 4, "grad": 4, "step": 4})
        self.assertAlmostEqual(phases["forward"]["smallest_limit"], 4 * 2**-23)
        self.assertEqual(len(report["tensors"]), 22)

    def test_a_finding_has_its_members(self):
        candidate = self.changed(
            lambda all: all["it0/mb0/forward/head/output.0"]["values"].__setitem__(0, 50))
        report = self.report(self.reference, candidate, code=DIFFERS)
        finding = report["findings"][0]
        self.assertEqual(set(finding), {"kind", "key", "module", "phase", "slot", "score",
                                        "message", "ranks", "evidence", "inherited"})
        self.assertEqual(finding["phase"], "forward")
        self.assertEqual(finding["slot"], "output.0")
        self.assertGreater(finding["score"], 1e5)
        self.assertIn("[0, 0]", finding["evidence"]["worst element"])
        self.assertFalse(finding["inherited"])

    def test_trouble_is_a_document_too(self):
        done = self.diff(self.reference, self.folder / "none.trace", "--json", "-", code=TROUBLE)
        report = json.loads(done.stdout)
        self.assertEqual(report["verdict"], "trouble")
        self.assertIn("none.trace", report["message"])
        self.assertEqual(report["coverage"]["compared"], 0)

    def test_a_file_gets_the_document_and_stdout_the_text(self):
        path = self.folder / "report.json"
        done = self.diff(self.reference, self.reference, "--json", path, code=SAME)
        self.assertIn("same, up to round-off", done.stdout)
        self.assertEqual(json.loads(path.read_text())["verdict"], "same")

    def test_quiet_prints_nothing(self):
        self.assertEqual(self.diff(self.reference, self.reference, "-q", code=SAME).stdout, "")

    def test_verbose_lists_every_tensor(self):
        text = self.diff(self.reference, self.reference, "-v", code=SAME).stdout
        for entry in step():
            self.assertIn(entry["key"], text)

    def test_a_filter_narrows_what_is_expected(self):
        report = self.report(self.reference, self.reference, "--filter", "*/forward/head/*",
                             code=SAME)
        self.assertEqual(report["coverage"]["expected"], 1)

    def test_what_neither_run_captured_is_listed_with_the_reason(self):
        records = [entry for entry in step() if entry["key"] != "it0/mb0/forward/head/output.0"]
        events = [{"what": "hook failed", "where": "head", "why": "out of memory", "count": 1}]
        one = self.write("one.trace", records, events=events)
        report = self.report(one, one, code=SAME)
        coverage = report["coverage"]
        self.assertEqual((coverage["compared"], coverage["expected"]), (21, 22))
        self.assertEqual(coverage["not_captured"],
                         [{"phase": "forward", "module": "head", "slot": "output.0",
                           "reason": "hook failed: out of memory"}])
        self.assertIn("21 of 22", self.diff(one, one, code=SAME).stdout)

    def test_updates_that_nobody_recorded_are_trouble(self):
        passes = [entry for entry in step() if "/mb0/" in entry["key"] or "/param/" in entry["key"]]
        one = self.write("one.trace", passes)
        report = self.report(one, one, code=TROUBLE)
        self.assertEqual(report["verdict"], "trouble")
        self.assertIn("of 4 trainable parameters, first `embedding.weight`", report["message"])
        self.assertIn("neither gradient nor update", self.diff(one, one, code=TROUBLE).stdout)
        self.diff(one, one, "--filter", "*/forward/*", code=SAME)

    def test_one_parameter_that_nobody_recorded_is_trouble(self):
        kept = [entry for entry in step() if "head.weight" not in entry["key"]]
        one = self.write("one.trace", kept)
        self.assertIn("`head.weight`", self.diff(one, one, code=TROUBLE).stdout)
        gradient = next(entry for entry in step() if entry["key"] == "it0/grad/head.weight/reduced")
        two = self.write("two.trace", [*kept, gradient])
        self.diff(two, two, code=SAME)

    def test_forward_passes_alone_expect_no_updates(self):
        passes = [entry for entry in step()
                  if "/forward/" in entry["key"] or "/param/" in entry["key"]]
        one = self.write("one.trace", passes)
        coverage = self.report(one, one, code=SAME)["coverage"]
        self.assertEqual(coverage["compared"], coverage["expected"])

    def test_later_iterations_are_shown_and_not_judged(self):
        later = json.loads(json.dumps(step()).replace("it0/", "it1/"))
        for entry in later:
            if "forward/head" in entry["key"]:
                entry["values"] = [1.5 * value for value in entry["values"]]
        ranks = [{"rank": 0, "rank_json": rank_json(),
                  "segments": [{"iteration": 0, "records": step()},
                               {"iteration": 1, "records": records}]}
                 for records in (json.loads(json.dumps(step()).replace("it0/", "it1/")), later)]
        reference = self.write_ranks("two.trace", ranks[:1])
        candidate = self.write_ranks("changed.trace", ranks[1:])
        report = self.report(reference, candidate, code=SAME)
        self.assertEqual(report["later_iterations"][0]["iteration"], 1)
        self.assertAlmostEqual(
            report["later_iterations"][0]["largest_errors"]["forward"]["error"], 0.5, places=6)
        self.report(reference, candidate, "--iteration", "1", code=DIFFERS)

    def test_aliases_on_both_sides_count_and_are_not_compared_again(self):
        records = step()
        target = next(i for i, entry in enumerate(records)
                      if entry["key"] == "it0/mb0/forward/head/output.0")
        alias = {"dtype": "float32", "shape": [8, 6], "alias_of": target}
        records.insert(target + 1, {"key": "it0/mb0/forward/wrapper/output.0", **alias})
        records.insert(target + 2, {"key": "it0/mb0/forward/loss/input.0", **alias})
        one = self.write("one.trace", records)
        report = self.report(one, one, code=SAME)
        self.assertEqual(report["coverage"]["compared"], 23)
        self.assertEqual(report["counts"]["data_flow_edges"], 1)
        note = next(line["note"] for line in report["tensors"] if "wrapper" in line["key"])
        self.assertIn("head/output.0", note)


class Sharded(DiffTest):
    """Two tensor-parallel ranks: layers.0.fc is cut by columns, the rest is replicated."""

    CUT = "it0/mb0/forward/layers.0.fc/output.0"

    def candidate(self, change=lambda rank, records: None) -> pathlib.Path:
        ranks = []
        for rank in range(2):
            records = copy.deepcopy(step())
            for entry in records:
                if entry["key"] == self.CUT:
                    rows = [entry["values"][6 * row:6 * row + 6] for row in range(8)]
                    entry["values"] = [value for row in rows
                                       for value in row[3 * rank:3 * rank + 3]]
                    entry["shape"] = [8, 3]
            change(rank, {entry["key"]: entry for entry in records})
            ranks.append({"rank": rank,
                          "rank_json": rank_json(world_size=2, axes=[
                              {"name": "tp", "size": 2, "coord": rank}]),
                          "segments": [{"iteration": 0, "records": records}]})
        return self.write_ranks("sharded.trace", ranks)

    def setUp(self):
        super().setUp()
        self.reference = self.write("reference.trace", step())

    def test_shards_are_put_together(self):
        report = self.report(self.reference, self.candidate(), code=SAME)
        self.assertEqual(report["coverage"]["compared"], 22)
        layouts = {line["tensors"]: line["layout"] for line in report["layouts"]}
        self.assertEqual(layouts["forward/layers.*.fc/output.0"], "- [tp]")

    def test_a_wrong_rank_is_named(self):
        def double(rank, records):
            if rank == 1:
                records[self.CUT]["values"] = [2 * v for v in records[self.CUT]["values"]]
        report = self.report(self.reference, self.candidate(double), code=DIFFERS)
        self.assertEqual(report["first"]["key"], self.CUT)
        self.assertEqual(report["findings"][0]["ranks"], [1])
        self.assertIn("a factor of exactly 2, on rank 1 only", report["first"]["message"])

    def test_replicas_that_differ_are_a_conflict(self):
        key = "it0/grad/head.weight/reduced"

        def nudge(rank, records):
            if rank == 1:
                records[key]["values"][5] += 1e-6
        report = self.report(self.reference, self.candidate(nudge), code=DIFFERS)
        self.assertEqual((report["first"]["key"], report["first"]["kind"]),
                         (key, "replica_conflict"))

    def test_a_sharded_trace_without_declarations_is_the_same_as_itself(self):
        candidate = self.candidate()
        report = self.report(candidate, candidate, code=SAME)
        self.assertEqual(report["coverage"]["compared"], report["coverage"]["expected"])


class DataParallel(DiffTest):
    """Two data-parallel ranks with half of the samples each, and a module that all samples share."""

    SHARED = "it0/mb0/backward/positions/grad_output.0"
    LOSS = "it0/mb0/forward/@root/output.0"
    REDUCED = "it0/grad/positions.weight/reduced"

    @staticmethod
    def step() -> list[dict]:
        return [*step(), record("it0/mb0/forward/positions/output.0", [3, 6], values(7, 18)),
                record(DataParallel.SHARED, [3, 6], values(8, 18)),
                record(DataParallel.REDUCED, [3, 6], values(9, 18))]

    def candidate(self, change=lambda rank, records: None) -> pathlib.Path:
        """Losses are means over local samples, so activation gradients are twice as large."""
        ranks = []
        for rank in range(2):
            records = {entry["key"]: entry for entry in copy.deepcopy(self.step())}
            for key, entry in records.items():
                if entry["shape"][:1] == [8]:
                    half = len(entry["values"]) // 2
                    entry["values"] = entry["values"][half * rank:half * (rank + 1)]
                    entry["shape"] = [4, *entry["shape"][1:]]
                if "/backward/" in key:
                    entry["values"] = [2 * value for value in entry["values"]]
            addend = values(50, 18)
            whole = records[self.SHARED]["values"]
            records[self.SHARED]["values"] = addend if rank == 0 else [
                single(value - other) for value, other in zip(whole, addend)]
            records[self.LOSS]["values"] = [2.0 + rank]
            change(rank, records)
            ranks.append({"rank": rank, "rank_json": rank_json(world_size=2, axes=[
                {"name": "dp", "size": 2, "coord": rank}]),
                "segments": [{"iteration": 0, "records": list(records.values())}]})
        return self.write_ranks("dp.trace", ranks)

    def setUp(self):
        super().setUp()
        self.reference = self.write("reference.trace", self.step())

    def test_local_losses_shared_gradients_and_the_seed_are_understood(self):
        report = self.report(self.reference, self.candidate(), code=SAME)
        self.assertEqual(report["coverage"]["compared"], 25)
        seed = report["gradient_seeds"][0]
        self.assertEqual((seed["factor"], seed["meaning"]), (2.0, "dp"))

    def test_a_wrong_local_loss_is_found(self):
        def change(rank, records):
            records[self.LOSS]["values"] = [2.0 + 1.25 * rank]
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        self.assertEqual(report["first"]["key"], self.LOSS)

    def test_addends_with_a_wrong_sum_are_found(self):
        def change(rank, records):
            records[self.SHARED]["values"][0] += rank
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        self.assertEqual(report["first"]["key"], self.SHARED)

    def test_addends_that_nobody_adds_up_are_found(self):
        def change(rank, records):
            del records[self.REDUCED]
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        kinds = {entry["key"]: entry["kind"] for entry in report["findings"]}
        self.assertEqual(kinds[self.SHARED], "partial_incomplete")

    def test_gradients_that_were_not_reduced_are_found(self):
        key = "it0/grad/head.weight/reduced"

        def change(rank, records):
            records[key]["values"] = [2 * value for value in records[key]["values"]]
        report = self.report(self.reference, self.candidate(change), code=DIFFERS)
        self.assertEqual(report["first"]["key"], key)
        self.assertIn("a factor of exactly 2", report["first"]["message"])


class Memory(DiffTest):
    def test_half_a_gibibyte_is_compared_in_a_window(self):
        shape = [8192, 128, 128]  # 512 MiB of float32
        key = "it0/mb0/forward/big/output.0"
        big = {"key": key, "dtype": "float32", "shape": shape, "zeros": True}
        # Another record in front and another type: the hashes differ, so the bytes are read.
        small = {**big, "shape": [8192, 128, 64]}
        reference = self.write("reference.trace", [big])
        halves = [{"rank": rank, "rank_json": {"world_size": 2, "axes": [
            {"name": "tp", "size": 2, "coord": rank}]},
            "segments": [{"iteration": 0, "records": [{**small, "layout": json.dumps(
                {"dims": "- - [tp]", "shape": shape})}]}]} for rank in range(2)]
        candidate = self.write_ranks("candidate.trace", halves)
        program = ("import os, resource, subprocess, sys\n"
                   "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
                   "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n")
        done = subprocess.run(["python3", "-c", program, str(DIFF), str(reference),
                               str(candidate)], capture_output=True, text=True, timeout=280)
        code, peak_kib = map(int, done.stdout.split())
        self.assertEqual(code, SAME, done.stderr)
        self.assertLess(peak_kib, 72 * 1024)


class Inspect(DiffTest):
    def setUp(self):
        super().setUp()
        self.trace = self.write("one.trace", step())

    def inspect(self, *arguments, code: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run([INSPECT, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_contents(self):
        contents = json.loads(self.inspect(self.trace, "--json").stdout)
        self.assertEqual(contents["phases"]["forward"]["tensors"], 6)
        self.assertEqual(contents["ranks"][0]["modules"], 7)
        self.assertNotIn("tensors", contents)
        self.assertIn("forward", self.inspect(self.trace).stdout)

    def test_a_filter_lists_tensors(self):
        contents = json.loads(self.inspect(self.trace, "--json", "--phase", "forward",
                                           "--module", "layers.*").stdout)
        self.assertEqual([tensor["key"] for tensor in contents["tensors"]],
                         [f"it0/mb0/forward/layers.{i}.fc/output.0" for i in range(2)])

    def test_one_tensor(self):
        key = "it0/mb0/forward/head/output.0"
        shard = json.loads(self.inspect(self.trace, key, "--json").stdout)["shards"][0]
        numbers = next(entry["values"] for entry in step() if entry["key"] == key)
        self.assertAlmostEqual(shard["norm"], sum(v * v for v in numbers) ** 0.5, places=9)
        self.assertEqual(shard["max"], max(numbers))
        self.assertIn("norm", self.inspect(self.trace, key).stdout)

    def test_get_writes_what_numpy_reads(self):
        key = "it0/mb0/forward/head/output.0"
        path = self.folder / "x.npy"
        self.inspect(self.trace, "--get", key, "-o", path)
        data = path.read_bytes()
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        length = struct.unpack("<H", data[8:10])[0]
        self.assertEqual((10 + length) % 64, 0)
        header = eval(data[10:10 + length].decode(), {"__builtins__": {}})
        self.assertEqual(header, {"descr": "<f4", "fortran_order": False, "shape": (8, 6)})
        numbers = next(entry["values"] for entry in step() if entry["key"] == key)
        self.assertEqual(list(struct.unpack("<48f", data[10 + length:])), numbers)

    def test_a_key_that_is_not_there(self):
        done = self.inspect(self.trace, "it0/mb0/forward/head/output.7", code=TROUBLE)
        self.assertIn("it0/mb0/forward/head/output.0", done.stderr)

    def test_no_key_at_all(self):
        self.assertIn("is no key", self.inspect(self.trace, "nonsense", code=TROUBLE).stderr)


if __name__ == "__main__":
    unittest.main()
