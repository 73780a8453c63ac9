# SPDX-License-Identifier: Apache-2.0
"""--traincheck-compat against what TrainCheck 0.2.0 made of the same traces (test/golden)."""
from __future__ import annotations

import collections
import json
import pathlib
import subprocess
import tempfile
import unittest

import golden

INFER = golden.BUILD / "tools/ttrace-infer"
CHECK = golden.BUILD / "tools/ttrace-check"
# Results by name: of one trace, or of several at once.
TOGETHER = {
    "s02_rerun": ["s02_adam_sched", "rerun_s02_adam_sched"],
    "s01_b03_b09": ["s01_sgd_mlp", "b03_frozen", "b09_no_backward"],
}
HEALTHY = ["s01_sgd_mlp", "s02_adam_sched", "s03_tiny_lm", "s05_amp_bf16", "m3_sgd_mlp"]
# Whose invariants each trace was checked with.
CHECKED = {
    "b01_no_zero_grad": "s01_sgd_mlp", "b02_stale_params": "s01_sgd_mlp", "b03_frozen": "s01_sgd_mlp",
    "b09_no_backward": "s01_sgd_mlp", "b05_wrong_dtype": "s05_amp_bf16", "b07_sched_first": "s02_adam_sched",
    "rerun_s02_adam_sched": "s02_adam_sched",
    **{f"self_{name}": name for name in HEALTHY if name != "m3_sgd_mlp"},
}
# TrainCheck judges at random which of a function's calls it looks at from the 21st on; we look at all.
SAMPLED = {
    "CrossEntropyLoss.forward() always calls functional.cross_entropy()",
    "CrossEntropyLoss.forward() always calls _reduction.get_enum()",
    "Dropout.forward() always calls functional.dropout()",
}

folder = tempfile.TemporaryDirectory()
PLACE = pathlib.Path(folder.name)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in arguments], capture_output=True, text=True)


def hashable(value: object) -> object:
    if isinstance(value, dict):
        return tuple(sorted((key, hashable(member)) for key, member in value.items()))
    if isinstance(value, list):
        return ("list", *map(hashable, value))
    return (type(value).__name__, value)


def clause(entry: dict) -> tuple:
    values = frozenset(hashable(value) for value in entry.get("values", []))
    return entry["type"], entry["prop_name"], str(entry["additional_path"]), entry["prop_dtype"], values


def condition(groups: dict) -> object:
    """Clauses, and the conjunctions of a disjunction, are sets."""
    out = {}
    for group, entry in groups.items():
        any_of = frozenset(every["clauses"] if isinstance(every["clauses"], str) else frozenset(map(clause, every["clauses"]))
                           for every in entry["preconditions"])
        out[group] = (entry["inverted"], any_of)
    return out


def identity(invariant: dict) -> tuple:
    params = [hashable(param) for param in invariant["params"]]
    # Which of two variables is the first depends on the order of files (os.listdir there).
    return invariant["relation"], tuple(sorted(params) if invariant["relation"] == "ConsistencyRelation" else params)


def by_identity(lines: list[str]) -> dict[tuple, dict]:
    invariants = [json.loads(line) for line in lines]
    found = {identity(invariant): invariant for invariant in invariants}
    assert len(found) == len(invariants)
    return found


def counts(invariant: dict) -> tuple[int, int]:
    return invariant["num_positive_examples"], invariant["num_negative_examples"]


class Inference(unittest.TestCase):
    def test_equal_as_sets(self) -> None:
        signatures = golden.unpacked("signatures.json.gz", PLACE)
        for name in [*HEALTHY, *TOGETHER]:
            with self.subTest(name):
                output, failed = PLACE / f"{name}.json", PLACE / f"{name}.failed"
                traces = [golden.trace(trace, PLACE) for trace in TOGETHER.get(name, [name])]
                result = run(INFER, *traces, "-o", output, "--failed", failed, "--signatures", signatures, "--traincheck-compat")
                self.assertEqual(result.returncode, 0, result.stderr)
                theirs = by_identity(golden.lines(f"{name}.inv.jsonl.gz"))
                ours = by_identity(output.read_text().splitlines())
                self.assertEqual(theirs.keys(), ours.keys())
                for key, invariant in theirs.items():
                    other, text = ours[key], invariant["text_description"]
                    self.assertEqual(condition(invariant["precondition"]), condition(other["precondition"]), text)
                    self.assertEqual(text, other["text_description"])
                    expected = counts(invariant)
                    if name == "m3_sgd_mlp" and text in SAMPLED and expected == (20, 0):
                        expected = (24, 0)  # 8 batches an epoch, three epochs
                    self.assertEqual(counts(other), expected, text)
                self.compare_rejected(name, failed)

    def compare_rejected(self, name: str, ours: pathlib.Path) -> None:
        """Hypotheses that did not become invariants, with the reason and the counts."""
        if not (golden.GOLDEN / f"{name}.failed.jsonl.gz").exists():
            return

        def read(lines: list[str]) -> collections.Counter:
            entries = [json.loads(line) for line in lines]
            return collections.Counter((entry["failed_reason"], identity(entry["invariant"]), *counts(entry)) for entry in entries)

        theirs, mine = read(golden.lines(f"{name}.failed.jsonl.gz")), read(ours.read_text().splitlines())
        self.assertEqual(theirs, mine)

    def test_order_of_files_does_not_matter_for_one_process(self) -> None:
        """Both files of a trace under names that sort the other way round."""
        signatures = golden.unpacked("signatures.json.gz", PLACE)
        name = "s01_sgd_mlp"
        turned = PLACE / "turned"
        turned.mkdir()
        for number, path in enumerate(sorted(golden.trace(name, PLACE).iterdir(), reverse=True)):
            (turned / f"trace_{number}_{path.name}").write_bytes(path.read_bytes())
        output = PLACE / "turned.json"
        self.assertEqual(run(INFER, turned, "-o", output, "--signatures", signatures, "--traincheck-compat").returncode, 0)
        theirs = by_identity(golden.lines(f"{name}.inv.jsonl.gz"))
        self.assertEqual({key: counts(entry) for key, entry in theirs.items()},
                         {key: counts(entry) for key, entry in by_identity(output.read_text().splitlines()).items()})

    def test_one_relation(self) -> None:
        output = PLACE / "one.json"
        result = run(INFER, golden.trace("s01_sgd_mlp", PLACE), "-o", output, "--relation", "ThresholdRelation",
                     "DistinctArgumentRelation", "--traincheck-compat", "--signatures", golden.unpacked("signatures.json.gz", PLACE))
        self.assertEqual(result.returncode, 0, result.stderr)
        theirs = [json.loads(line)["relation"] for line in golden.lines("s01_sgd_mlp.inv.jsonl.gz")]
        ours = [json.loads(line)["relation"] for line in output.read_text().splitlines()]
        self.assertEqual(len(ours), sum(relation in ("ThresholdRelation", "DistinctArgumentRelation") for relation in theirs))
        result = run(INFER, golden.trace("s01_sgd_mlp", PLACE), "-o", output, "--relation", "Threshold", "--traincheck-compat")
        self.assertEqual(result.returncode, 2)
        self.assertIn("ThresholdRelation", result.stderr)


