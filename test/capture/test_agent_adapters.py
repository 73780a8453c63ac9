#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What adapters read from frameworks' attributes, on stand-ins that have these and no more."""
import contextlib
import json
import pathlib
import sys
import types
import unittest
from unittest import mock

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "capture" / "python"))

from ttrace_agent import layouts  # noqa: E402
from ttrace_agent.adapters import deepspeed, fsdp1, megatron  # noqa: E402


def plain(**members):
    return types.SimpleNamespace(**members)


class FlatParameters(unittest.TestCase):
    """Parameters of 3x4, 5 and 2x3 elements joined with 1 element of padding before the last."""

    SHAPES = [(3, 4), (5,), (2, 3)]
    BEGIN = [0, 12, 18]  # in the joined tensor of 24

    def handle(self, rank, ranks, original):
        size = 24 // ranks
        held = []
        for shape, begin in zip(self.SHAPES, self.BEGIN):
            end = begin + int(numpy.prod(shape))
            first, last = max(begin, rank * size), min(end, (rank + 1) * size)
            inside = first < last
            held.append(plain(in_shard=inside,
                              offset_in_shard=first - rank * size if inside else None,
                              numel_in_shard=last - first if inside else None,
                              intra_param_start_idx=first - begin if inside else None))
        flat = torch.arange(rank * size, (rank + 1) * size, dtype=torch.float32)
        flat._fsdp_flattened = True
        flat._shapes, flat._contiguities = self.SHAPES, (True, True, True)
        flat._param_extensions, flat._shard_param_infos = (None, None, None), held
        flat._params = None
        flat._param_infos = [plain(module=name, param_name="weight") for name in "abc"]
        if original:
            flat._params = [flat[part.offset_in_shard:part.offset_in_shard + part.numel_in_shard]
                            if part.in_shard else flat[:0] for part in held]
            for parameter in flat._params:
                parameter._fsdp_flattened = True
        handle = mock.Mock(flat_param=flat, uses_sharded_strategy=True)
        return handle, flat

    def check(self, values, layout, number, whole):
        """`values` are what the declared piece selects of the whole parameter."""
        flat = json.loads(layout)["flat"]
        self.assertEqual(tuple(flat["shape"]), self.SHAPES[number])
        first = self.BEGIN[number] + flat["start"]
        expected = numpy.arange(first, first + flat["count"])
        numpy.testing.assert_array_equal(values.numpy(), expected)
        whole[flat["start"]:flat["start"] + flat["count"]] += 1

    def each_layout(self):
        for ranks in (1, 2, 3, 4, 6):
            found = [numpy.zeros(int(numpy.prod(shape))) for shape in self.SHAPES]
            yield ranks, found
            for count in found:
                self.assertTrue((count == 1).all(), (ranks, found))

    def test_original_parameters_are_pieces(self):
        for ranks, found in self.each_layout():
            for rank in range(ranks):
                handle, flat = self.handle(rank, ranks, original=True)
                with mock.patch.object(fsdp1, "_handles", [handle]):
                    for number, parameter in enumerate(flat._params):
                        self.check(parameter, fsdp1.parameter_layout(parameter), number,
                                   found[number])

    def test_a_joined_parameter_has_the_pieces_of_several(self):
        for ranks, found in self.each_layout():
            for rank in range(ranks):
                handle, flat = self.handle(rank, ranks, original=False)
                with mock.patch.object(fsdp1, "_handles", [handle]):
                    pieces = fsdp1.pieces(flat)
                self.assertEqual([piece.module for piece in pieces], ["a", "b", "c"])
                for number, piece in enumerate(pieces):
                    self.check(flat.narrow(0, *piece.part), piece.layout, number, found[number])

    def test_others_are_left_alone(self):
        self.assertIsNone(fsdp1.parameter_layout(torch.ones(2)))
        self.assertEqual(fsdp1.pieces(torch.ones(2)), [])

    def test_elements_in_another_order_are_not_declared(self):
        handle, flat = self.handle(0, 2, original=True)
        flat._contiguities = (False, True, True)
        with mock.patch.object(fsdp1, "_handles", [handle]):
            self.assertEqual(fsdp1.parameter_layout(flat._params[0]), "")


class ZeroPartitions(unittest.TestCase):
    def test_fragments_say_where_they_lie(self):
        weight, bias, elsewhere = torch.ones(3, 4), torch.ones(5), torch.ones(2)
        weight._hp_mapping = plain(lp_fragment_address=plain(start=8, numel=4),
                                   hp_fragment_address=plain(start=0, numel=4))
        bias._hp_mapping = plain(lp_fragment_address=plain(start=0, numel=3),
                                 hp_fragment_address=plain(start=4, numel=3))
        elsewhere._hp_mapping = None
        joined = torch.arange(7.0)
        for names in (("single_partition_of_fp32_groups", "bit16_groups"),
                      ("fp32_groups_flat_partition", "bf16_groups")):
            optimizer = plain(**{names[0]: [joined], names[1]: [[weight, bias, elsewhere]]})
            with mock.patch.object(deepspeed, "_optimizers", [optimizer]):
                (tensor, pieces), = deepspeed.masters().values()
            self.assertIs(tensor, joined)
            self.assertEqual([(piece.parameter is own, piece.flat, piece.part)
                              for piece, own in zip(pieces, (weight, bias))],
                             [(True, {"shape": [3, 4], "start": 8, "count": 4}, (0, 4)),
                              (True, {"shape": [5], "start": 0, "count": 3}, (4, 3))])


