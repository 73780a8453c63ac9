#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ttrace-capture --events: which calls and changes are recorded, and that nothing else is done."""
import collections
import ctypes
import gzip
import json
import pathlib
import sys
import tarfile
import unittest

import torch

from agent_runs import CAPTURE, SOURCE, CaptureTest
from events_file import EXCEPTION, POST, PRE, STATE, Events

GOLDEN = SOURCE / "test" / "golden"
XXH3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
XXH3.argtypes, XXH3.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64


def hash_of(tensor):
    """XXH3 of all bytes, as a signed integer."""
    data = tensor.detach().contiguous().numpy().tobytes()
    value = XXH3(data, len(data))
    return value - (1 << 64) if value >= 1 << 63 else value


class EventsTest(CaptureTest):
    def record(self, case, expected=0, ranks=1, options=("--events",), launcher=None):
        """Runs a case of programs/events.py; its events by rank, and what it saved."""
        name = f"{case}.{self.id().rsplit('.', 1)[1]}"
        out = self.scratch / f"{name}.pt"
        trace, done = self.capture(f"{name}.trace", "events.py", case, out, expected=expected,
                                   ranks=ranks, options=list(options),
                                   launcher=launcher or [sys.executable] if ranks == 1 else None)
        files = sorted(trace.path.glob("rank*/events.bin"))
        self.assertEqual(len(files), ranks)
        self.trace, self.done, self.out = trace, done, out
        events = [Events(file) for file in files]
        return events[0] if ranks == 1 else events

    def plain(self, case):
        """The same without recording; what it saved."""
        out = self.scratch / f"{case}.plain.pt"
        self.run_command([sys.executable, pathlib.Path(__file__).parent / "programs" / "events.py",
                          case, out])
        return torch.load(out)

    def names(self, events):
        return [call.name for call in events.calls()]


class Golden(EventsTest):
    """Against what TrainCheck 0.2.0 recorded of the same script."""

    def golden_calls(self, name):
        with tarfile.open(GOLDEN / f"{name}.trace.tar.gz") as archive:
            member = next(m for m in archive.getmembers() if "trace_API" in m.name)
            lines = archive.extractfile(member).read().decode().splitlines()
        return [json.loads(line) for line in lines]

    def compare(self, name):
        out = self.scratch / name
        script = GOLDEN / "samples" / f"{name}.py"
        self.run_command([CAPTURE, "-o", out, "--events", "--",
                          sys.executable, script])
        events = Events(out / "rank00000" / "events.bin")
        self.parameters = events.parameters
        ours, theirs = collections.Counter(), collections.Counter()
        steps, their_steps = collections.Counter(), collections.Counter()
        for call in events.calls():
            if not call.name.startswith("__main__."):
                parent = call.parent
                ours[None if parent and parent.startswith("__main__.") else parent, call.name] += 1
                steps[call.meta["step"], call.name] += 1
        stack = []
        for record in self.golden_calls(name):
            if record["type"] == "function_call (pre)":
                theirs[stack[-1] if stack else None, record["function"]] += 1
                their_steps[record["meta_vars"]["step"], record["function"]] += 1
                stack.append(record["function"])
            else:
                stack.pop()
        return ours, theirs, steps, their_steps

    # Its collector walks over parameters by itself, through wrapped functions, and instruments
    # torch after the samples' prewarm: set_num_threads has been called, and manual_seed() has got
    # a shell from Dynamo that asks is_exporting(). Ours lies inside of that shell.
    OWN = {"torch.nn.modules.module.Module.named_parameters", "torch.set_num_threads",
           "torch.nn.modules.module.Module._named_members",
           "torch.nn.modules.module.Module.named_children",
           "torch.nn.modules.module.Module.named_modules"}

    def without_own(self, pairs):
        return {key: count for key, count in pairs.items() if key[1] not in self.OWN
                and key not in ((None, "torch.compiler.is_exporting"),
                                ("torch.random.manual_seed", "torch.compiler.is_exporting"))}

    def test_calls_and_nesting_are_those_of_traincheck(self):
        for sample in ("s01_sgd_mlp", "s02_adam_sched", "s03_tiny_lm", "s05_amp_bf16"):
            with self.subTest(sample):
                ours, theirs, steps, their_steps = self.compare(sample)
                self.assertGreater(len(theirs), 70)
                self.assertEqual(self.without_own(ours), self.without_own(theirs))
                if sample == "s01_sgd_mlp":  # the loops of others count epochs as steps, too
                    self.assertEqual(self.without_own(steps), self.without_own(their_steps))
                self.compare_signatures()

    def compare_signatures(self):
        with gzip.open(GOLDEN / "signatures.json.gz", "rt") as table:
            looked_up = {name: found for name, found in json.load(table).items() if found}
        common = self.parameters.keys() & looked_up.keys()
        self.assertGreater(len(common), 40)
        self.assertEqual({name: self.parameters[name] for name in common},
                         {name: looked_up[name] for name in common})


