# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff as a user runs it: exit codes, and what is printed where."""
from __future__ import annotations

import copy
import json
import subprocess
import unittest

from made_traces import (DIFF, DIFFERS, SAME, TROUBLE, DiffTest, rank_json, record,
                         single, step, values, with_error)


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

    def test_how_files_are_read_does_not_matter(self):
        key = "it0/mb0/forward/layers.1.fc/output.0"
        candidate = self.changed(lambda all: all[key].update(
            values=[2 * value for value in all[key]["values"]]))
        expected = self.report(self.reference, candidate, code=DIFFERS)
        for options in (["--no-mmap"], ["--no-trust-hash"], ["--trust-hash"], ["--no-mmap", "--no-trust-hash"]):
            with self.subTest(options=options):
                report = self.report(self.reference, candidate, *options, code=DIFFERS)
                self.assertEqual(report["first"], expected["first"])
                self.assertEqual(report["coverage"], expected["coverage"])

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

    def test_a_region_that_the_candidate_compiled(self):
        inner = "layers.0.fc"
        kept = [entry for entry in step() if f"/{inner}/" not in entry["key"]]
        events = [{"what": "compiled", "where": "layers.0", "why": "not seen", "count": 1}]
        report = self.report(self.reference, self.write("c.trace", kept, events=events), code=SAME)
        self.assertEqual({(entry["phase"], entry["module"])
                          for entry in report["coverage"]["not_captured"]},
                         {("forward", inner), ("backward", inner)})
        # Without that reason, or in another region, it is missing.
        self.diff(self.reference, self.write("m.trace", kept), code=DIFFERS)
        events[0]["where"] = "layers.1"
        self.diff(self.reference, self.write("o.trace", kept, events=events), code=DIFFERS)

    def test_a_filtered_capture_is_told(self):
        kept = [entry for entry in step() if "/forward/" in entry["key"]]
        candidate = self.write_ranks("f.trace", [{"rank": 0, "rank_json": rank_json(), "segments": [
            {"iteration": 0, "records": kept}]}])
        document = json.loads((candidate / "trace.json").read_text())
        document["options"] = {"filters": ["forward/*"]}
        document["exit_code"] = 3
        (candidate / "trace.json").write_text(json.dumps(document))
        text = self.diff(self.reference, candidate, code=DIFFERS).stdout
        self.assertIn('--filter ["forward/*"]', text)
        self.assertIn("exit code 3", text)

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


if __name__ == "__main__":
    unittest.main()