class Check(unittest.TestCase):
    def check(self, trace: str, invariants: pathlib.Path, *more: object) -> subprocess.CompletedProcess[str]:
        return run(CHECK, golden.trace(trace, PLACE), "-i", invariants, "--traincheck-compat", "--signatures",
                   golden.unpacked("signatures.json.gz", PLACE), *more)

    def test_equal_verdicts(self) -> None:
        letters = {"violated": "F", "passed": "P", "not_triggered": "N"}
        for name, source in CHECKED.items():
            with self.subTest(name):
                expected = json.loads((golden.GOLDEN / f"{name}.result.json").read_text())
                document = PLACE / "check.json"
                result = self.check(name.removeprefix("self_"), golden.unpacked(f"{source}.inv.jsonl.gz", PLACE), "--json", document)
                self.assertEqual(result.returncode, 1 if expected["counts"]["F"] else 0, result.stderr)
                outcomes = json.loads(document.read_text())["outcomes"]
                ours = "".join(letters[outcome["verdict"]] for outcome in outcomes)
                self.assertEqual(ours, expected["verdicts"])
                # Theirs is the first violation; its step is the one of our first.
                for number, relation, text, step, *_ in expected["failed"]:
                    self.assertEqual((outcomes[number]["relation"], outcomes[number]["invariant"]), (relation, text))
                    self.assertIn(step, [violation["step"] for violation in outcomes[number]["violations"]])

    def test_reports(self) -> None:
        invariants = golden.unpacked("s01_sgd_mlp.inv.jsonl.gz", PLACE)
        output, junit = PLACE / "results", PLACE / "junit.xml"
        result = self.check("b03_frozen", invariants, "-o", output, "--junit", junit, "--top", "2")
        self.assertEqual(result.returncode, 1)
        self.assertIn("18 of 406 invariants violated", result.stdout)
        self.assertIn("16 more", result.stdout)
        self.assertEqual(junit.read_text().count("<failure"), 18)
        self.assertTrue((output / "b03_frozen" / "failed.log").exists())
        self.assertEqual((output / "invariants.json").read_bytes(), invariants.read_bytes())
        self.assertEqual(self.check("b03_frozen", invariants, "-q").stdout, "")

    def test_trouble(self) -> None:
        invariants = golden.unpacked("s01_sgd_mlp.inv.jsonl.gz", PLACE)
        self.assertEqual(run(CHECK, PLACE / "nowhere", "-i", invariants, "--traincheck-compat").returncode, 2)
        self.assertEqual(self.check("b03_frozen", PLACE / "nothing.json").returncode, 2)
        empty = PLACE / "empty"
        empty.mkdir()
        result = run(CHECK, empty, "-i", invariants, "--traincheck-compat")
        self.assertEqual(result.returncode, 2)
        self.assertIn("trace_API_", result.stderr)

    def test_duplicates_and_missing_signatures_are_noted(self) -> None:
        invariants = golden.unpacked("s01_sgd_mlp.inv.jsonl.gz", PLACE)
        result = run(CHECK, golden.trace("dup_head_s01", PLACE), "-i", invariants, "--traincheck-compat")
        self.assertIn("copies of others", result.stderr)
        self.assertIn("signatures.json", result.stderr)
        place = PLACE / "with_table"
        place.mkdir()
        for path in golden.trace("dup_head_s01", PLACE).iterdir():
            (place / path.name).write_bytes(path.read_bytes())
        golden.unpacked("signatures.json.gz", place)
        result = run(CHECK, place, "-i", invariants, "--traincheck-compat")
        self.assertNotIn("no signatures.json", result.stderr)


if __name__ == "__main__":
    unittest.main()
