# SPDX-License-Identifier: Apache-2.0
"""ttrace-diff --junit: the XML that test dashboards read, with Python's own parser, and counted."""
from __future__ import annotations

import json
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

from made_traces import DIFF, DIFFERS, SAME, TROUBLE, DiffTest, rank_json, record, step


class Junit(DiffTest):
    def setUp(self):
        super().setUp()
        self.reference = self.write("reference.trace", step())

    def document(self, reference, candidate, *options, code: int) -> ElementTree.Element:
        path = self.folder / "report.xml"
        self.diff(reference, candidate, "--junit", path, *options, code=code)
        root = ElementTree.fromstring(path.read_bytes())
        self.assertEqual(root.tag, "testsuites")
        self.check_counts(root)
        return root

    def check_counts(self, root: ElementTree.Element) -> None:
        """What the attributes say is what is there."""
        sums = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        for suite in root:
            cases = suite.findall("testcase")
            counted = {"tests": len(cases), "failures": 0, "errors": 0, "skipped": 0}
            for case in cases:
                kinds = {child.tag for child in case}
                self.assertLessEqual(len(kinds), 1, ElementTree.tostring(case))
                for tag, name in (("failure", "failures"), ("error", "errors"),
                                  ("skipped", "skipped")):
                    counted[name] += tag in kinds
            for name, count in counted.items():
                self.assertEqual(suite.get(name), str(count), (suite.get("name"), name))
                sums[name] += count
        self.assertEqual({name: root.get(name) for name in sums},
                         {name: str(count) for name, count in sums.items()})
        names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
        self.assertEqual(len(set(names)), len(names))

    @staticmethod
    def case(root: ElementTree.Element, name: str) -> ElementTree.Element:
        return next(case for case in root.iter("testcase") if case.get("name") == name)

    def test_a_phase_is_a_suite_and_a_tensor_a_case(self):
        root = self.document(self.reference, self.reference, code=SAME)
        self.assertEqual({suite.get("name"): suite.get("tests") for suite in root},
                         {"trace": "1", "param": "4", "forward": "6", "backward": "4",
                          "grad": "4", "step": "4"})
        self.assertEqual((root.get("failures"), root.get("errors"), root.get("skipped")),
                         ("0", "0", "0"))
        self.assertEqual({case.get("name") for case in root.iter("testcase")} - {"comparison"},
                         {entry["key"] for entry in step()})
        case = self.case(root, "it0/mb0/forward/layers.1.fc/output.0")
        self.assertEqual(case.get("classname"), "layers.1.fc")

    def test_properties_say_what_was_compared_and_how(self):
        root = self.document(self.reference, self.reference, code=SAME)
        for suite in root:
            properties = {entry.get("name"): entry.get("value")
                          for entry in suite.find("properties")}
            self.assertEqual(properties["mode"], "bound (weak)")
            self.assertEqual(properties["reference"], str(self.reference))
            self.assertEqual(properties["candidate"], str(self.reference))
        properties = {entry.get("name"): entry.get("value") for entry in root[2].find("properties")}
        smallest, largest = map(float, properties["resolution"].split(" .. "))
        self.assertAlmostEqual(smallest / 2**-23, 4, places=1)
        self.assertAlmostEqual(largest / 2**-23, 16, places=1)  # the loss

    def test_a_finding_is_a_failure_with_its_evidence(self):
        key = "it0/mb0/forward/layers.0.fc/output.0"
        candidate = self.changed(lambda all: all[key].update(
            values=[2 * value for value in all[key]["values"]]))
        root = self.document(self.reference, candidate, code=DIFFERS)
        self.assertEqual((root.get("tests"), root.get("failures")), ("23", "1"))
        failure, = self.case(root, key)
        self.assertEqual(failure.get("type"), "over_limit")
        self.assertIn("a factor of exactly 2", failure.get("message"))
        self.assertIn("worst element: [", failure.text)

    def test_findings_of_no_tensor_are_failures_too(self):
        def lose(records):
            for key in [key for key in records if "layers.1." in key]:
                del records[key]
        root = self.document(self.reference, self.changed(lose), code=DIFFERS)
        failure = next(root.iter("failure"))
        self.assertEqual((root.get("failures"), failure.get("type")), ("1", "missing"))
        half = self.write_ranks("half.trace", [
            {"rank": 0, "rank_json": rank_json(world_size=2),
             "segments": [{"iteration": 0, "records": step()}]}])
        root = self.document(self.reference, half, code=DIFFERS)
        self.assertEqual([failure.get("type") for failure in root[0].iter("failure")],
                         ["incomplete_trace"])
        self.assertIn("rank 1 of 2", next(root.iter("failure")).get("message"))

    def test_what_was_not_compared_is_skipped(self):
        kept = [entry for entry in step() if entry["key"] != "it0/mb0/forward/head/output.0"]
        events = [{"what": "hook failed", "where": "head", "why": "out of memory", "count": 1}]
        one = self.write("one.trace", kept, events=events)
        root = self.document(one, one, code=SAME)
        self.assertEqual((root.get("tests"), root.get("skipped")), ("23", "1"))
        self.assertIn("out of memory", next(root.iter("skipped")).get("message"))

    def test_the_same_storage_fails_once(self):
        records, wrong = step(), step()
        for entries in (records, wrong):
            target = next(i for i, entry in enumerate(entries)
                          if entry["key"] == "it0/mb0/forward/head/output.0")
            entries.insert(target + 1, {"key": "it0/mb0/forward/wrapper/output.0",
                                        "dtype": "float32", "shape": [8, 6], "alias_of": target})
        wrong[target]["values"][0] = 99.0
        root = self.document(self.write("one.trace", records), self.write("two.trace", wrong),
                             code=DIFFERS)
        self.assertEqual((root.get("failures"), root.get("skipped")), ("1", "1"))
        skipped, = self.case(root, "it0/mb0/forward/wrapper/output.0")
        self.assertIn("head/output.0", skipped.get("message"))

    def test_no_answer_is_an_error(self):
        passes = [entry for entry in step() if "/mb0/" in entry["key"] or "/param/" in entry["key"]]
        one = self.write("one.trace", passes)
        root = self.document(one, one, code=TROUBLE)
        self.assertEqual((root.get("failures"), root.get("errors")), ("0", "1"))
        self.assertIn("neither gradient nor update", next(root.iter("error")).get("message"))

    def test_trouble_is_a_document_too(self):
        missing = self.folder / "none.trace"
        root = self.document(self.reference, missing, code=TROUBLE)
        self.assertEqual((root.get("tests"), root.get("errors")), ("1", "1"))
        self.assertIn("none.trace", next(root.iter("error")).get("message"))
        self.assertEqual({entry.get("value") for entry in root.iter("property")},
                         {str(self.reference), str(missing)})
        # Both kinds at once, and a folder that is not there keeps neither from the other.
        done = self.diff(self.reference, missing, "--json", "-", "--junit",
                         self.folder / "none" / "report.xml", code=TROUBLE)
        self.assertEqual(json.loads(done.stdout)["verdict"], "trouble")

    def test_stdout_gets_one_document(self):
        done = self.diff(self.reference, self.reference, "--junit", "-", code=SAME)
        self.check_counts(ElementTree.fromstring(done.stdout.encode()))
        path = self.folder / "report.json"
        done = self.diff(self.reference, self.reference, "--junit", "-", "--json", path, code=SAME)
        self.check_counts(ElementTree.fromstring(done.stdout.encode()))
        self.assertEqual(json.loads(path.read_text())["verdict"], "same")
        done = self.diff(self.reference, self.reference, "--junit", "-", "--json", "-",
                         code=TROUBLE)
        self.assertEqual(json.loads(done.stdout)["verdict"], "trouble")
        self.assertIn("--json -", done.stderr)

    def test_names_of_any_characters_come_back(self):
        name = "a<b>&\"c'\t\n\u00e9\u4e2d\U0001f600"
        odd = [record(f"it0/mb0/forward/{name}/output.0", [2], [1, 2]),
               record("it0/mb0/forward/x\x01y\x1b\x7f/output.0", [2], [3, 4])]
        one = self.write("odd.trace", [*step(), *odd])
        root = self.document(one, one, code=SAME)
        self.assertEqual(self.case(root, f"it0/mb0/forward/{name}/output.0").get("classname"),
                         name)
        # XML 1.0 cannot hold these two, so they are spelt out; it can hold DEL.
        self.case(root, "it0/mb0/forward/x\\x01y\\x1b\x7f/output.0")

    def test_a_path_that_is_no_utf8(self):
        missing = str(self.folder).encode() + b"/\xff\xed\xa0\x80\xc0\xafok\xe4\xb8.trace"
        path = self.folder / "report.xml"
        done = subprocess.run([DIFF, self.reference, missing, "--junit", path],
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, TROUBLE)
        root = ElementTree.fromstring(path.read_bytes())
        values = [entry.get("value") for entry in root.iter("property")]
        # One replacement for each byte that begins no character.
        self.assertTrue(values[1].endswith("/" + 6 * "\ufffd" + "ok" + 2 * "\ufffd" + ".trace"),
                        ascii(values[1]))


if __name__ == "__main__":
    unittest.main()