class FlatPart(unittest.TestCase):
    def test_a_piece_is_a_range_of_the_flattened_shard(self):
        values = numpy.arange(12.0).reshape(3, 4)
        layout = layouts.to_json("- -", [3, 4], "x", {"shape": [3, 4], "start": 5, "count": 6})
        for tensor in (torch.tensor(values), torch.tensor(values.T.copy()).t()):
            numpy.testing.assert_array_equal(layouts.flat_part(tensor, layout).numpy(),
                                             values.flatten()[5:11])
        rule = layouts.to_json("h[tp] d", None, "file")
        self.assertEqual(json.loads(layouts.with_flat(rule, layout)), {
            "dims": "h[tp] d", "flat": {"shape": [3, 4], "start": 5, "count": 6}, "source": "file"})
        self.assertEqual(layouts.with_flat(rule, ""), rule)
        whole = torch.ones(2, 2)
        self.assertIs(layouts.flat_part(whole, layout), whole)  # not the shard it speaks of
        self.assertIs(layouts.flat_part(whole, ""), whole)


class Checkpoints(unittest.TestCase):
    """What Megatron would write into a checkpoint, where attributes say nothing of the cut."""

    @contextlib.contextmanager
    def parallel_state(self, rank, size):
        state = plain(model_parallel_is_initialized=lambda: True,
                      get_tensor_model_parallel_world_size=lambda: size,
                      get_tensor_model_parallel_rank=lambda: rank)
        with mock.patch.dict(sys.modules, {"megatron.core.parallel_state": state}):
            yield

    def module(self, entries):
        kind = type("Mixer", (), {"__module__": "megatron.core.mixer",
                                  "sharded_state_dict": lambda self: entries()})
        return kind()

    def layout(self, parameter, rank=1, size=2, **entry):
        written = plain(**{"data": parameter, "prepend_axis_num": 0,
                           "global_offset": (0,) * parameter.dim(), **entry})
        with self.parallel_state(rank, size):
            return megatron.parameter_layout(parameter, self.module(lambda: {"A": written}))

    def test_a_cut_over_tp(self):
        parameter = torch.ones(3, 4)
        parameter.tensor_model_parallel = True  # but no partition_dim
        layout = json.loads(self.layout(parameter, global_shape=(3, 8), global_offset=(0, 4)))
        self.assertEqual((layout["dims"], layout["shape"]), ("- [tp]", [3, 8]))

    def test_a_whole_parameter(self):
        layout = json.loads(self.layout(torch.ones(3, 4), global_shape=(3, 4)))
        self.assertEqual((layout["dims"], layout["shape"]), ("- -", [3, 4]))

    def test_what_is_no_plain_cut_over_tp_is_not_declared(self):
        parameter = torch.ones(3, 4)
        for entry in ({"global_shape": (3, 16), "global_offset": (0, 4)},
                      {"global_shape": (3, 8), "global_offset": (0, 0)},  # of the other rank
                      {"global_shape": (6, 8), "global_offset": (3, 4)},
                      {"global_shape": (2, 3, 4), "prepend_axis_num": 1},
                      {"global_shape": (3, 4), "data": torch.ones(3, 4)}):
            self.assertEqual(self.layout(parameter, **entry), "", entry)
        self.assertEqual(self.layout(parameter, 0, 1, global_shape=(3, 4)), "")

    def test_a_module_that_cannot_tell_breaks_nothing(self):
        def fail():
            raise RuntimeError("no checkpoint")

        with self.parallel_state(1, 2):
            self.assertEqual(megatron.parameter_layout(torch.ones(2), self.module(fail)), "")

    def test_megatrons_own_entries_are_read(self):
        try:
            from megatron.core.dist_checkpointing import ShardedTensor
        except ImportError:
            self.skipTest("Megatron-Core is not installed")
        parameter = torch.ones(3, 4)
        entry = ShardedTensor.from_rank_offsets("A", parameter, (0, 1, 2))
        with self.parallel_state(1, 2):
            layout = json.loads(megatron.parameter_layout(parameter,
                                                          self.module(lambda: {"A": entry})))
        self.assertEqual((layout["dims"], layout["shape"]), ("[tp] -", [6, 4]))


if __name__ == "__main__":
    unittest.main()
