# SPDX-License-Identifier: Apache-2.0
"""What ttrace-diff says: the JSON document, the text, coverage, memory."""
from __future__ import annotations

import json
import subprocess
import unittest

from made_traces import DIFF, DIFFERS, SAME, TROUBLE, DiffTest, rank_json, step, values


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
                                        "message", "ranks", "evidence", "causes",
                                        "inherited", "computed_by"})
        self.assertIsNone(finding["computed_by"])
        self.assertEqual(finding["phase"], "forward")
        self.assertEqual(finding["slot"], "output.0")
        self.assertGreater(finding["score"], 1e5)
        self.assertIn("[0, 0]", finding["evidence"]["worst element"])
        self.assertFalse(finding["inherited"])

    def test_a_wrong_gradient_is_said_to_come_from_what_took_the_output(self):
        def taken(name: str, change=lambda records: None):
            """layers.1.fc's output goes into `loss`, and what follows it is the head."""
            records = step()
            output = next(i for i, entry in enumerate(records)
                          if entry["key"] == "it0/mb0/forward/layers.1.fc/output.0")
            head = next(i for i, entry in enumerate(records)
                        if entry["key"] == "it0/mb0/forward/head/output.0")
            for at, module in ((head + 1, "loss.cut"), (head + 2, "loss")):
                records.insert(at, {"key": f"it0/mb0/forward/{module}/input.0", "dtype": "float32",
                                    "shape": [8, 6], "alias_of": output})
            change({entry["key"]: entry for entry in records})
            return self.write(name, records)

        key = "it0/mb0/backward/layers.1.fc/grad_output.0"
        traces = [taken("one.trace"), taken("other.trace", lambda all: all[key].update(
            values=values(1, 48)))]
        report = self.report(*traces, code=DIFFERS)
        wanted = {"modules": ["loss"], "recorded": True,
                  "agrees": "it0/mb0/backward/head/grad_output.0"}
        self.assertEqual(report["findings"][0]["computed_by"], wanted)
        self.assertEqual(report["first"]["computed_by"], wanted)
        text = self.diff(*traces, code=DIFFERS).stdout
        self.assertIn(f"({key}, computed by the backward of `loss`): ", text.splitlines()[0])
        self.assertIn("  computed by the backward of what takes the output of `layers.1.fc`: `loss`"
                      "; the gradient before it, it0/mb0/backward/head/grad_output.0, agrees\n", text)
        # Without a record of what takes it: what comes next.
        plain = self.changed(lambda all: all[key].update(values=values(1, 48)))
        found = self.report(self.reference, plain, code=DIFFERS)["first"]["computed_by"]
        self.assertEqual((found["modules"], found["recorded"]), (["head"], False))

    def test_causes_are_below_their_finding(self):
        key = "it0/mb0/forward/head/output.0"
        candidate = self.changed(lambda all: all[key].update(
            values=all[key]["values"][24:] + all[key]["values"][:24]))
        cause, = self.report(self.reference, candidate, code=DIFFERS)["findings"][0]["causes"]
        self.assertEqual(set(cause), {"what", "evidence", "guess"})
        self.assertIn("two halves along dimension 0 swapped", cause["what"])
        self.assertFalse(cause["guess"])
        text = self.diff(self.reference, candidate, code=DIFFERS).stdout
        self.assertIn(f"  => {cause['what']} ({cause['evidence']})\n", text)

    def test_the_limits_of_the_theorem(self):
        report = self.report(self.reference, self.reference, "--bound", "theorem", code=SAME)
        self.assertEqual((report["mode"], report["weak"]), ("theorem", True))
        phases = report["coverage"]["phases"]  # two blocks: gradients of the first have passed both
        self.assertAlmostEqual(phases["backward"]["largest_limit"] / (4 * 1.03**2 * 2**-23), 1)
        self.assertAlmostEqual(phases["backward"]["smallest_limit"] / (4 * 2**-23), 1)
        self.assertIn("limits: theorem (weak)", self.diff(
            self.reference, self.reference, "--bound", "theorem", code=SAME).stdout)
        self.diff(self.reference, self.reference, "--bound", "theorem", "--rel", "1", code=TROUBLE)
        self.diff(self.reference, self.reference, "--bound", "cube", code=TROUBLE)

    def test_weak_limits_come_with_a_way_to_sharp_ones(self):
        text = self.diff(self.reference, self.reference, code=SAME).stdout
        self.assertIn("ttrace-verify --reference", text)
        self.assertIn(f"--pack --like {self.reference} -o PACK", text)
        text = self.diff(self.reference, self.reference, "--rel", "1e-6", code=SAME).stdout
        self.assertNotIn("ttrace-verify", text)

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


if __name__ == "__main__":
    unittest.main()
