#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--replay and --perturb: what is put in the places of computed tensors, and what must not break."""
import hashlib
import sys
import unittest

import torch

from agent_runs import BUILD, PROGRAMS, CaptureTest, Trace

MERGE = BUILD / "tools" / "ttrace-merge"
BOTH = ("--iterations", "0-1")


class Replay(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference, cls.printed = cls.capture("reference", "replayed.py", options=BOTH)

    def packed(self, name, trace, like="reference"):
        pack = self.scratch / f"{name}.pack"
        self.run_command([MERGE, "-q", trace.path, "--pack", "--like", self.scratch / like, "-o",
                          pack])
        return pack

    def replay(self, name, pack, *arguments):
        trace, _ = self.capture(name, "replayed.py", *arguments, options=("--replay", pack))
        self.assertFalse(trace.rank()["degraded"], trace.events())
        return trace

    def differing(self, one, other, iteration=0):
        """Keys of records whose bits are not equal; both must have the same records."""
        left, right = one.segment(iteration), other.segment(iteration)
        self.assertEqual(left.keys(), right.keys())
        return {key for key in left.keys()
                if not torch.equal(as_bytes(left[key]), as_bytes(right[key]))}

    def test_a_run_fed_with_its_own_tensors_computes_every_bit_again(self):
        pack = self.packed("self", self.reference)
        before = hashlib.sha256(pack.read_bytes()).digest()
        own = self.replay("own", pack)
        self.assertEqual(before, hashlib.sha256(pack.read_bytes()).digest())
        for iteration in (0, 1):
            self.assertEqual(self.differing(own, self.reference, iteration), set())
            rows = self.reference.segment(iteration)
            # Keys and values are views that a module is given by keyword.
            for name in ("key", "value"):
                self.assertIn(f"mb0/backward/attention.core/grad_input.{name}", rows.keys())

    def test_tensors_with_several_consumers_get_the_sum_of_their_gradients_once(self):
        """Also where it is differentiated again: that one must keep its graph."""
        first, printed = self.capture("shared", "shared_tensors.py", options=BOTH)
        plain = self.run_command([sys.executable, PROGRAMS / "shared_tensors.py"])
        self.assertEqual(printed.stdout, plain.stdout)
        pack = self.packed("shared", first, like="shared")
        own, again = self.capture("own-shared", "shared_tensors.py", options=("--replay", pack))
        self.assertEqual(again.stdout, plain.stdout)
        for iteration in (0, 1):
            self.assertEqual(self.differing(own, first, iteration), set())

    def test_only_what_is_wrong_differs_from_what_it_is_computed_again_to_be(self):
        """A factor in one module: its output, the gradient that leaves it, and its weight's."""
        candidate, _ = self.capture("wrong", "replayed.py", "--bug", options=BOTH)
        own = self.replay("own-wrong", self.packed("wrong", candidate))
        for iteration in (0, 1):
            odd = self.differing(own, candidate, iteration)
            wrong = {f"mb{number}/{key}" for number in (0, 1) for key in (
                "forward/middle.inside/output.0", "forward/middle/output.0",
                "backward/middle.inside.inner/grad_output.0")}
            self.assertEqual(odd, wrong)
        segment, theirs = own.segment(), candidate.segment()
        for number in (0, 1):
            output = f"mb{number}/forward/middle.inside/output.0"
            inner = f"mb{number}/forward/middle.inside.inner/output.0"
            self.assert_same_bits(segment[output].value(), theirs[inner].value())
            self.assert_same_bits(theirs[output].value(), theirs[inner].value() * 1.5)

    def test_the_running_program_decides_the_type(self):
        candidate, _ = self.capture("bf16", "replayed.py", "--dtype", "bfloat16", options=BOTH)
        high = self.replay("high", self.packed("bf16", candidate))
        theirs, ours = candidate.segment(1), high.segment(1)
        key = "mb1/forward/squash/output.0"
        self.assertEqual((theirs[key].dtype, ours[key].dtype), (torch.bfloat16, torch.float32))
        given = theirs["mb1/forward/other/output.0"].value().float()
        weight = theirs["param/squash.weight/value"].value().float()
        bias = theirs["param/squash.bias/value"].value().float()
        torch.testing.assert_close(ours[key].value(), given @ weight.T + bias, rtol=1e-5,
                                   atol=1e-6)

    def test_a_step_whose_states_are_not_known_is_not_recorded(self):
        late, _ = self.capture("late", "replayed.py", "--iters", "3", options=("--iterations", "2"))
        own = self.replay("own-late", self.packed("late", late, "late"), "--iters", "3")
        self.assertEqual(own.iterations(), [2])
        segment = own.segment(2)
        self.assertEqual(segment.keys("step"), set())
        self.assertIn(("not recorded", "step"), own.events())
        odd = {key for key in segment.keys() if not torch.equal(
            as_bytes(segment[key]), as_bytes(late.segment(2)[key]))}
        self.assertEqual(odd, set())

    def test_what_is_no_pack_is_refused(self):
        wrong = self.scratch / "wrong.pack"
        wrong.write_bytes(b"TTRACEPKnothing")
        for options, words in ((("--replay", wrong), "pack"),
                               (("--replay", self.scratch / "absent"), "No such file"),
                               (("--replay", self.packed("p", self.reference), "--perturb", "1"),
                                "exclude")):
            with self.subTest(options):
                _, done = self.capture("refused", "replayed.py", options=options, expected=2)
                self.assertIn(words, done.stderr)

    def test_perturbed_runs_round_a_little_differently(self):
        traces = [self.capture(f"perturbed{seed}", "replayed.py",
                               options=("--perturb", seed))[0] for seed in (1, 2)]
        again, _ = self.capture("again", "replayed.py", options=("--perturb", 1))
        self.assertEqual(self.differing(traces[0], again), set())
        self.assertNotEqual(self.differing(traces[0], traces[1]), set())
        key = "mb0/forward/attention.qkv/output.0"
        plain, moved = (trace.segment()[key].value() for trace in (self.reference, traces[0]))
        self.assertFalse(torch.equal(plain, moved))
        torch.testing.assert_close(moved, plain, rtol=1e-5, atol=1e-6)
        # The lookup is exact, and untouched rows have no gradient in either.
        lookup = "mb0/forward/words/output.0"
        self.assert_same_bits(traces[0].segment()[lookup].value(),
                              self.reference.segment()[lookup].value())


def as_bytes(row):
    return row.value().contiguous().reshape(-1).view(torch.uint8)


if __name__ == "__main__":
    unittest.main()
