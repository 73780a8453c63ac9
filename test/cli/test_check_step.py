# SPDX-License-Identifier: Apache-2.0
"""ttrace-check on made-up traces of whole steps: norms, updates, what has changed.

Right values are worked out here with NumPy from the definitions.
"""
from __future__ import annotations

import json
import math
import unittest

import numpy as np

from made_checks import (F32, NO_GRADIENT, PASSED, TRAINABLE, TROUBLE, VIOLATED, CheckTest, along, drawn,
                         tensor)


class Norm(CheckTest):
    def ranks(self, norms, factors, clipping=(True, True)) -> list:
        """Halves of a weight, and a bias that both ranks have."""
        weight, bias = drawn(1, 8, 4), drawn(2, 8)
        halves = [weight[:4], weight[4:]]
        ranks = []
        for rank in range(2):
            cut = json.dumps({"dims": "h[tp] d", "shape": [8, 4]})
            both = json.dumps({"dims": "h", "shape": [8]})
            tensors = {"a.weight": (halves[rank], cut), "a.bias": (bias, both)}
            records = [tensor(f"it0/grad/{name}/reduced", values, layout=layout)
                       for name, (values, layout) in tensors.items()]
            if clipping[rank]:
                records.append(tensor("it0/grad/@root/norm", F32(norms[rank])))
                records += [tensor(f"it0/grad/{name}/clipped", values * F32(factors[rank]),
                                   layout=layout) for name, (values, layout) in tensors.items()]
            ranks.append([records])
        return ranks

    WHOLE = math.sqrt(float((drawn(1, 8, 4).astype(float) ** 2).sum()
                            + (drawn(2, 8).astype(float) ** 2).sum()))
    COPIES_TWICE = math.sqrt(float((drawn(1, 8, 4).astype(float) ** 2).sum()
                                   + 2 * (drawn(2, 8).astype(float) ** 2).sum()))

    def run_check(self, code, *arguments):
        trace = self.trace(self.ranks(*arguments), axes=along("tp", 2))
        return self.check(trace, code, "norm")["norm"]

    def test_each_element_counts_once(self):
        result = self.run_check(PASSED, [self.WHOLE] * 2, [0.25] * 2)
        self.assertEqual(result["compared"]["gradients in recomputed norms"], 3)

    def test_copies_that_count_for_each_rank(self):
        found = self.only(self.run_check(VIOLATED, [self.COPIES_TWICE] * 2, [0.25] * 2))
        self.assertIn("it counts copies once for each rank that has one", found["what"])

    def test_one_factor_for_all_ranks(self):
        found = self.only(self.run_check(VIOLATED, [self.WHOLE] * 2, [0.25, 0.5]))
        self.assertIn("0.25 on rank 0, 0.5 on rank 1", found["what"])

    def test_clipping_on_one_rank_only(self):
        found = self.only(self.run_check(VIOLATED, [self.WHOLE] * 2, [0.25] * 2, (False, True)))
        self.assertIn("gradients are clipped on rank 1 only, not on rank 0", found["what"])

    def test_norms_that_differ_between_ranks(self):
        found = self.only(self.run_check(VIOLATED, [self.WHOLE, self.WHOLE / 2], [0.25] * 2))
        self.assertIn("report different gradient norms", found["what"])


ADAMW = {"class": "torch.optim.adamw.AdamW",
         "values": {"lr": 0.01, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1,
                    "amsgrad": False, "maximize": False}, "parameters": ["fc.weight"]}
SGD = {"class": "torch.optim.sgd.SGD", "parameters": ["fc.weight"],
       "values": {"lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 0.01,
                  "nesterov": True, "maximize": False}}


