#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TrainCheck's files, read and written again: nothing is lost, by Python's own reading of them."""
from __future__ import annotations

import collections
import gzip
import json
import math
import pathlib
import subprocess
import tempfile
import unittest

import golden

REWRITE = golden.BUILD / "test" / "rewrite"


class FileTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)

    def rewrite(self, *words, code: int = 0) -> str:
        done = subprocess.run([REWRITE, *map(str, words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def write(self, name: str, *lines: str) -> pathlib.Path:
        path = self.folder / name
        path.write_text("".join(line + "\n" for line in lines))
        return path


class Traces(FileTest):
    def test_every_golden_trace_comes_back(self):
        for name in golden.traces():
            with self.subTest(name):
                trace = golden.trace(name, self.folder)
                out = self.folder / "out" / name
                self.rewrite("trace", trace, out)
                self.assertEqual({path.name for path in out.iterdir()},
                                 {path.name for path in trace.iterdir()})
                for path in trace.iterdir():
                    lines = dict.fromkeys(path.read_text().splitlines())  # without copies, in order
                    again = (out / path.name).read_text().splitlines()
                    self.assertEqual(list(map(golden.parsed, again)),
                                     list(map(golden.parsed, lines)))

    def test_copies_of_lines_are_counted(self):
        trace = golden.trace("dup_head_s01", self.folder)
        lines = [line for path in trace.glob("trace_API*")
                 for line in path.read_text().splitlines()]
        counted = sum(count - 1 for count in collections.Counter(lines).values())
        self.assertEqual(counted, 124)
        self.assertEqual(self.rewrite("trace", trace, self.folder / "out"), "damage 124 0 0 0\n")

    def test_unusual_values_come_back(self):
        line = {"var_name": "w", "var_type": "T", "process_id": 1, "thread_id": 2, "time": 3,
                "meta_vars": {"a": {"b": {}}, "ranks": [0, [1]]}, "type": "state_change",
                "attributes": {"x": math.nan, "y": -math.inf, "z": -0.0, "big": 2**63 - 1,
                               "text": "\u2264\U0001f600\x00\"\\\ud800", "empty": [], "one": 1.0,
                               "tiny": 5e-324, "": None, "list": [{"a.b": None}]}}
        odd = dict(line, meta_vars={"a.b": 1, "a": {"b": 2}}, time=4)
        trace = self.folder / "trace"
        trace.mkdir()
        (trace / "proxy_log.json").write_text(f"{json.dumps(line)}\n{json.dumps(odd)}\n")
        self.assertEqual(self.rewrite("trace", trace, self.folder / "out"), "")
        again = (self.folder / "out" / "proxy_log.json").read_text().splitlines()
        self.assertEqual([golden.parsed(text) for text in again],
                         [golden.exact(line), golden.exact(odd)])


class Invariants(FileTest):
    def test_golden_files_come_back_to_the_byte(self):
        """In the order of their texts; among equal texts TrainCheck's order is random."""
        for path in sorted(golden.GOLDEN.glob("*.jsonl.gz")):
            kind = "rejected" if ".failed." in path.name else "invariants"
            for what in (kind, "fields") if kind == "invariants" else (kind,):
                with self.subTest(path.name, what=what):
                    out = self.folder / "out"
                    self.assertEqual(
                        self.rewrite(what, golden.unpacked(path.name, self.folder), out),
                        "faults 0 0 \n")
                    again = out.read_text().splitlines()
                    self.assertCountEqual(again, golden.lines(path.name))
                    texts = [json.loads(line) for line in again]
                    texts = [line.get("invariant", line)["text_description"] for line in texts]
                    self.assertEqual(texts, sorted(texts))

    def test_the_order_does_not_depend_on_the_file(self):
        lines = golden.lines("s02_adam_sched.inv.jsonl.gz")
        written = []
        for order in (lines, lines[::-1]):
            out = self.folder / "out"
            self.rewrite("invariants", self.write("in", *order), out)
            written.append(out.read_text())
        self.assertEqual(*written)

    def invariant(self, **changes) -> dict:
        return {"text_description": "t", "relation": "APIContainRelation",
                "params": [{"param_type": "APIParam", "api_full_name": "a.b.c"}],
                "precondition": {"pre_event": {"inverted": False,
                                               "preconditions": [{"clauses": "Unconditional"}]}},
                "num_positive_examples": 2, "num_negative_examples": 0, **changes}

    def clause(self, **changes) -> dict:
        clause = {"type": "exist", "prop_name": "p", "additional_path": "None",
                  "prop_dtype": "None", **changes}
        return {"g": {"inverted": True, "preconditions": [{"clauses": [clause]},
                                                          {"clauses": "Unconditional"}]}}

    def params(self) -> list[list[dict]]:
        variable = {"var_type": "torch.nn.Parameter", "attr_name": "grad"}
        return [
            [{"param_type": "APIParam", "api_full_name": "a", "exception": "ValueError"}],
            [{"param_type": "APIParam", "api_full_name": "a", "exception": None}],
            [{"param_type": "VarTypeParam", **variable, "pre_value": None,
              "post_value": "non_zero"}],
            [{"param_type": "VarTypeParam", **variable, "const_value": "NOT SERIALIZABLE: <NA>"}],
            [{"param_type": "VarTypeParam", **variable, "const_value": [1, [2.0, None]]}],
            [{"param_type": "VarNameParam", "var_name": "w", **variable,
              "pre_value": "above_zero", "post_value": "anything"}],
            [{"param_type": "InputOutputParam", "name": "max_norm", "index": None,
              "type": "<class 'float'>", "additional_path": None, "api_name": "f",
              "is_input": True}],
            [{"param_type": "InputOutputParam", "name": "input_tensors", "index": 1,
              "type": "torch.Tensor", "additional_path": ["shape", 0], "api_name": "f",
              "is_input": False}],
            [],
        ]

    def test_all_dialects_come_back_from_their_fields(self):
        made = [self.invariant(params=params) for params in self.params()]
        made += [self.invariant(precondition=precondition) for precondition in (
            {}, {"g": {"inverted": False, "preconditions": []}},
            self.clause(), self.clause(type="unequal", additional_path=["dtype", "x"]),
            self.clause(type="consistent", prop_dtype="MD_NONE"),
            self.clause(type="constant", values=[None, True, 1, 1.5, "x", [0]]))]
        out = self.folder / "out"
        self.rewrite("fields", self.write("in", *map(json.dumps, made)), out)
        self.assertCountEqual(out.read_text().splitlines(), map(json.dumps, made))

    def test_what_is_not_known_stays(self):
        made = [self.invariant(note={"a": [1]}), self.invariant(params=[
            {"param_type": "APIParam", "api_full_name": "a", "more": 1}]),
            self.invariant(precondition=self.clause(weight=0.5)),
            self.invariant(num_positive_examples=None), self.invariant(relation="Unknown")]
        out = self.folder / "out"
        self.rewrite("invariants", self.write("in", *map(json.dumps, made)), out)
        self.assertCountEqual(map(golden.parsed, out.read_text().splitlines()),
                              map(golden.exact, made))

    def test_lines_that_are_none_are_counted_with_the_first_reason(self):
        good = json.dumps(self.invariant())
        bad = ["{", json.dumps([1]), json.dumps(self.invariant(relation=None)),
               json.dumps(self.invariant(params={})), json.dumps(self.invariant(params=[{}])),
               json.dumps(self.invariant(params=[{"param_type": "Other"}])),
               json.dumps(self.invariant(precondition="Failed")),
               json.dumps(self.invariant(precondition=self.clause(type="maybe"))),
               json.dumps(self.invariant(precondition=self.clause(type="constant"))),
               json.dumps(self.invariant(num_positive_examples=-1))]
        out = self.folder / "out"
        said = self.rewrite("invariants", self.write("in", good, "", *bad, good), out)
        self.assertEqual(said, "faults 10 3 no JSON: at byte 2 it lacks a name\n")
        self.assertEqual(out.read_text().splitlines(), [good, good])
        for line, why in zip(bad[1:], ("no JSON object", "no text under 'relation'",
                                       "no list under 'params'", "no text under 'param_type'",
                                       "unknown param_type 'Other'",
                                       "no object under 'precondition'",
                                       "unknown type of clause 'maybe'", "no list under 'values'",
                                       "no number under 'num_positive_examples'")):
            said = self.rewrite("invariants", self.write("in", good, line), out)
            self.assertEqual(said, f"faults 1 2 {why}\n")

    def test_a_file_without_any_is_trouble(self):
        rejected = golden.lines("s01_sgd_mlp.failed.jsonl.gz")[0]
        for what, lines, said in (("invariants", [], "it is empty"),
                                  ("invariants", ["{}"], "line 1: no text under 'relation'"),
                                  ("invariants", [rejected], "a rejected hypothesis"),
                                  ("rejected", [json.dumps(self.invariant())], "failed_reason")):
            path = self.write("in", *lines)
            self.assertIn(said, self.rewrite(what, path, self.folder / "out", code=2))
            self.assertFalse((self.folder / "out").exists())
        self.rewrite("invariants", self.folder / "absent", self.folder / "out", code=2)


class Results(FileTest):
    def objects(self, path: pathlib.Path) -> list[dict]:
        """Concatenated objects, each of which begins in the first column."""
        texts = path.read_text().split("\n{")
        return [json.loads(text if number == 0 else "{" + text)
                for number, text in enumerate(texts) if text.strip()]

    def test_the_folder_is_traincheck_s(self):
        trace = golden.trace("s01_sgd_mlp", self.folder)
        lines = golden.lines("s01_sgd_mlp.inv.jsonl.gz")[:3]
        file = self.write("inv.json", *lines)
        out = self.folder / "out"
        self.rewrite("results", str(trace) + "/", file, out)
        self.assertEqual((out / "invariants.json").read_text(), file.read_text())
        folder = out / "s01_sgd_mlp"
        expected = list(map(json.loads, lines))
        self.assertEqual(self.objects(folder / "passed.log"), [
            {"invariant": expected[1], "check_passed": True, "triggered": True}])
        self.assertEqual(self.objects(folder / "not_triggered.log"), [
            {"invariant": expected[2], "check_passed": True, "triggered": False}])

        failed, = self.objects(folder / "failed.log")
        self.assertEqual(list(failed), ["invariant", "check_passed", "triggered", "detection_time",
                                        "detection_time_percentage", "trace"])
        self.assertEqual((failed["invariant"], failed["check_passed"], failed["triggered"]),
                         (expected[0], False, True))
        records = [json.loads(line) for path in trace.iterdir()
                   for line in path.read_text().splitlines()]
        flat = [self.flattened(record) for record in records]
        columns = {column for record in flat for column in record}
        last = json.loads(next(trace.glob("trace_API*")).read_text().splitlines()[-1])
        times = [record["time"] for record in records]
        self.assertEqual(failed["detection_time"], last["time"])
        self.assertAlmostEqual(failed["detection_time_percentage"],
                               (last["time"] - min(times)) / (max(times) - min(times)))
        self.assertEqual(len(failed["trace"]), 2)
        for row in failed["trace"]:
            self.assertEqual(set(row), columns)
        shown = {column: value for column, value in failed["trace"][1].items()
                 if not (isinstance(value, float) and math.isnan(value))}
        self.assertEqual(shown, self.flattened(last))

        self.assertEqual(json.loads((folder / "violations_summary.json").read_text()), {
            "first_violation_step": 3, "distinct_invariants_violated": 1, "violations": [
                {"display_name": expected[0]["text_description"],
                 "relation_type": expected[0]["relation"],
                 "first_step": 3, "last_step": 5, "occurrences": 2}]})

    def flattened(self, record: dict) -> dict:
        flat: dict = {}

        def add(prefix: str, value: dict) -> None:
            for key, member in value.items():
                whole = not prefix and key in ("args", "kwargs", "return_values")
                if isinstance(member, dict) and member and not whole:
                    add(prefix + key + ".", member)
                else:
                    flat[prefix + key] = member

        add("", record)
        return flat


class Signatures(FileTest):
    def test_golden_signatures_are_read(self):
        path = golden.unpacked("signatures.json.gz", self.folder)
        table = json.loads(gzip.decompress((golden.GOLDEN / "signatures.json.gz").read_bytes()))
        for name in ("torch.optim.adam.Adam.__init__", "torch.optim.adam.Adam.__init__@class",
                     "torch.amp.autocast_mode.autocast.__init__@class",
                     "torch.compiler.is_compiling", "torch._ops.TorchBindOpOverload.__call__",
                     "torch.cuda.<lambda>", "torch.amp.autocast_mode.autocast.__init__"):
            expected = "none\n" if table[name] is None else "".join(
                f"{row[0]} {'PNVKW'.index(row[1])} {json.dumps(row[2]) if len(row) > 2 else '-'}\n"
                for row in table[name])
            self.assertEqual(self.rewrite("signatures", path, name), expected)
        self.assertEqual(self.rewrite("signatures", path, "torch.nothing.at_all"), "none\n")

    def test_what_is_no_table_is_trouble(self):
        for text in ("", "[]", "{", '{"a": 1}', '{"a": [["x"]]}', '{"a": [["x", "Q"]]}',
                     '{"a": [[1, "N"]]}', '{"a": {"x": "N"}}'):
            said = self.rewrite("signatures", self.write("table", text), "a", code=2)
            self.assertIn("ttrace_agent.signatures", said)


if __name__ == "__main__":
    unittest.main()