class Training(EventsTest):
    def test_training_is_the_same_to_the_bit_and_hashes_are_of_whole_tensors(self):
        for case, slots in (("train", {"momentum_buffer"}), ("adam", {"exp_avg", "exp_avg_sq"})):
            with self.subTest(case):
                events = self.record(case)
                record, plain = torch.load(self.out), self.plain(case)
                self.assertEqual(len(record), len(plain))
                for step, (ours, theirs) in enumerate(zip(record, plain), 1):
                    self.assert_same_bits(ours["loss"], theirs["loss"])
                    for name, value in theirs["parameters"].items():
                        self.assert_same_bits(ours["parameters"][name], value)
                    self.check_step(events, step, theirs, slots)

    def check_step(self, events, step, truth, slots):
        last = {}
        grads = collections.defaultdict(list)
        for state in events.states():
            if state.meta["step"] == step:
                last[state.name] = state
                grads[state.name].append(state.attributes["grad"])
        for name, value in truth["parameters"].items():
            state = last[f"model.{name}"]
            self.assertEqual(state.attributes["data"], hash_of(value), name)
            self.assertIn(hash_of(truth["gradients"][name]), grads[f"model.{name}"])
            self.assertEqual(state.attributes["grad"], hash_of(truth["clipped"][name]))
            for slot in slots:
                state = last[f"optimizer.model.{name}.{slot}"]
                self.assertEqual(state.attributes["data"], hash_of(truth["states"][name][slot]))

    def test_changes_lie_in_the_calls_that_make_them(self):
        events = self.record("train")
        weights = [state for state in events.states("model.fc1.weight")
                   if state.meta["step"] == 2]
        self.assertEqual([(state.parent, state.where) for state in weights], [
            ("torch.optim.optimizer.Optimizer.zero_grad",) * 2,
            ("torch._tensor.Tensor.backward", "torch.autograd.backward"),
            ("torch.nn.utils.clip_grad.clip_grad_norm_",) * 2,
            ("torch.optim.sgd.sgd",) * 2])
        self.assertIsNone(weights[0].attributes["grad"])
        data = [state.attributes["data"] for state in weights]
        self.assertEqual(data[0], data[2])
        self.assertNotEqual(data[2], data[3])

    def test_arguments_and_results(self):
        events = self.record("train")
        dropout = next(call for call in events.calls()
                       if call.name == "torch.nn.functional.dropout")
        (tensor, p, training, inplace) = dropout.arguments
        self.assertEqual([p, training, inplace], [{"float": 0.2}, {"bool": True}, {"bool": False}])
        self.assertEqual(tensor["torch.FloatTensor"]["shape"], [8, 16])
        self.assertEqual(tensor["torch.FloatTensor"]["flags"], 1)  # requires_grad, no leaf
        linear = next(call for call in events.calls()
                      if call.name == "torch.nn.modules.linear.Linear.forward")
        self.assertEqual(linear.arguments[0]["torch.nn.modules.linear.Linear"],
                         {"call_super_init": False, "dump_patches": False, "in_features": 8,
                          "out_features": 16, "training": True})
        self.assertNotEqual(linear.object, 0)
        made = next(call for call in events.calls() if call.name == "torch.optim.sgd.SGD.__init__")
        self.assertEqual(made.keywords, {"lr": {"float": 0.1}, "momentum": {"float": 0.9}})
        returned = next(event for event in events.list if event.kind == POST
                        and event.name == "torch.nn.modules.linear.Linear.forward")
        self.assertEqual(returned.result["torch.FloatTensor"]["shape"], [8, 16])

    def test_stages_steps_models_and_context_managers(self):
        events = self.record("stages")
        names = {state.name for state in events.states()}
        self.assertTrue({"netG.weight", "netD.0.weight", "netD.2.bias", "first.netG.weight.exp_avg"}
                        <= names, names)
        forwards = [call for call in events.calls() if call.parent is None
                    and call.name == "torch.nn.modules.linear.Linear.forward"]
        self.assertEqual([(call.meta["step"], call.meta["stage"]) for call in forwards],
                         [(1, "training"), (1, "testing"), (2, "training"), (2, "testing")])
        managers = [call for call in events.calls() if "autocast_mode.autocast.__" in call.name]
        self.assertEqual([call.name.rsplit(".", 1)[1] for call in managers],
                         ["__init__", "__enter__", "__exit__"] * 2)
        self.assertEqual(len({call.object for call in managers[:3]}), 1)