class Update(CheckTest):
    def adamw(self, spoil=None) -> list:
        """Two steps of AdamW (arXiv 1711.05101, algorithm 2), stored in float32."""
        p = drawn(1, 6, 5).astype(float)
        m, v = np.zeros_like(p), np.zeros_like(p)
        iterations = []
        for i in range(2):
            g = drawn(5 + i, 6, 5).astype(float)
            before = p.astype(F32)
            m = 0.9 * m + 0.1 * g
            v = 0.99 * v + 0.01 * g * g
            corrected = (m / (1 - 0.9 ** (i + 1))) / (np.sqrt(v / (1 - 0.99 ** (i + 1))) + 1e-8)
            p = before * (1 - 0.01 * 0.1) - 0.01 * corrected
            stored = {"param": p.astype(F32), "exp_avg": m.astype(F32), "exp_avg_sq": v.astype(F32)}
            if spoil:
                spoil(i, stored, before)
            m, v, p = (stored[key].astype(float) for key in ("exp_avg", "exp_avg_sq", "param"))
            iterations.append([tensor(f"it{i}/param/fc.weight/value", before, flags=TRAINABLE),
                               tensor(f"it{i}/grad/fc.weight/reduced", g),
                               *(tensor(f"it{i}/step/fc.weight/{slot}", value)
                                 for slot, value in stored.items())])
        return iterations

    def told(self, what) -> dict:
        return {"0": [{**what, "steps": 0}], "1": [{**what, "steps": [1]}]}

    def test_adamw_computed_again_from_the_paper(self):
        trace = self.trace([self.adamw()], updates=self.told(ADAMW))
        result = self.check(trace, PASSED, "update", "changed")
        self.assertEqual(result["update"]["compared"],
                         {"optimizer states": 4, "parameters after the step": 2})

    def test_a_state_that_was_reset(self):
        def spoil(i, stored, before):
            if i == 1:
                stored["exp_avg"] = F32(0.1) * drawn(6, 6, 5)
        result = self.check(self.trace([self.adamw(spoil)], updates=self.told(ADAMW)), VIOLATED,
                            "update")["update"]
        self.assertIn("exp_avg", [v["key"].split("/")[-1] for v in result["violations"]])

    def test_an_update_of_half_the_size(self):
        def spoil(i, stored, before):
            if i == 0:
                kept = before.astype(float) * (1 - 0.001)
                stored["param"] = (kept + (stored["param"] - kept) / 2).astype(F32)
        found = self.only(self.check(self.trace([self.adamw(spoil)], updates=self.told(ADAMW)),
                                     VIOLATED, "update")["update"])
        self.assertIn("the change is 0.5 x the right one", found["what"])

    def test_a_parameter_that_stays_although_it_should_move(self):
        def spoil(i, stored, before):
            stored["param"] = before
        result = self.check(self.trace([self.adamw(spoil)], updates=self.told(ADAMW)), VIOLATED,
                            "changed")["changed"]
        self.assertIn("has a gradient and does not change", result["violations"][0]["what"])

    def sgd(self, momentum: bool) -> list:
        p, buffer = drawn(1, 6, 5).astype(float), None
        iterations = []
        for i in range(2):
            gradient = drawn(5 + i, 6, 5)
            before = p.astype(F32)
            d = gradient + 0.01 * before.astype(float)
            buffer = d if buffer is None or not momentum else 0.9 * buffer + d
            stored = buffer.astype(F32)
            buffer = stored.astype(float)
            p = before - 0.1 * (d + 0.9 * buffer)
            iterations.append([tensor(f"it{i}/param/fc.weight/value", before, flags=TRAINABLE),
                               tensor(f"it{i}/grad/fc.weight/reduced", gradient),
                               tensor(f"it{i}/step/fc.weight/momentum_buffer", stored),
                               tensor(f"it{i}/step/fc.weight/param", p.astype(F32))])
        return iterations

    def test_sgd_with_nesterov_momentum(self):
        told = {"0": [{**SGD, "steps": 0}], "1": [{**SGD, "steps": None}]}
        good = self.trace([self.sgd(True)], updates=told, name="good")
        self.assertEqual(self.check(good, PASSED, "update")["update"]["compared"],
                         {"optimizer states": 2, "parameters after the step": 2})
        found = self.only(self.check(self.trace([self.sgd(False)], updates=told), VIOLATED,
                                     "update")["update"])
        self.assertEqual(found["key"], "it1/step/fc.weight/momentum_buffer")

    def test_what_is_not_told_is_not_checked(self):
        result = self.check(self.trace([self.adamw()]), TROUBLE, "update")["update"]
        self.assertIn("does not say what the optimizer", next(iter(result["not_checked"])))
        other = {**ADAMW, "class": "lion.Lion"}
        result = self.check(self.trace([self.adamw()], updates=self.told(other), name="lion"),
                            TROUBLE, "update")["update"]
        self.assertIn("lion.Lion is not known here", next(iter(result["not_checked"])))

    def test_bfloat16_is_the_rounded_master(self):
        master = np.array([1.0, 1.00390625, 3.3, -0.1], F32)  # the second lies between two: to even
        rounded = [1.0, 1.0, 3.296875, -0.10009765625]

        def records(stored):
            return [[tensor("it0/step/fc.weight/param", stored, "bfloat16"),
                     tensor("it0/step/fc.weight/master", master)]]

        self.check(self.trace([records(rounded)], name="good"), PASSED, "update")
        stale = [*rounded[:2], 3.3125, rounded[3]]
        found = self.only(self.check(self.trace([records(stale)]), VIOLATED, "update")["update"])
        self.assertIn("1 of 4 elements are not the float32 master", found["what"])


