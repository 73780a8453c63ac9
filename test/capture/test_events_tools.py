#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ttrace-infer and ttrace-check on traces of events: damaged ones, ones that end early or still
grow, and all of it as TrainCheck would do."""
import json
import shutil
import struct
import subprocess
import sys
import time
import unittest

import torch

from agent_runs import CAPTURE, PROGRAMS, SOURCE, CaptureTest
from events_file import META, PRE, ROWS, Events, block, blocks, value
from test_events import hash_of

TOOLS = CAPTURE.parent
SCRIPTS = SOURCE / "test/golden/samples"


class EventsTools(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.healthy = cls.record("s01_sgd_mlp", "healthy")
        cls.other = cls.record("s01_sgd_mlp", "other")
        cls.invariants = cls.scratch / "invariants.json"
        cls.tool("infer", cls.healthy, cls.other, "-o", cls.invariants)

    @classmethod
    def record(cls, script, name, *options):
        trace = cls.scratch / name
        cls.run_command([CAPTURE, "-q", "-o", trace, "--events", *options, "--", sys.executable,
                         SCRIPTS / f"{script}.py"])
        return trace

    @classmethod
    def tool(cls, name, *words, expected=0):
        return cls.run_command([TOOLS / f"ttrace-{name}", *words], expected=expected)

    def copy(self, name):
        trace = self.scratch / name
        shutil.copytree(self.healthy, trace)
        return trace, trace / "rank00000/events.bin"

    def check(self, trace, *options, expected=0):
        done = self.tool("check", trace, "-i", self.invariants, "--json", "-", *options,
                         expected=expected)
        return json.loads(done.stdout), done

    # ---- traces that are not whole ----

    def test_a_damaged_file_is_trouble(self):
        trace, file = self.copy("damaged")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        for tool, *words in (("check", "-i", self.invariants), ("check", "-i", self.invariants, "--follow"),
                             ("check", "-i", self.invariants, "--traincheck-compat"),
                             ("infer", "-o", self.scratch / "x.json"),
                             ("inspect", "--traincheck", self.scratch / "x")):
            with self.subTest(tool=[tool, *words]):
                done = self.tool(tool, trace, *words, expected=2)
                self.assertRegex(done.stderr, rf"ttrace-{tool}: damaged trace: \S*rank00000/events.bin: "
                                 r"block \d+ at byte \d+ has another checksum than its content; copy the file again")
        report, _ = self.check(trace, expected=2)
        self.assertEqual(report["verdict"], "trouble")
        self.assertIn("block", report["message"])

    def test_a_file_that_is_cut_is_judged_up_to_there(self):
        trace, file = self.copy("cut")
        # As if what came before the fourth step had been written by itself, and then was cut.
        data, begun = file.read_bytes()[:16], None
        for kind, tag, payload in blocks(file):
            if kind == META and value(payload, 0)[0]["step"] == 4:
                begun = tag
            if kind == ROWS and begun is not None:
                rows = list(struct.iter_unpack("<4q", payload))
                fourth = next(place for place, (code, time, _, _) in enumerate(rows)
                              if code & 7 == PRE and time >= begun)
                data += block(ROWS, tag, payload[:32 * fourth])
                data += block(ROWS, tag, payload[32 * fourth:])[:-7]
                break
            data += block(kind, tag, payload)
        file.write_bytes(data)
        report, _ = self.check(trace)
        self.assertEqual(report["verdict"], "no violation")
        self.assertFalse(report["complete"])
        self.assertEqual(report["ends_early"],
                         ["the end of rank00000/events.bin is cut off, in or after step 3"])
        self.assertEqual(report["last_step"], 3)
        done = self.tool("check", trace, "-i", self.invariants)
        self.assertRegex(done.stdout.splitlines()[0], r"^no violation: .*; the end of "
                         r"rank00000/events\.bin is cut off, in or after step 3$")
        self.assertNotIn("line", done.stdout + done.stderr)
        report, _ = self.check(self.healthy)
        self.assertTrue(report["complete"])
        self.assertEqual(report["ends_early"], [])

    def test_a_run_that_failed_or_has_not_ended(self):
        for name, change, said in (
                ("failed", {"exit_code": 137},
                 "the run ended with exit code 137, in or after step 8"),
                ("running", {"finished": None}, "the run has not ended, or was killed with "
                 "ttrace-capture, in or after step 8")):
            trace, _ = self.copy(name)
            described = json.loads((trace / "trace.json").read_text())
            described.update(change)
            (trace / "trace.json").write_text(json.dumps(
                {key: value for key, value in described.items() if value is not None}))
            report, _ = self.check(trace)
            self.assertEqual((report["complete"], report["ends_early"]), (False, [said]))
            done = self.tool("check", trace, "-i", self.invariants)
            self.assertTrue(done.stdout.splitlines()[0].endswith("; " + said), done.stdout)

    # ---- while the run goes on ----

    def test_following_ends_with_the_run(self):
        began = time.monotonic()
        report, _ = self.check(self.healthy, "--follow", "--idle", "100")
        self.assertLess(time.monotonic() - began, 20)
        whole, _ = self.check(self.healthy)
        self.assertEqual(report, whole)

    def test_following_from_before_the_run_begins(self):
        trace = self.scratch / "followed"
        command = [TOOLS / "ttrace-check", trace, "-i", self.invariants, "--json", "-", "--follow",
                   "--idle", "100"]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as check:
            self.record("b01_no_zero_grad", "followed")
            ended = time.monotonic()
            report = json.loads(check.stdout.read())
            self.assertEqual(check.wait(), 1)
        self.assertLess(time.monotonic() - ended, 20)
        self.assertEqual(report, self.check(trace, expected=1)[0])

    # ---- the program's own lines ----

    def source_of(self, site):
        """The line that a report names."""
        file, line = site.rsplit(":", 1)
        return (self.scratch / file).read_text().splitlines()[int(line) - 1].strip()

    def test_violations_lead_to_lines_of_the_program(self):
        bug = self.record("b01_no_zero_grad", "lines")
        report, _ = self.check(bug, expected=1)
        found = {}
        for entry in report["invariants"]:
            for violation in entry["violations"]:
                for record in violation["records"]:
                    if record["site"] is not None:
                        lines = found.setdefault(record.get("function"), set())
                        lines.add(self.source_of(record["site"]))
        self.assertEqual(found["torch._tensor.Tensor.backward"], {"loss.backward()"})
        self.assertIn("model.train()", found["torch.nn.modules.module.Module.train"])
        self.assertTrue(all("model(" in line for line in found["__main__.Net.forward"]), found)
        text = self.tool("check", bug, "-i", self.invariants, expected=1).stdout
        self.assertRegex(text, r"Tensor\.backward\(\), from \S*b01_no_zero_grad\.py:\d+: ")

    def test_a_loss_that_is_nan(self):
        traces = {}
        for step in (9, 3):
            traces[step] = self.scratch / f"nan{step}"
            self.run_command([CAPTURE, "-q", "-o", traces[step], "--events", "--", sys.executable,
                              PROGRAMS / "not_a_number.py", step])
        learned, junit = self.scratch / "nan.json", self.scratch / "nan.xml"
        self.tool("infer", traces[9], "-o", learned)
        # Of those that a NaN cannot violate.
        lines = [line for line in learned.read_text().splitlines(keepends=True)
                 if json.loads(line)["relation"] == "ConsistentOutputRelation"]
        learned.write_text("".join(lines))
        for follow in ([], ["--follow"]):
            done = self.tool("check", traces[3], "-i", learned, "--json", "-", "--junit", junit,
                             *follow, expected=1)
            report = json.loads(done.stdout)
            self.assertEqual((report["verdict"], report["failed"]), ("violated", 0))
            loss, = report["nan_losses"]
            self.assertEqual((loss["step"], loss["count"]), (3, 3))
            self.assertEqual(self.source_of(loss["site"]), "loss.backward()")
            self.assertIn("the loss is NaN, first in step 3", junit.read_text())
        done = self.tool("check", traces[3], "-i", learned, expected=1)
        self.assertRegex(done.stdout, r"^violated: the loss is NaN, first in step 3, ")
        report = json.loads(self.tool("check", traces[9], "-i", learned, "--json", "-").stdout)
        self.assertEqual(report["nan_losses"], [])

    # ---- ranks ----

    def sharded(self, which, seed):
        trace, _ = self.capture(f"{which}{seed}", "shards.py", which, seed, ranks=2,
                                options=["-q", "--events"])
        return trace.path

    def test_ranks_that_are_given_the_same_shard(self):
        first = self.sharded("own", 1)
        for rank in (0, 1):
            calls = [call for call in Events(first / f"rank{rank:05d}/events.bin").calls()
                     if call.contents]
            self.assertEqual({call.name for call in calls},
                             {"torch.nn.parallel.distributed.DistributedDataParallel.forward"})
            generator = torch.Generator().manual_seed(1)
            expected = [{"1": hash_of(torch.randn(8, 8, generator=generator).chunk(2)[rank])}
                        for _ in range(5)]
            self.assertEqual([call.contents for call in calls], expected)
        learned = self.scratch / "shards.json"
        self.tool("infer", first, self.sharded("own", 2), "-o", learned)
        check = ["-i", learned, "--json", "-"]
        self.tool("check", self.sharded("own", 3), *check)
        report = json.loads(self.tool("check", self.sharded("same", 4), *check, expected=1).stdout)
        self.assertIn("DistributedDataParallel.forward() receives distinct arguments at each step",
                      [entry["text"] for entry in report["invariants"]
                       if entry["verdict"] == "failed" and entry["violation_count"] == 5])
        # Recorded with the invariants alone, what they need is there.
        self.capture("some", "shards.py", "same", 5, ranks=2,
                     options=["-q", "--invariants", str(learned)])
        report = json.loads(self.tool("check", self.scratch / "some", *check, expected=1).stdout)
        self.assertEqual(report["failed"], 1)

    # ---- TrainCheck's rules ----

    def test_compat_reads_our_traces_as_they_are_exported(self):
        exported, learned = self.scratch / "exported", {}
        self.tool("inspect", self.healthy, "--traincheck", exported)
        for trace in (self.healthy, exported):
            learned[trace] = self.scratch / f"{trace.name}.compat.json"
            self.tool("infer", trace, "-o", learned[trace], "--traincheck-compat")
        self.assertGreater(len(learned[exported].read_text().splitlines()), 100)
        self.assertEqual(learned[self.healthy].read_text(), learned[exported].read_text())
        bug = self.record("b01_no_zero_grad", "bug")
        self.tool("inspect", bug, "--traincheck", self.scratch / "bug.exported")
        reports = []
        for trace in (bug, self.scratch / "bug.exported"):
            done = self.tool("check", trace, "-i", learned[exported], "--traincheck-compat", "--json",
                             "-", expected=1)
            reports.append({key: value for key, value in json.loads(done.stdout).items()
                            if key != "trace"})
        self.assertEqual(*reports)


if __name__ == "__main__":
    unittest.main()
