# SPDX-License-Identifier: Apache-2.0
"""What ttrace-check says of where operands of collectives come from, and where results go."""
from __future__ import annotations

import unittest

import numpy as np

from made_checks import F32, PASSED, TROUBLE, VIOLATED, along, drawn
from made_collectives import CollectiveTest, Made


class Fresh(CollectiveTest):
    LAYERS = 4

    def made(self, stale=(), function="all_reduce", same_data=False, iterations=2) -> Made:
        """`stale`: (iteration, micro-batch, layer) whose input on rank 1 is the one before."""
        made = Made(2, along("tp", 2))
        before = {}
        for i in range(iterations):
            for m in range(2):
                for layer in range(self.LAYERS):
                    seed = 0 if same_data else 2 * i + m
                    x = [drawn(1000 + seed * 100 + layer * 10 + r, 32) for r in range(2)]
                    if (i, m, layer) in stale:
                        x[1] = before[layer]
                    before[layer] = x[1]
                    result = sum(x) if function == "all_reduce" else np.concatenate(x)
                    made.call(function, "tp", [0, 1], x, [result] * 2, iteration=i, microbatch=m,
                              module=f"layers.{layer}.fc2", reduction="sum")
        return made

    def test_a_buffer_that_nobody_filled(self):
        for function in ("all_reduce", "all_gather"):
            found = self.only(self.run_check(self.made([(0, 1, 2)], function), VIOLATED, "fresh"))
            self.assertEqual((found["ranks"], found["module"], found["iteration"],
                              found["microbatch"]), ([1], "layers.2.fc2", 0, 1))
            self.assertIn("the same bits as in micro-batch 0, while 3 other inputs", found["what"])

    def test_across_iterations_only_reductions_tell(self):
        stale = [(1, 0, 1)]
        found = self.only(self.run_check(self.made(stale), VIOLATED, "fresh"))
        self.assertEqual((found["iteration"], found["microbatch"]), (1, 0))
        self.silent(self.made(stale, "all_gather"), PASSED, "fresh")

    def test_equal_data_in_each_micro_batch(self):
        self.silent(self.made(), PASSED, "fresh")
        self.silent(self.made(same_data=True), TROUBLE, "fresh")

    def test_a_mask_that_goes_with_each_tensor(self):
        """What is the same in all layers is meant to be, though what goes beside it changes."""
        made = self.made()
        mask = np.tril(np.ones((8, 4), F32))
        for i in range(2):
            for m in range(2):
                for layer in range(self.LAYERS):
                    made.call("all_reduce", "tp", [0, 1], [mask] * 2, [2 * mask] * 2, iteration=i,
                              microbatch=m, module=f"layers.{layer}.fc2", reduction="sum")
        self.silent(made, PASSED, "fresh")

    def test_parameters_that_are_gathered_again(self):
        """As FSDP does: the same shards in each micro-batch, activations that change beside them."""
        made = self.made()
        for i in range(2):
            for m in range(2):
                for layer in range(self.LAYERS):
                    shards = [drawn(50 + 10 * i + layer * 2 + r, 32) for r in range(2)]
                    made.call("all_gather", "tp", [0, 1], shards, [np.concatenate(shards)] * 2,
                              iteration=i, microbatch=m, module=f"layers.{layer}")
        self.silent(made, PASSED, "fresh")