class Behaviour(EventsTest):
    def test_a_killed_run_keeps_what_was_before_its_last_step(self):
        events = self.record("killed", expected=137)
        steps = [call.meta["step"] for call in events.calls()
                 if call.name == "torch.optim.sgd.SGD.step"]
        self.assertEqual(steps, [1, 2, 3])

    def test_exceptions_are_recorded_and_are_the_programs_own(self):
        events = self.record("fails", expected=1)
        self.assertIn("KeyError: \"the program's own end\"", self.done.stderr)
        failed = [(event.name, event.error.split("\n")[0]) for event in events.list
                  if event.kind == EXCEPTION]
        self.assertEqual(failed, [("torch.nn.modules.linear.Linear.forward", "RuntimeError"),
                                  ("torch.optim.sgd.SGD.__init__", "ValueError")])
        said = next(event.error for event in events.list if event.kind == EXCEPTION)
        self.assertEqual(said.split("\n", 1)[1], torch.load(self.out))
        self.assertIn("torch.nn.functional.relu", self.names(events))  # nothing is lost at the end

    def test_compiled_code_stays_whole(self):
        events = self.record("compiled")
        ours, plain = torch.load(self.out), self.plain("compiled")
        self.assertEqual(ours["breaks"], plain["breaks"])
        self.assertEqual(ours["frames"], plain["frames"])
        for one, other in zip(ours["losses"], plain["losses"]):
            self.assert_same_bits(one, other)
        self.assertEqual(self.names(events).count("torch.optim.sgd.SGD.step"), len(ours["losses"]))
        self.assertNotIn("torch.nn.modules.linear.Linear.forward",
                         [call.name for call in events.calls() if call.meta["step"] > 1])

    def test_what_is_known_by_identity_or_name_stays_known(self):
        self.record("identities")
        ours, plain = torch.load(self.out), self.plain("identities")
        self.assertEqual(ours["facts"], [1, True])
        self.assertEqual(ours["facts"], plain["facts"])
        for one, other in zip(ours["tensors"], plain["tensors"]):
            self.assert_same_bits(one.detach(), other.detach())

    def test_a_program_that_observes_itself_sees_no_difference(self):
        self.record("observed")
        ours, plain = torch.load(self.out), self.plain("observed")
        self.assertIn("backward", plain["seen"])
        self.assertEqual(ours["seen"], plain["seen"])
        self.assertEqual(ours["code"], plain["code"])
        self.assertEqual(plain["warned"][0][0], "events.py")
        self.assertEqual(ours["warned"], plain["warned"])
        self.assert_same_bits(ours["deepest"], plain["deepest"])

    def test_torchscript_stays_whole(self):
        self.record("scripted")
        for one, other in zip(torch.load(self.out), self.plain("scripted")):
            if isinstance(other, str):
                self.assertEqual(one, other)
            else:
                self.assert_same_bits(one, other)

    def test_imports_are_not_recorded_but_what_they_bring_is(self):
        events = self.record("imports", launcher=[sys.executable])
        calls = self.names(events)
        self.assertIn("torch.nn.utils.prune.l1_unstructured", calls)
        between = calls[calls.index("torch.nn.functional.relu"):
                        calls.index("torch._VariableFunctionsClass.ones", calls.index(
                            "torch.nn.functional.relu"))]
        self.assertEqual(between, ["torch.nn.functional.relu",
                                   "torch._VariableFunctionsClass.relu"])

    def test_each_threads_calls_are_its_own(self):
        events = self.record("threads")
        outer = collections.Counter(call.thread for call in events.calls()
                                    if call.name == "torch.nn.modules.dropout.Dropout.forward")
        self.assertEqual(sorted(outer.values()), [300, 300, 300])
        inner = [call for call in events.calls() if call.name == "torch.nn.functional.dropout"]
        self.assertEqual(len(inner), 900)
        for call in inner:
            self.assertEqual(call.parent, "torch.nn.modules.dropout.Dropout.forward")
        self.assertEqual(events.open, {})

    def test_no_event_is_lost_at_the_exit(self):
        events = self.record("exits", expected=7)
        calls = self.names(events)
        self.assertIn("torch.nn.functional.softmax", calls)
        self.assertEqual(events.open, {})
        kinds = collections.Counter(event.kind for event in events.list)
        self.assertEqual(kinds[PRE], kinds[POST])

    def test_workers_of_a_data_loader_write_nothing(self):
        events = self.record("loaded")
        self.assertNotIn("torch.nn.functional.relu", self.names(events))
        self.assertEqual(self.names(events).count("torch.optim.sgd.SGD.step"), 2)

    def test_two_ranks(self):
        both = self.record("ddp", ranks=2)
        self.assertEqual([events.process["rank"] for events in both], [0, 1])
        names = [{state.name for state in events.states()} for events in both]
        self.assertIn("model.fc1.weight", names[0])
        self.assertEqual(*names)
        for rank, events in enumerate(both):
            last = {state.name: state.attributes["data"] for state in events.states()
                    if state.where == "torch.optim.sgd.sgd"}
            for name, value in torch.load(f"{self.out}.{rank}").items():
                self.assertEqual(last[f"model.{name}"], hash_of(value))
            meta = events.calls()[-1].meta
            self.assertEqual((meta["rank"], meta["world_size"], meta["_DATA_PARALLEL_RANK"]),
                             (rank, 2, rank))


