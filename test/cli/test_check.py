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

from made_checks import (CHECK, F32, PASSED, ROOT_INPUT, TRAINABLE, TROUBLE, VIOLATED, CheckTest, along,
                         dp_tp, drawn, tensor)


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

    def test_stages_that_begin_with_the_same_bits_are_no_copies(self):
        """Ranks 0 and 1 hand on to 2 and 3: the seed is one, and so are the stages' names."""
        def records(rank, linked):
            stage, line = divmod(rank, 2)
            given = drawn(1 + line, 4, 8) if stage == 0 or not linked else drawn(5 + line, 4, 8)
            gradient = drawn(20 + stage, 4, 8)
            if rank == 1 and linked == "and wrong":
                gradient = gradient + F32(1)
            return [tensor("it0/param/fc.weight/value", drawn(3, 4, 8), flags=TRAINABLE),
                    tensor("it0/mb0/forward/@root/input.0", given),
                    tensor("it0/mb0/forward/@root/output.0", drawn(5 + 2 * stage + line, 4, 8)),
                    tensor("it0/grad/fc.weight/reduced", gradient)]

        for linked, code in (("yes", PASSED), ("", VIOLATED), ("and wrong", VIOLATED)):
            trace = self.trace([[records(rank, linked)] for rank in range(4)],
                               axes=along("world", 4), name=f"{linked}.trace")
            result = self.check(trace, code, "replicas")["replicas"]
            if linked == "and wrong":
                found = self.only(result)
                self.assertEqual(found["ranks"], [0, 1])

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
        self.assertEqual(found["evidence"]["biases whose gradient holds the one before"], "1 of 1")

    def test_how_many_biases_hold_the_old_gradient_is_said(self):
        """zero_grad() is missing for one optimizer of two."""
        both = [[*one, *(dict(record, key=record["key"].replace("fc", "head"))
                       for record in other)]
                for one, other in zip(self.bias(True), self.bias(False))]
        found = self.only(self.check(self.trace([both], {"fc": "Linear", "head": "Linear"}),
                                     VIOLATED, "zeroed")["zeroed"])
        self.assertEqual((found["module"], found["evidence"]["biases whose gradient holds the one "
                                                             "before"]), ("fc.bias", "1 of 2"))

    def test_one_iteration_tells_nothing(self):
        self.check(self.trace([self.embedding(False)[:1]]), TROUBLE, "zeroed")


class Data(CheckTest):
    def ranks(self, tokens: list, axis: str = "dp", kind: str = ""):
        told = {"kind": kind} if kind else {}
        weights = drawn(1, 8)
        return self.trace([[[
            tensor("it0/param/a.weight/value", weights),
            tensor("it0/mb0/forward/@root/input.tokens", own, "int64", flags=ROOT_INPUT),
            tensor("it0/mb0/forward/@root/input.positions", np.arange(6), "int64",
                   flags=ROOT_INPUT)]] for own in tokens],
            axes=lambda rank: [{**along(axis, len(tokens))(rank)[0], **told}])

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

    def test_the_framework_knows_better_than_a_name(self):
        for name in ("mesh0", "tp"):
            trace = self.ranks(self.SAMPLES[:1] * 2, name, "data")
            found = self.only(self.check(trace, VIOLATED, "data")["data"])
            self.assertIn(f"all ranks along {name} compute the same samples", found["what"])
            self.check(self.ranks(self.SAMPLES[:2], name, "data"), PASSED, "data")
        self.check(self.ranks(self.SAMPLES[:1] * 2, "mesh0", "tensor"), PASSED, "data")
        self.check(self.ranks(self.SAMPLES[:2], "mesh0", "tensor"), VIOLATED, "data")

    def test_a_model_sharded_over_sequence_parallel_ranks(self):
        self.check(self.ranks(self.SAMPLES[:1] * 2, "cp", "data"), TROUBLE, "data")

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
        self.assertEqual(len(done.stdout.splitlines()), 20)


if __name__ == "__main__":
    unittest.main()