class Changed(CheckTest):
    def test_a_frozen_parameter_that_moves_and_an_average_that_may(self):
        start, target = drawn(1, 8, 4), drawn(2, 8, 4)

        def iteration(number, frozen):
            return [tensor(f"it{number}/param/slow.weight/value", frozen),
                    tensor(f"it{number}/param/fast.weight/value", target - F32(1),
                           flags=TRAINABLE),
                    tensor(f"it{number}/grad/fast.weight/reduced", drawn(3, 8, 4)),
                    tensor(f"it{number}/step/fast.weight/param", target, flags=TRAINABLE)]

        moved = [iteration(0, start), iteration(1, start * F32(1.5))]
        result = self.check(self.trace([moved]), VIOLATED, "changed")["changed"]
        found = next(v for v in result["violations"] if v["certainty"] != "possible")
        self.assertEqual(found["module"], "slow.weight")
        average = [iteration(0, start), iteration(1, F32(0.9) * start + F32(0.1) * target)]
        self.check(self.trace([average], name="c"), PASSED, "changed")

    def test_a_parameter_that_no_optimizer_has(self):
        def parameter(name, after, gradient):
            return [tensor(f"it0/param/{name}/value", drawn(1, 8), flags=TRAINABLE),
                    *([tensor(f"it0/grad/{name}/reduced", drawn(2, 8))] if gradient else []),
                    tensor(f"it0/step/{name}/param", after, flags=TRAINABLE)]

        records = (parameter("a.weight", drawn(3, 8), True) + parameter("b.weight", drawn(1, 8), False)
                   + parameter("c.weight", drawn(4, 8), True))
        found = self.only(self.check(self.trace([[records]]), VIOLATED, "changed")["changed"])
        self.assertEqual((found["module"], found["certainty"]), ("b.weight", "likely"))

    def test_a_body_that_is_left_out_of_the_optimizer_is_meant(self):
        records = []
        for name, moves in (("a.weight", False), ("b.weight", False), ("head.weight", True)):
            records += [tensor(f"it0/param/{name}/value", drawn(1, 8), flags=TRAINABLE),
                        *([tensor(f"it0/grad/{name}/reduced", drawn(2, 8))] if moves else []),
                        tensor(f"it0/step/{name}/param", drawn(3 if moves else 1, 8),
                               flags=TRAINABLE)]
        result = self.check(self.trace([[records]]), PASSED, "changed")["changed"]
        self.assertEqual([(v["module"], v["certainty"]) for v in result["violations"]],
                         [("a.weight", "possible"), ("b.weight", "possible")])

    def test_no_gradient_is_named_and_a_violation_where_the_output_has_one(self):
        def records(output, trainable=TRAINABLE):
            values = drawn(1, 8)
            backward = [tensor("it0/mb0/backward/fc/grad_output.0", drawn(4, 2, 8))]
            return [tensor("it0/param/fc.weight/value", values, flags=trainable),
                    *(backward if output else []),
                    tensor("it0/step/fc.weight/param", values, flags=trainable | NO_GRADIENT),
                    tensor("it0/param/b.weight/value", values, flags=TRAINABLE),
                    tensor("it0/grad/b.weight/reduced", values),
                    tensor("it0/step/b.weight/param", values + F32(1), flags=TRAINABLE)]

        unused = self.check(self.trace([[records(False)]], {"fc": "Linear"}), PASSED, "changed")
        self.assertEqual(self.only(unused["changed"])["certainty"], "possible")
        cut_off = self.check(self.trace([[records(True)]], {"fc": "Linear"}, name="b"), VIOLATED,
                             "changed")
        self.assertEqual(self.only(cut_off["changed"])["certainty"], "likely")
        frozen = self.check(self.trace([[records(True, 0)]], {"fc": "Linear"}, name="c"), PASSED,
                            "changed")  # although an optimizer has it
        self.assertEqual(frozen["changed"]["violations"], [])


if __name__ == "__main__":
    unittest.main()
