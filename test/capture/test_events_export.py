#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ttrace-inspect --traincheck: events as the files that TrainCheck reads.

TRAINCHECK names a folder with TrainCheck 0.2.0's commands, which then infers invariants of them.
"""
import json
import os
import pathlib
import sys
import tarfile
import unittest

from agent_runs import BUILD, CAPTURE, SOURCE, CaptureTest
from events_file import PRE, STATE, Events

GOLDEN = SOURCE / "test" / "golden"
INSPECT = BUILD / "tools" / "ttrace-inspect"
TRAINCHECK = os.environ.get("TRAINCHECK")


class Export(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trace = cls.scratch / "s01"
        cls.run_command([CAPTURE, "-o", cls.trace, "--events", "--", sys.executable,
                         GOLDEN / "samples" / "s01_sgd_mlp.py"])
        cls.folder = cls.scratch / "traincheck"
        cls.run_command([INSPECT, cls.trace, "--traincheck", cls.folder])
        cls.records = {path.name.split("_")[1]: [json.loads(line) for line in
                                                 path.read_text().splitlines()]
                       for path in cls.folder.glob("trace_*")}

    def test_every_event_is_there_in_its_order(self):
        events = Events(self.trace / "rank00000" / "events.bin")
        pid = events.process["pid"]
        thread = events.list[0].thread
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["signatures.json", f"trace_API_{pid}_{thread}.log",
                          f"trace_VAR_{pid}_{thread}.log"])
        table = json.loads((self.folder / "signatures.json").read_text())
        self.assertEqual(table, {name: found for name, found in events.parameters.items()
                                 if found is not None}
                         | {name + "@class": found for name, found in events.parameters.items()
                            if found is not None and name.endswith(".__init__")})
        calls = [event for event in events.list if event.kind != STATE]
        self.assertEqual([record["function"] for record in self.records["API"]],
                         [event.name for event in calls])
        self.assertEqual([record["time"] for record in self.records["API"]],
                         [event.time for event in calls])
        self.assertEqual([record["attributes"]["data"] for record in self.records["VAR"]],
                         [state.attributes["data"] for state in events.states()])
        arguments = [record["args"] for record in self.records["API"] if "args" in record]
        self.assertEqual([len(each) for each in arguments],
                         [len(event.arguments) for event in calls if event.kind == PRE])

    def test_records_have_the_keys_that_traincheck_writes(self):
        with tarfile.open(GOLDEN / "s01_sgd_mlp.trace.tar.gz") as archive:
            golden = [json.loads(line) for member in archive.getmembers() if member.isfile()
                      for line in archive.extractfile(member).read().decode().splitlines()]
        named = "proxy_obj_names"
        keys = {}
        for record in golden:
            keys.setdefault(record["type"], list(key for key in record if key != named))
        ours = self.records["API"] + self.records["VAR"]
        for record in ours:
            expected = keys[record["type"]]
            self.assertEqual([key for key in record if key != named], expected)
        linear = "torch.nn.modules.linear.Linear.forward"
        post = "function_call (post)"
        returned = [next(record["return_values"]["torch.FloatTensor"] for record in records
                         if record["type"] == post and record["function"] == linear)
                    for records in (ours, golden)]
        returned[1].pop("_TRAINCHECK_data_ID")
        self.assertEqual(list(returned[0].items()), list(returned[1].items()))
        states = [next(record["attributes"] for record in records
                       if record.get("var_name") == "model.fc1.weight")
                  for records in (ours, golden)]
        for state in states:
            state.pop("data")
        states[1].pop("_TRAINCHECK_data_ID")
        self.assertEqual(states[0], states[1])

    def test_calls_are_joined_and_nested(self):
        stack = []
        for record in self.records["API"]:
            if record["type"] == "function_call (pre)":
                self.assertTrue(not stack or record["func_call_id"] > stack[-1])
                stack.append(record["func_call_id"])
            else:
                self.assertEqual(stack.pop(), record["func_call_id"])
        self.assertEqual(stack, [])

    def test_a_folder_that_is_not_empty_is_refused(self):
        done = self.run_command([INSPECT, self.trace, "--traincheck", self.folder], expected=2)
        self.assertIn("is not empty", done.stderr)
        done = self.run_command([INSPECT, self.scratch, "--traincheck", self.scratch / "x"],
                                expected=2)
        self.assertIn("has no events", done.stderr)

    @unittest.skipUnless(TRAINCHECK, "TRAINCHECK names no folder of TrainCheck's commands")
    def test_traincheck_infers_invariants(self):
        out = self.scratch / "invariants.json"
        self.run_command([pathlib.Path(TRAINCHECK) / "traincheck-infer", "-f", self.folder, "-o",
                          out], PYTHONHASHSEED="0")
        texts = [json.loads(line)["text_description"] for line in out.read_text().splitlines()]
        self.assertGreater(len(texts), 100)
        self.assertTrue(any("sgd.sgd() changes Parameter.data" in text for text in texts), texts)


if __name__ == "__main__":
    unittest.main()