class Selected(EventsTest):
    def test_only_what_the_invariants_need(self):
        invariants = self.scratch / "invariants.json"
        relation = {"relation": "APIContainRelation", "precondition": {}, "params": [
            {"param_type": "APIParam", "api_full_name": "torch.optim.sgd.SGD.step"},
            {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": "data"}]}
        output = {"relation": "ConsistentOutputRelation", "precondition": {}, "params": [
            {"param_type": "APIParam", "api_full_name": "torch.nn.modules.linear.Linear.forward"},
            {"param_type": "VarTypeParam", "var_type": "torch.Tensor", "attr_name": "dtype",
             "const_value": "torch.float32"}]}
        invariants.write_text("".join(json.dumps(each) + "\n" for each in (relation, output)))
        events = self.record("train", options=["--invariants", invariants])
        self.assertEqual(set(self.names(events)), {"torch.optim.sgd.SGD.step",
                                                   "torch.nn.modules.linear.Linear.forward"})
        for event in events.list:
            if event.name.endswith("Linear.forward"):
                self.assertIsNone(event.arguments)
                self.assertEqual(event.result is not None, event.kind == POST)
            if event.kind == STATE:
                self.assertTrue(event.name.startswith("model."))
        plain = self.plain("train")
        self.assert_same_bits(torch.load(self.out)[-1]["loss"], plain[-1]["loss"])

    def test_a_file_without_an_invariant_is_refused(self):
        empty = self.scratch / "empty.json"
        empty.write_text("{}\n")
        for path, why in ((empty, "holds no invariant"), (self.scratch / "absent", "cannot be")):
            done = self.run_command([CAPTURE, "-o", self.scratch / "no", "--invariants", path,
                                     "--", "true"], expected=2)
            self.assertIn(why, done.stderr)
        done = self.run_command([CAPTURE, "-o", self.scratch / "no", "--events", "--what",
                                 "stats", "--", "true"], expected=2)
        self.assertIn("exclude each other", done.stderr)


if __name__ == "__main__":
    unittest.main()
