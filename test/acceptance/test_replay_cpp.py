# SPDX-License-Identifier: Apache-2.0
"""The C++ sample is fed through ttrace.h: bit-equal to itself, healthy layouts the same, each bug
named where it is, whichever side is fed."""
import json
import struct
import unittest

import h5py
import numpy

from runs import BUILD, SOURCE, TOOLS, Runs, run

TRAINER = BUILD / "samples/cpp/trainer"
CLIENT = BUILD / "test/capture/abi_client"
BUGS = json.loads((SOURCE / "samples/cpp/expected.json").read_text())["runs"]
# In each of 2 iterations and 4 micro-batches: an output and its gradient of embedding, 4 blocks with
# 3 layers each, final norm and output.
FED = 2 * 4 * 2 * (1 + 4 * (1 + 3) + 2)
FIRST_STAGE = 2 * 4 * 2 * (1 + 2 * (1 + 3))
# What each rank is fed: of half the micro-batches where dp is 2.
LAYOUTS = {"tp2": (["--tp", "2"], [FED] * 2),
           "dp2": (["--dp", "2"], [FED // 2] * 2),
           "tp2 dp2": (["--tp", "2", "--dp", "2"], [FED // 2] * 4),
           "dp2 zero": (["--dp", "2", "--zero", "1"], [FED // 2] * 2),
           "pp2": (["--pp", "2"], [FIRST_STAGE, FED - FIRST_STAGE])}


class ReplayCpp(Runs):
    def trace(self, name, arguments, iterations="0-1"):
        if not (self.traces / name).exists():
            self.capture(name, [TRAINER, *arguments], ["--iterations", iterations])
        return self.traces / name

    def pack(self, source, *words):
        path = self.traces / f"{source.name} {words[0][2:]}.pack"
        run([TOOLS / "ttrace-merge", "-q", source, "--pack", *words, "-o", path])
        return path

    def fed(self, name, arguments, pack):
        """Runs the trainer on `pack` and returns how many tensors each rank was fed."""
        self.capture(name, [TRAINER, *arguments], ["--replay", pack])
        return [json.loads(path.read_text())["fed"]
                for path in sorted((self.traces / name).glob("rank*/rank.json"))]

    def events(self, name):
        rank = json.loads((self.traces / name / "rank00000/rank.json").read_text())
        return {(event["what"], event["where"]) for event in rank["events"]}

    def test_a_run_fed_with_its_own_tensors_computes_every_bit_again(self):
        reference = self.trace("ref", [])
        self.assertEqual(self.fed("own", [], self.pack(reference, "--like", reference)), [FED])
        report = self.diff("own", "ref", expected=0)
        self.check_same(report)
        self.assertEqual((report["mode"], report["iterations"]), ("local", [0, 1]))
        unequal = [line["key"] for line in report["tensors"] if not line["bit_equal"]]
        self.assertEqual(unequal, [])
        self.assertEqual(self.events("own"), set())

    def test_healthy_layouts_are_the_same_whichever_side_is_fed(self):
        reference = self.trace("ref", [])
        for name, (layout, each) in LAYOUTS.items():
            with self.subTest(name):
                candidate = self.trace(name, layout)
                fed = self.fed(f"{name} own", [], self.pack(candidate, "--like", reference))
                self.assertEqual(fed, [FED])
                own = self.diff(f"{name} own", name, expected=0)
                pack = self.pack(reference, "--reshard-like", candidate)
                self.assertEqual(self.fed(f"{name} fed", layout, pack), each)
                fed = self.diff("ref", f"{name} fed", expected=0)
                for report in (own, fed):
                    self.check_same(report)
                    self.assertEqual((report["mode"], report["iterations"]), ("local", [0, 1]))
                    # A step is element-wise: from equal gradients and states, equal bits.
                    steps = report["coverage"]["phases"]["step"]
                    self.assertEqual(steps["bit_equal"], steps["compared"], steps)

    def test_each_bug_is_named_where_it_is(self):
        for case in BUGS:
            with self.subTest(case["name"]):
                reference = self.trace(" ".join(["ref", *case["model"]]), case["model"], "0")
                wrong = [*case["model"], *case["layout"], "--bug", case["bug"]]
                candidate = self.trace(case["name"], wrong, "0")
                self.fed(f"{case['name']} own", case["model"],
                         self.pack(candidate, "--like", reference))
                report = self.diff(f"{case['name']} own", case["name"], expected=1)
                self.assertEqual((report["verdict"], report["mode"]), ("differs", "local"))
                first = {part: report["first"][part] for part in ("module", "phase", "slot")}
                if case["first"]["phase"] == "missing":
                    self.assertEqual((report["findings"][0]["kind"], first["module"]),
                                     ("missing", case["first"]["module"]))
                else:
                    self.assertIn(first, [case["first"], *case["also"]])

    def test_an_iteration_whose_states_are_not_known_has_no_step(self):
        arguments = ["--iters", "3"]
        reference = self.trace("late", arguments, "2")
        candidate = self.trace("late tp2", [*arguments, "--tp", "2"], "2")
        self.fed("late own", arguments, self.pack(candidate, "--like", reference))
        report = self.diff("late own", "late tp2", expected=1)
        self.assertEqual({finding["phase"] for finding in report["findings"]}, {"step"})
        parameters = report["coverage"]["phases"]["param"]
        self.assertEqual(parameters["bit_equal"], parameters["compared"], parameters)
        self.assertGreater(parameters["compared"], 0)
        self.assertEqual(report["coverage"]["phases"]["step"]["compared"], 0)
        self.assertEqual(self.events("late own"), {("not recorded", "step")})

    def test_a_step_starts_from_values_gradients_and_momentum_of_the_pack(self):
        reference = self.trace("ref", [])
        pack = self.pack(reference, "--like", reference)
        made = {}
        random = numpy.random.default_rng(3)
        with open(pack, "r+b") as file:
            file.seek(8)
            (length,) = struct.unpack("<Q", file.read(8))
            tensors = json.loads(file.read(length))["tensors"]
            for name in ("it1/param/layers.2.fc1.weight/value",
                         "it1/grad/layers.2.fc1.weight/reduced",
                         "it0/step/layers.2.fc1.weight/momentum_buffer"):
                made[name] = random.standard_normal(tensors[name]["shape"]).astype("<f4")
                file.seek(-(-(16 + length) // 64) * 64 + tensors[name]["offset"])
                file.write(made[name].tobytes())
        self.fed("made up", [], pack)
        value, gradient, momentum = made.values()
        with h5py.File(self.traces / "made up/rank00000/it000001.h5") as segment:
            step = {name: data[()] for name, data in
                    segment["data/step/layers.2.fc1.weight"].items()}
        momentum = 0.9 * momentum.astype("f8") + gradient
        for name, wanted in (("momentum_buffer", momentum), ("param", value - 0.1 * momentum)):
            numpy.testing.assert_allclose(step[name], wanted, rtol=1e-6, atol=1e-6)

    def test_a_program_that_does_not_feed_is_no_replay(self):
        """It would agree with itself."""
        self.capture("client", [CLIENT, "fill", "3"])
        pack = self.pack(self.traces / "client", "--like", self.traces / "client")
        done = run([TOOLS / "ttrace-capture", "-q", "-o", self.traces / "client own", "--replay",
                    pack, "--", CLIENT, "fill", "3"])
        self.assertIn("not one tensor of the pack met one of this run", done.stderr)
        self.assertIn("ttrace_feed", done.stderr)
        done = run([TOOLS / "ttrace-diff", self.traces / "client own", self.traces / "client"], 2)
        self.assertIn("was fed with nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