class Sends(CollectiveTest):
    """A stage that sends its last layer's output to the next one, with nothing else to compare."""

    def made(self, stale: bool) -> Made:
        made = Made(2, along("pp", 2))
        output = [drawn(seed, 32) for seed in range(4)]
        for m in range(4):
            made.record(0, f"it0/mb{m}/forward/layers.1/output.0", output[m])
            sent = output[m // 2 * 2] if stale else output[m]
            made.pair("pp", 2, (0, 0), (1, 1), sent, sent, microbatch=m, module="layers.1")
        return made

    def test_two_buffers_of_which_the_first_is_sent_every_time(self):
        result = self.run_check(self.made(True), VIOLATED, "fresh")
        self.assertEqual([(v["microbatch"], v["ranks"], v["module"]) for v in result["violations"]],
                         [(1, [0], "layers.1"), (3, [0], "layers.1")])
        first = result["violations"][0]
        self.assertIn("call 1 of group pp (ranks 0, 1; along pp) in layers.1, micro-batch 1: rank 0 "
                      "puts in the same bits as in micro-batch 0; that was "
                      "it0/mb0/forward/layers.1/output.0, and it0/mb1/forward/layers.1/output.0, "
                      "which is another, was there before", first["what"])
        self.assertIn("which buffer does the send that layers.1 makes read?", first["look_at"])

    def test_each_its_own(self):
        self.silent(self.made(False), TROUBLE, "fresh")


class Waited(CollectiveTest):
    def made(self, early=(), other=(), ranks=(1,)) -> Made:
        """Layers that compute with what they gather. `early`: (micro-batch, layer) where `ranks` have
        that of the micro-batch before; `other`: where they have something else."""
        made = Made(2, along("tp", 2))
        before = {}
        for m in range(3):
            for layer in range(4):
                name = f"layers.{layer}"
                x = [drawn(100 * m + layer * 10 + r, 16) for r in range(2)]
                whole = np.concatenate(x)
                made.call("all_gather", "tp", [0, 1], x, [whole] * 2, microbatch=m,
                          module=f"{name}.attention")
                for rank in range(2):
                    read = whole
                    if rank in ranks and (m, layer) in early:
                        read = before[layer]
                    if rank in ranks and (m, layer) in other:
                        read = whole + F32(1)
                    made.record(rank, f"it0/mb{m}/forward/{name}.fc1/input.0", read)
                    made.record(rank, f"it0/mb{m}/forward/{name}.fc1/output.0", read * F32(2))
                before[layer] = whole
        return made

    def test_what_was_waited_for(self):
        self.assertEqual(self.silent(self.made(), PASSED, "waited")["compared"],
                         {"tensors with the output that they are": 24})

    def test_the_output_of_the_micro_batch_before(self):
        result = self.run_check(self.made([(1, 2)]), VIOLATED, "waited")
        found = result["violations"][0]
        self.assertEqual((found["ranks"], found["key"], found["certainty"]),
                         ([1], "it0/mb1/forward/layers.2.fc1/input.0", "likely"))
        self.assertIn("put out in micro-batch 0, not what it puts out now", found["what"])

    def test_something_else_where_others_have_the_output(self):
        found = self.only(self.run_check(self.made(other=[(2, 1)]), VIOLATED, "waited"))
        self.assertEqual(found["key"], "it0/mb2/forward/layers.1.fc1/input.0")
        self.assertIn("as it is in 23 of 24 such places", found["what"])

    def test_a_last_layer_may_be_another(self):
        odd = [(m, 3) for m in range(3)]
        result = self.run_check(self.made((), odd, (0, 1)), PASSED, "waited")
        self.assertEqual({found["certainty"] for found in result["violations"]}, {"possible"})

    def test_the_backward_pass_of_an_earlier_micro_batch(self):
        """Forward passes of 0 and 1, then the backward pass of 0 with what was gathered for it."""
        made = self.made()
        for m in range(2):
            x = [drawn(100 * m + r, 16) for r in range(2)]
            made.record(1, f"it0/mb{m}/backward/layers.0.fc1/grad_output.0", np.concatenate(x))
        self.silent(made, PASSED, "waited")


class Mixed(CollectiveTest):
    """Gradients of eight parameters, averaged over two ranks or summed."""

    def made(self, kinds, *, axis="dp", after=lambda name, value: value, named=True,
             buffers=True) -> Made:
        made = Made(2, along(axis, 2))
        for number, (kind, factor) in enumerate(kinds):
            name = f"layers.{number}.weight"
            inputs = [drawn(10 * number + rank, 32) for rank in range(2)]
            total = inputs[0] + inputs[1]
            value = total / F32(2) if kind == "avg" or factor == 0.5 else total
            sides = (inputs, [value] * 2) if buffers else ([None] * 2, [None] * 2)
            made.call("all_reduce", "g", [0, 1], *sides, reduction=kind, factor=factor,
                      module=name if named else "layers", count=32)
            for rank in range(2):
                made.record(rank, f"it0/grad/{name}/reduced", after(name, value))
        return made

    SUM, AVG, HALF = ("sum", 1.0), ("avg", 1.0), ("premul_sum", 0.5)

    def odd(self, code, certainty, kinds, **more):
        found = self.only(self.run_check(self.made(kinds, **more), code, "mixed"))
        self.assertEqual((found["certainty"], found["ranks"], found["module"]),
                         (certainty, [0, 1], "layers.3.weight"))
        return found["what"]

    def test_all_alike(self):
        for kinds in ([self.SUM] * 8, [self.AVG] * 8, [self.AVG, self.HALF] * 4):
            result = self.silent(self.made(kinds), PASSED, "mixed")
            self.assertEqual(result["compared"], {"reductions of gradients": 16})

    def test_one_sum_among_averages(self):
        kinds = [*[self.AVG] * 3, self.SUM, *[self.AVG] * 4]
        for named in (True, False):  # by its module, or by what the optimizer was given
            self.assertIn("is summed over group g (ranks 0, 1; along dp), where those of 7 other "
                          "parameters are averaged", self.odd(VIOLATED, "likely", kinds, named=named))

    def test_one_average_among_sums(self):
        self.assertIn("is averaged over", self.odd(VIOLATED, "likely",
                                                   [*[self.SUM] * 3, self.AVG, *[self.SUM] * 4]))

    def test_what_the_program_divides_itself(self):
        kinds = [*[self.AVG] * 3, self.SUM, *[self.AVG] * 4]
        halve = lambda name, value: value / F32(2) if "3" in name else value  # noqa: E731
        self.silent(self.made(kinds, after=halve), PASSED, "mixed")

    def test_what_is_only_possible(self):
        kinds = [*[self.AVG] * 3, self.SUM, *[self.AVG] * 4]
        self.odd(PASSED, "possible", kinds, axis="tp")  # a sum of parts beside means of copies
        self.odd(PASSED, "possible", kinds, buffers=False)
        self.odd(PASSED, "possible", kinds, after=lambda name, value: value / F32(7))

    def test_losses_and_norms_are_no_gradients(self):
        made = self.made([self.AVG] * 8)
        for module in ("loss", "@root"):
            made.call("all_reduce", "g", [0, 1], [drawn(1, 1), drawn(2, 1)],
                      [drawn(1, 1) + drawn(2, 1)] * 2, reduction="sum", module=module)
        self.silent(made, PASSED, "mixed")

    def test_half_of_them(self):
        result = self.silent(self.made([self.AVG, self.SUM] * 4), PASSED, "mixed")
        self.assertEqual(result["compared"], {"reductions of gradients": 8})


if __name__ == "__main__":
    unittest.main()
