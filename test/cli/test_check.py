# SPDX-License-Identifier: Apache-2.0
"""ttrace-check on made-up traces: what each check finds, and what it must leave alone.

Right values are worked out here with NumPy from the definitions.
"""
from __future__ import annotations

import json
import math
import subprocess
import unittest

import numpy as np

from made_traces import BUILD, MAKE_TRACE, DiffTest, record

CHECK = BUILD / "tools" / "ttrace-check"
PASSED, VIOLATED, TROUBLE = 0, 1, 2
TRAINABLE, ROOT_INPUT, NO_GRADIENT = 1, 2, 8
F32 = np.float32


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def tensor(key: str, values, dtype: str = "float32", **more) -> dict:
    values = np.asarray(values)
    numbers = [int(v) if dtype in ("int64", "bool") else
               float(v) if math.isfinite(v) else repr(float(v)) for v in values.ravel()]
    return record(key, list(values.shape), numbers, dtype, **more)


def module(kind: str) -> dict:
    return {"class": kind, "forward": "model.py:1", "expected": True, "calls": 1,
            "returned_tensor": True}


class CheckTest(DiffTest):
    def trace(self, ranks: list, modules: dict | None = None, axes=None, updates=None,
              name: str = "run.trace"):
        """`ranks`: for each rank a list of iterations, each a list of records."""
        described = []
        for number, iterations in enumerate(ranks):
            info = {"world_size": len(ranks),
                    "modules": {key: module(kind) for key, kind in (modules or {}).items()}}
            if axes is not None:
                info["axes"] = axes(number)
            if updates is not None:
                info["updates"] = updates
            described.append({"rank": number, "rank_json": info, "segments": [
                {"iteration": i, "records": records} for i, records in enumerate(iterations)]})
        return self.write_ranks(name, described)

    def check(self, trace, code: int, *names: str) -> dict:
        """The results of the checks, by name."""
        chosen = ["--check", ",".join(names)] if names else []
        done = subprocess.run([CHECK, trace, *chosen, "--json", "-"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return {entry["name"]: entry for entry in json.loads(done.stdout)["checks"]}

    def only(self, result: dict) -> dict:
        self.assertEqual(len(result["violations"]), 1, result)
        return result["violations"][0]


def along(axis: str, size: int):
    return lambda rank: [{"name": axis, "size": size, "coord": rank}]


def dp_tp(rank: int) -> list:
    return [{"name": "dp", "size": 2, "coord": rank // 2}, {"name": "tp", "size": 2,
                                                            "coord": rank % 2}]


class Replicas(CheckTest):
    def test_the_rank_that_deviates_is_named_with_its_error(self):
        right = drawn(1, 4, 8)
        wrong = right * F32(1.25)

        def records(gradient):
            return [tensor("it0/param/fc.weight/value", drawn(2, 4, 8), flags=TRAINABLE),
                    tensor("it0/grad/fc.weight/reduced", gradient)]

        ranks = [[records(right)], [records(right)], [records(wrong)], [records(right)]]
        result = self.check(self.trace(ranks, axes=along("dp", 4)), VIOLATED, "replicas")
        found = self.only(result["replicas"])
        self.assertEqual((found["ranks"], found["module"], found["key"], found["certainty"]),
                         ([2], "fc.weight", "it0/grad/fc.weight/reduced", "certain"))
        self.assertIn("rank 2 differs from ranks 0, 1, 3, relative error 0.25", found["what"])
        self.assertEqual(result["replicas"]["compared"], {"gradients": 1, "parameters before": 1})

    def test_shards_of_a_declared_layout_may_differ_and_their_copies_not(self):
        whole = drawn(3, 4, 6)

        def records(rank, weight):
            layout = json.dumps({"dims": "h[tp] d", "shape": [4, 6]})
            return [tensor("it0/param/fc.weight/value", weight, layout=layout)]

        shards = [whole[:2], whole[2:], whole[:2], whole[2:]]
        ranks = [[records(rank, shard)] for rank, shard in enumerate(shards)]
        healthy = self.check(self.trace(ranks, axes=dp_tp), PASSED, "replicas")
        self.assertEqual(healthy["replicas"]["compared"], {"parameters before": 2})
        ranks[3] = [records(3, whole[2:] + F32(1))]
        found = self.only(self.check(self.trace(ranks, axes=dp_tp, name="b"), VIOLATED,
                                     "replicas")["replicas"])
        self.assertEqual(found["ranks"], [1, 3])

    def test_parts_without_a_declaration_are_left_alone(self):
        """Two columns of a matrix, a bias of zeros that becomes two parts: nothing says copies."""
        def iteration(number, rank):
            bias = drawn(10 + rank, 8) if number else np.zeros(8, F32)
            return [tensor(f"it{number}/param/fc.weight/value", drawn(20 + rank, 8, 3)),
                    tensor(f"it{number}/param/fc.bias/value", bias),
                    tensor(f"it{number}/param/norm.weight/value", drawn(5 + number, 3))]

        ranks = [[iteration(0, rank), iteration(1, rank)] for rank in range(2)]
        result = self.check(self.trace(ranks, axes=along("stride1", 2)), PASSED, "replicas")
        self.assertEqual(result["replicas"]["compared"], {"parameters before": 2})

    def test_one_rank_has_no_copies_and_nothing_is_called_passed(self):
        result = self.check(self.trace([[[tensor("it0/param/a/value", drawn(1, 8))]]]), TROUBLE,
                            "replicas")
        self.assertEqual(result["replicas"]["verdict"], "not checked")
        self.assertIn("one rank", next(iter(result["replicas"]["not_checked"])))


class Tied(CheckTest):
    def records(self, gradients_equal: bool) -> list:
        start = drawn(1, 16, 4)
        other = drawn(2, 16, 4) if gradients_equal else drawn(3, 16, 4)
        return [tensor("it0/param/words.weight/value", start, flags=TRAINABLE),
                tensor("it0/param/head.weight/value", start, flags=TRAINABLE),
                tensor("it0/param/query.weight/value", drawn(9, 16, 4), flags=TRAINABLE),
                tensor("it0/grad/words.weight/reduced", drawn(2, 16, 4)),
                tensor("it0/grad/head.weight/reduced", other),
                tensor("it0/grad/query.weight/reduced", drawn(8, 16, 4))]

    MODULES = {"words": "Embedding", "head": "Linear", "query": "Linear"}

    def test_an_embedding_and_a_head_that_start_equal_must_get_one_gradient(self):
        good = self.trace([[self.records(True)]], self.MODULES, name="good")
        self.assertEqual(self.check(good, PASSED, "tied")["tied"]["compared"],
                         {"gradients of tied weights": 1})
        bad = self.trace([[self.records(False)]], self.MODULES)
        found = self.only(self.check(bad, VIOLATED, "tied")["tied"])
        self.assertIn("`words.weight` and `head.weight` are tied", found["what"])

    def test_layers_that_start_as_copies_are_not_tied(self):
        modules = {**self.MODULES, "words": "Linear"}
        self.check(self.trace([[self.records(False)]], modules), TROUBLE, "tied")


class Zeroed(CheckTest):
    def embedding(self, keep: bool) -> list:
        """Rows 0-9 get something in iteration 0, rows 5-14 in iteration 1."""
        first, second = np.zeros((16, 8), F32), np.zeros((16, 8), F32)
        first[:10], second[5:15] = drawn(1, 10, 8), drawn(2, 10, 8)
        gradients = [first, second + first if keep else second]
        return [[tensor(f"it{i}/param/words.weight/value", drawn(3 + i, 16, 8), flags=TRAINABLE),
                 tensor(f"it{i}/grad/words.weight/reduced", gradient)]
                for i, gradient in enumerate(gradients)]

    def test_rows_that_got_nothing_new_show_the_old_gradient(self):
        good = self.check(self.trace([self.embedding(False)], name="good"), PASSED, "zeroed")
        self.assertEqual(good["zeroed"]["compared"], {"rows of gradients": 10})
        found = self.only(self.check(self.trace([self.embedding(True)]), VIOLATED,
                                     "zeroed")["zeroed"])
        self.assertIn("5 rows of 15", found["what"])
        self.assertEqual((found["iteration"], found["module"]), (1, "words.weight"))

    def bias(self, keep: bool) -> list:
        iterations, before = [], np.zeros(12, F32)
        for i in range(2):
            outputs = [drawn(10 * i + m, 6, 12) for m in range(2)]
            gradient = sum(o.sum(0) for o in outputs) / F32(2) + (before if keep else 0)
            before = gradient.astype(F32)
            iterations.append([
                tensor(f"it{i}/param/fc.bias/value", drawn(3 + i, 12), flags=TRAINABLE),
                *(tensor(f"it{i}/mb{m}/backward/fc/grad_output.0", output)
                  for m, output in enumerate(outputs)),
                tensor(f"it{i}/grad/fc.bias/reduced", before)])
        return iterations

    def test_a_bias_is_the_sum_of_its_output_gradients_and_nothing_else(self):
        good = self.check(self.trace([self.bias(False)], {"fc": "Linear"}, name="good"), PASSED,
                          "zeroed")
        self.assertEqual(good["zeroed"]["compared"], {"gradients of biases": 1})
        found = self.only(self.check(self.trace([self.bias(True)], {"fc": "Linear"}), VIOLATED,
                                     "zeroed")["zeroed"])
        self.assertIn("1 x the gradient before", found["what"])

    def test_one_iteration_tells_nothing(self):
        self.check(self.trace([self.embedding(False)[:1]]), TROUBLE, "zeroed")


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
        def records(output):
            values = drawn(1, 8)
            backward = [tensor("it0/mb0/backward/fc/grad_output.0", drawn(4, 2, 8))]
            return [tensor("it0/param/fc.weight/value", values, flags=TRAINABLE),
                    *(backward if output else []),
                    tensor("it0/step/fc.weight/param", values, flags=TRAINABLE | NO_GRADIENT),
                    tensor("it0/param/b.weight/value", values, flags=TRAINABLE),
                    tensor("it0/grad/b.weight/reduced", values),
                    tensor("it0/step/b.weight/param", values + F32(1), flags=TRAINABLE)]

        unused = self.check(self.trace([[records(False)]], {"fc": "Linear"}), PASSED, "changed")
        self.assertEqual(self.only(unused["changed"])["certainty"], "possible")
        cut_off = self.check(self.trace([[records(True)]], {"fc": "Linear"}, name="b"), VIOLATED,
                             "changed")
        self.assertEqual(self.only(cut_off["changed"])["certainty"], "likely")


class Data(CheckTest):
    def ranks(self, tokens: list, axis: str = "dp"):
        weights = drawn(1, 8)
        return self.trace([[[
            tensor("it0/param/a.weight/value", weights),
            tensor("it0/mb0/forward/@root/input.tokens", own, "int64", flags=ROOT_INPUT),
            tensor("it0/mb0/forward/@root/input.positions", np.arange(6), "int64",
                   flags=ROOT_INPUT)]] for own in tokens], axes=along(axis, len(tokens)))

    SAMPLES = [np.random.default_rng(seed).integers(0, 50, (2, 6)) for seed in range(4)]

    def test_ranks_with_samples_of_their_own(self):
        result = self.check(self.ranks(self.SAMPLES), PASSED, "data")["data"]
        self.assertEqual(result["compared"], {"micro-batches of data parallel ranks": 4})

    def test_one_shard_for_all(self):
        found = self.only(self.check(self.ranks(self.SAMPLES[:1] * 4), VIOLATED, "data")["data"])
        self.assertIn("all ranks along dp compute the same samples", found["what"])
        self.assertEqual(found["ranks"], [0, 1, 2, 3])

    def test_some_equal_ones_are_possible(self):
        some = [self.SAMPLES[0], self.SAMPLES[1], self.SAMPLES[0], self.SAMPLES[2]]
        found = self.only(self.check(self.ranks(some), PASSED, "data")["data"])
        self.assertEqual((found["certainty"], found["ranks"]), ("possible", [0, 2]))

    def test_tensor_parallel_ranks_share_their_samples(self):
        self.check(self.ranks(self.SAMPLES[:1] * 2, "tp"), PASSED, "data")

    def test_tensor_parallel_ranks_with_other_samples(self):
        found = self.only(self.check(self.ranks(self.SAMPLES[:2], "tp"), VIOLATED, "data")["data"])
        self.assertIn("ranks 0 and 1 are given other data (input.tokens)", found["what"])

    def test_positions_alone_tell_nothing(self):
        self.check(self.ranks([np.arange(6)] * 2), TROUBLE, "data")


class Random(CheckTest):
    def ranks(self, values: list, masks: list):
        return self.trace([[[tensor("it0/mb0/forward/drop/output.0", value * mask)]]
                           for value, mask in zip(values, masks)], {"drop": "Dropout"},
                          axes=along("tp", 2))

    MASKS = [(np.random.default_rng(seed).random((32, 16)) > 0.3).astype(F32) for seed in (1, 2)]
    VALUES = [drawn(3, 32, 16), drawn(4, 32, 16)]

    def test_one_activation_needs_one_mask(self):
        self.check(self.ranks(self.VALUES[:1] * 2, self.MASKS[:1] * 2), PASSED, "random")

    def test_one_activation_with_two_masks(self):
        trace = self.ranks(self.VALUES[:1] * 2, self.MASKS)
        found = self.only(self.check(trace, VIOLATED, "random")["random"])
        self.assertEqual(found["certainty"], "certain")

    def test_parts_need_masks_of_their_own(self):
        self.check(self.ranks(self.VALUES, self.MASKS), PASSED, "random")

    def test_parts_with_one_mask(self):
        trace = self.ranks(self.VALUES, self.MASKS[:1] * 2)
        found = self.only(self.check(trace, VIOLATED, "random")["random"])
        self.assertIn("their random numbers along tp are one sequence", found["what"])

    def test_padding_is_no_dropout(self):
        padding = np.ones((32, 16), F32)
        padding[8:] = 0
        self.check(self.ranks(self.VALUES, [padding] * 2), TROUBLE, "random")


class Nonfinite(CheckTest):
    def records(self, **special) -> list:
        keys = ["it0/param/a.weight/value", "it0/mb0/forward/@root/input.mask",
                "it0/mb0/forward/a/output.0", "it0/mb0/forward/b/output.0",
                "it0/mb0/backward/b/grad_output.0", "it0/grad/a.weight/reduced",
                "it0/step/a.weight/param"]
        records = []
        for number, key in enumerate(keys):
            values = drawn(number, 4, 4)
            for part, value in special.items():
                if part in key.replace(".", "_").replace("/", "_"):
                    values[1, 2] = value
            records.append(tensor(key, values))
        return records

    def test_the_first_one_is_named_and_not_what_follows(self):
        records = self.records(forward_a=math.nan, forward_b=math.nan, backward=math.nan)
        found = self.only(self.check(self.trace([[records]], {"a": "Linear"}), VIOLATED,
                                     "nonfinite")["nonfinite"])
        self.assertEqual((found["key"], found["microbatch"], found["ranks"]),
                         ("it0/mb0/forward/a/output.0", 0, [0]))
        self.assertIn("1 NaN of 16 elements", found["what"])

    def test_infinities_of_a_mask_are_meant(self):
        self.check(self.trace([[self.records(input_mask=-math.inf)]]), PASSED, "nonfinite")

    def test_an_overflow_that_loss_scaling_skips_is_possible(self):
        records = [entry for entry in self.records(reduced=math.inf) if "/step/" not in entry["key"]]
        found = self.only(self.check(self.trace([[records]]), PASSED, "nonfinite")["nonfinite"])
        self.assertEqual(found["certainty"], "possible")
        self.check(self.trace([[self.records(reduced=math.inf)]], name="b"), VIOLATED, "nonfinite")


class CommandLine(CheckTest):
    def run_tool(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run([CHECK, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60)

    def test_mistakes_are_trouble_and_say_what_to_do(self):
        trace = self.trace([[[tensor("it0/param/a/value", drawn(1, 8))]]])
        for arguments, words in (([], "TRACE: is missing"), (["nowhere"], "no such folder"),
                                 ([trace, "--check", "magic"], "magic: there is no such check"),
                                 ([trace, "--jsn", "x"], "did you mean --json?"),
                                 ([trace, "--json", "-", "--junit", "-"], "stdout is taken")):
            done = self.run_tool(*arguments)
            self.assertEqual(done.returncode, TROUBLE, done.stdout)
            self.assertIn(words, done.stderr)

    def test_text_and_junit(self):
        values = [drawn(1, 8), drawn(1, 8), drawn(1, 8) + F32(1)]
        trace = self.trace([[[tensor("it0/param/a.weight/value", own)]] for own in values],
                           axes=along("dp", 3))
        done = self.run_tool(trace)
        self.assertEqual(done.returncode, VIOLATED)
        self.assertIn("rank 2 differs from ranks 0, 1", done.stdout)
        self.assertIn("violated: replicas; ", done.stdout)
        self.assertEqual(self.run_tool(trace, "-q").stdout, "")
        junit = self.run_tool(trace, "--junit", "-").stdout
        self.assertIn('<failure type="replicas"', junit)
        self.assertIn('failures="1"', junit.splitlines()[1])

    def test_list(self):
        done = self.run_tool("--list")
        self.assertEqual(done.returncode, PASSED)
        self.assertEqual(len(done.stdout.splitlines()), 9)


if __name__ == "__main__":
    unittest.main()
