#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of the agent alone, against truths worked out another way."""
import itertools
import pathlib
import sys
import types
import unittest

import numpy
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "capture" / "python"))

from ttrace_agent import calls, groups, initial, layouts, names, options, structures  # noqa: E402
from ttrace_agent.adapters import dtensor  # noqa: E402
from ttrace_agent.layouts import AxisPosition  # noqa: E402


def part(values, dims, **axes):
    """What a rank holds of a numpy array, by the agent's layouts."""
    positions = {name: AxisPosition(*position) for name, position in axes.items()}
    runs = [layouts.runs_of(extent, cuts, positions)
            for extent, cuts in zip(values.shape, layouts.parse_dims(dims))]
    return layouts.cut(torch.from_numpy(values), runs).numpy()


class LayoutsAgainstNumpy(unittest.TestCase):
    values = numpy.arange(24 * 6).reshape(24, 6)

    def test_a_plain_cut_is_torch_chunk(self):
        for extent, size in itertools.product((1, 5, 8, 24), (1, 2, 3, 5)):
            values = numpy.arange(extent)
            chunks = torch.from_numpy(values).chunk(size)
            for coord in range(size):
                chunk = chunks[coord].numpy() if coord < len(chunks) else values[:0]
                numpy.testing.assert_array_equal(part(values, "[tp]", tp=(coord, size)), chunk)

    def test_zigzag_takes_a_chunk_from_each_end(self):
        chunks = numpy.split(self.values, 6)
        for coord in range(3):
            expected = numpy.concatenate([chunks[coord], chunks[5 - coord]])
            numpy.testing.assert_array_equal(
                part(self.values, "s[cp:zigzag] h", cp=(coord, 3)), expected)

    def test_equal_sections_are_each_cut(self):
        gate, up = numpy.split(self.values, 2)
        expected = numpy.concatenate([gate[6:], up[6:]])
        numpy.testing.assert_array_equal(part(self.values, "[tp:/2] -", tp=(1, 2)), expected)

    def test_unequal_sections_are_each_cut(self):
        q, k, v = numpy.split(self.values, [16, 20])
        expected = numpy.concatenate([q[:8], k[:2], v[:2]])
        numpy.testing.assert_array_equal(part(self.values, "[tp:(16,4,4)] -", tp=(0, 2)), expected)

    def test_each_document_is_cut_from_both_ends(self):
        documents = numpy.split(self.values, [8, 20])
        expected = numpy.concatenate([numpy.concatenate([d[len(d) // 4:len(d) // 2],
                                                         d[len(d) // 2:len(d) * 3 // 4]])
                                      for d in documents])
        numpy.testing.assert_array_equal(
            part(self.values, "s[cp:zigzag(8,12,4)] h", cp=(1, 2)), expected)
        for wrong in ("[cp:zigzag(8,12,6)] -", "[cp:zigzag(8,14,2)] -"):  # not 24; not by 4
            with self.assertRaises(layouts.LayoutError):
                part(self.values, wrong, cp=(1, 2))

    def test_inner_cuts_cut_what_outer_ones_leave(self):
        expected = numpy.split(numpy.split(self.values, 2)[1], 3)[2]
        numpy.testing.assert_array_equal(
            part(self.values, "[tp,dp] -", tp=(1, 2), dp=(2, 3)), expected)
        zigzag = part(self.values, "[cp:zigzag] -", cp=(0, 2))
        numpy.testing.assert_array_equal(
            part(self.values, "[cp:zigzag,tp] -", cp=(0, 2), tp=(1, 2)), zigzag[6:])

    def test_two_dimensions_and_split_axes(self):
        numpy.testing.assert_array_equal(
            part(self.values, "[dp] [tp]", dp=(1, 2), tp=(0, 2)), self.values[12:, :3])
        numpy.testing.assert_array_equal(
            part(self.values, "[tp/outer2] -", tp=(3, 4)), self.values[12:])
        numpy.testing.assert_array_equal(
            part(self.values, "[tp/inner2] -", tp=(2, 4)), self.values[:12])

    def test_an_axis_that_is_not_there_has_one_rank(self):
        numpy.testing.assert_array_equal(part(self.values, "[tp] -"), self.values)

    def test_cuts_that_do_not_divide_are_errors(self):
        with self.assertRaisesRegex(layouts.LayoutError, "do not divide into 10 chunks"):
            part(self.values, "[cp:zigzag] -", cp=(0, 5))
        with self.assertRaisesRegex(layouts.LayoutError, "do not add up to 24"):
            part(self.values, "[tp:(16,4)] -", tp=(0, 2))
        for wrong in ("[tp", "tp]", "[tp:swirl]", "[tp:/0]", "partial(tp)"):
            with self.assertRaises(layouts.LayoutError):
                layouts.parse_dims(wrong)


class Placement:
    """A DTensor placement as far as layouts look at it."""

    def __init__(self, dim=None, factor=None, partial=None):
        if dim is not None:
            self.dim = dim
        if factor is not None:
            self.split_factor = factor
        self.reduce_op = partial

    def is_partial(self):
        return self.reduce_op is not None


class MeshOfGroups(unittest.TestCase):
    """Coordinates worked out from rank = (outer * middle_size + middle) * inner_size + inner."""

    def test_axes_are_told_apart_by_the_distance_of_their_ranks(self):
        for rank in range(12):  # outer 2 x middle 3 x inner 2
            outer, middle, inner = rank // 6, rank // 2 % 3, rank % 2
            made = [[rank - inner, rank - inner + 1],
                    [outer * 6 + inner + 2 * i for i in range(3)],
                    [rank % 6, rank % 6 + 6],
                    list(range(outer * 6, outer * 6 + 6)),  # the inner two together
                    list(range(12))]
            expected = [("stride6", 2, outer), ("stride2", 3, middle), ("stride1", 2, inner)]
            self.assertEqual(groups.axes_of(made, rank, 12), expected)
            self.assertEqual(groups.axes_of(made[::-1], rank, 12), expected)

    def test_an_axis_without_a_group_is_what_is_left(self):
        self.assertEqual(groups.axes_of([[4, 5]], 5, 8), [("stride2", 4, 2), ("stride1", 2, 1)])
        self.assertEqual(groups.axes_of([[1, 5]], 5, 8), [("stride4", 2, 1), ("stride1", 4, 1)])

    def test_groups_that_tile_nothing_say_nothing(self):
        for made in ([[0, 3]], [[0, 1, 3]], [list(range(4))], [[1, 2]], []):
            self.assertEqual(groups.axes_of(made, made[0][0] if made else 0, 4), [])


def declared(shape, mesh_shape, *placements):
    mesh = types.SimpleNamespace(mesh_dim_names=tuple("abc")[:len(mesh_shape)],
                                 ndim=len(mesh_shape), size=lambda dim: mesh_shape[dim])
    return dtensor._dims(types.SimpleNamespace(shape=shape, mesh=mesh, placements=placements))


class DTensorPlacements(unittest.TestCase):
    def test_shards_cut_in_the_order_of_the_mesh(self):
        self.assertEqual(declared((8, 8), (2, 2), Placement(0), Placement(1)), "[a] [b]")
        self.assertEqual(declared((8, 8), (2, 2), Placement(0), Placement(0)), "[a,b] -")

    def test_a_strided_shard_is_cut_inside_the_later_axis(self):
        self.assertEqual(declared((8, 8), (2, 4), Placement(0, factor=4), Placement(0)), "[b,a] -")

    def test_a_strided_shard_without_such_an_axis_is_sections(self):
        self.assertEqual(declared((8, 8), (2,), Placement(0, factor=4)), "[a:/4] -")

    def test_sums_are_partial_and_other_reductions_have_no_words(self):
        self.assertEqual(declared((8,), (2, 2), Placement(partial="sum"), Placement(0)),
                         "[b] partial(a)")
        self.assertIsNone(declared((8,), (2,), Placement(partial="max")))


class SeededValues(unittest.TestCase):
    def test_the_tensor_code_is_splitmix64_of_plain_integers(self):
        seed = initial._mix(12345)
        index = torch.tensor([0, 1, 7, 1 << 40, (1 << 62) + 3])
        expected = [(initial._mix((initial._GOLDEN * (int(i) - 1) + seed) % (1 << 64)) >> 11)
                    * 2.0 ** -53 for i in index]
        self.assertEqual(initial._uniform(index, seed, torch).tolist(), expected)

    def test_indices_are_those_of_the_whole_parameter(self):
        whole = torch.arange(6 * 8).view(6, 8)
        places = [torch.tensor([1, 4]), torch.tensor([2, 3, 7])]
        expected = whole[[1, 4]][:, [2, 3, 7]]
        found = initial._indices(places, [6, 8], 0, 6, torch).view(2, 3)
        self.assertTrue(torch.equal(found, expected))
        found = initial._indices(places, [6, 8], 2, 3, torch)
        self.assertTrue(torch.equal(found, expected.flatten()[2:5]))

    def test_values_are_uniform(self):
        values = initial._uniform(torch.arange(100_000), initial._mix(1), torch)
        self.assertAlmostEqual(values.mean().item(), 0.5, delta=0.005)
        self.assertAlmostEqual(values.var().item(), 1 / 12, delta=0.002)


class WrappedModel(nn.Module):
    """Named like a wrapper's child on purpose."""

    def __init__(self):
        super().__init__()
        self.module = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)


class DistributedDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


class UnknownWrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


def named(model):
    return {entry.raw_name: entry.name for entry in names.walk(model)}


class Names(unittest.TestCase):
    def test_wrappers_leave_no_segment_anywhere(self):
        inner = nn.Sequential(DistributedDataParallel(nn.Sequential(nn.ReLU())))
        self.assertEqual(named(DistributedDataParallel(inner)),
                         {"": "", "module": "", "module.0": "0", "module.0.module": "0",
                          "module.0.module.0": "0.0"})

    def test_an_unknown_wrapper_is_recognised_around_the_whole_model_only(self):
        self.assertEqual(named(UnknownWrapper(nn.Sequential(nn.ReLU()))),
                         {"": "", "module": "", "module.0": "0"})
        self.assertEqual(named(nn.Sequential(UnknownWrapper(nn.ReLU())))["0.module"], "0.module")

    def test_a_child_called_module_is_kept_where_its_parent_is_no_wrapper(self):
        self.assertEqual(named(WrappedModel())["module"], "module")

    def test_a_shared_module_has_its_first_name(self):
        shared = nn.ReLU()
        self.assertEqual(set(named(nn.Sequential(shared, shared)).values()), {"", "0"})


class Info:
    """A module as far as calls look at it."""

    def __init__(self, name):
        self.name, self.nested, self.history = name, False, []


class Recomputes(unittest.TestCase):
    """Which forward call is repeated? Backward passes go through layers in reverse."""

    def forward(self, context, info, address):
        return calls.enter(None, info, context, None, address)

    def recompute(self, info, address, latest=None, parent=None, task=1):
        return calls.enter_recompute(None, info, parent, latest, address, task)

    def test_the_input_that_a_checkpoint_kept_decides(self):
        layer, contexts = Info("layer"), [calls.Context(0), calls.Context(1)]
        self.forward(contexts[0], layer, 100)
        self.forward(contexts[1], layer, 200)
        self.assertEqual(self.recompute(layer, 200).context.microbatch, 1)
        self.assertEqual(self.recompute(layer, 100).context.microbatch, 0)

    def test_without_it_the_oldest_micro_batch_comes_first_its_last_call_before_others(self):
        layer = Info("layer")
        for microbatch in range(2):
            context = calls.Context(microbatch)
            for address in (1, 2):
                self.forward(context, layer, address)
        order = [self.recompute(layer, 0) for _ in range(4)]
        self.assertEqual([(frame.context.microbatch, frame.call) for frame in order],
                         [(0, 1), (0, 0), (1, 1), (1, 0)])

    def test_calls_inside_follow_the_log(self):
        layer, act = Info("layer"), Info("act")
        context = calls.Context(0)
        for address in (10, 20, 30):  # one activation module, called by each layer
            self.forward(context, layer, address)
            self.forward(context, act, 99)
        for address, call in ((30, 2), (20, 1), (10, 0)):
            outer = self.recompute(layer, address)
            self.assertEqual((outer.call, self.recompute(act, 99, parent=outer).call), (call, call))

    def test_the_second_module_of_a_checkpoint_continues_after_the_first(self):
        first, second = Info("first"), Info("second")
        contexts = [calls.Context(microbatch) for microbatch in range(2)]
        for context, address in zip(contexts, (100, 200)):
            self.forward(context, first, address)
            self.forward(context, second, 7)  # freed, and used again by the other micro-batch
        done = self.recompute(first, 200)
        self.assertEqual(self.recompute(second, 7, latest=done.cursor).context.microbatch, 1)

    def test_one_module_as_all_layers_is_not_taken_for_a_continuation(self):
        layer, context = Info("layer"), calls.Context(0)
        for address in (10, 20, 30):
            self.forward(context, layer, address)
        latest, order = None, []
        for address in (30, 20, 10):
            frame = self.recompute(layer, address, latest)
            latest = frame.cursor
            order.append(frame.call)
        self.assertEqual(order, [2, 1, 0])

    def test_a_module_that_was_never_called_is_no_recompute(self):
        self.assertIsNone(self.recompute(Info("layer"), 1))


class Filters(unittest.TestCase):
    def wants(self, filters, phase, module, slot):
        return options.Options({"filters": filters}).wants(phase, module, slot)

    def test_patterns_see_the_key_or_the_module(self):
        self.assertTrue(self.wants(["layers.*"], "forward", "layers.0.mlp", "output.0"))
        self.assertTrue(self.wants(["grad/*"], "grad", "layers.0.weight", "reduced"))
        self.assertFalse(self.wants(["grad/*"], "step", "layers.0.weight", "param"))

    def test_exclusions_win_and_alone_leave_the_rest(self):
        filters = ["layers.*", "!*norm*"]
        self.assertFalse(self.wants(filters, "forward", "layers.0.norm", "output.0"))
        self.assertTrue(self.wants(["!*norm*"], "forward", "layers.0.mlp", "output.0"))

    def test_intervals_may_be_endless(self):
        wanted = options.Options({"iterations": [[1, 1], [4, None]]})
        self.assertEqual([wanted.wants_iteration(i) for i in range(6)],
                         [False, True, False, False, True, True])

    def test_layout_rules_see_modules_or_whole_keys(self):
        rules = [{"pattern": "step/*", "dims": "[dp]"}, {"pattern": "*.weight", "dims": "[tp] -"}]
        known = options.Options({"layout_rules": rules})
        self.assertEqual(known.rule_for("param", "a.weight", "value").dims, "[tp] -")
        self.assertEqual(known.rule_for("step", "a.weight", "param").dims, "[dp]")
        self.assertIsNone(known.rule_for("param", "a.bias", "value"))


class Structures(unittest.TestCase):
    def test_places_are_named_by_position_key_and_field(self):
        import dataclasses

        @dataclasses.dataclass
        class Output:
            loss: object
            parts: object

        one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
        finder = structures.Finder(torch)
        self.assertEqual(finder.outputs(one), [("output.0", one)])
        found = finder.outputs((one, None, {"a": [two, "text"]}, Output(three, ())))
        self.assertEqual([slot for slot, _ in found], ["output.0", "output.2.a.0", "output.3.loss"])
        self.assertEqual([slot for slot, _ in finder.keywords({"mask": one, "state": (two,)})],
                         ["input.mask", "input.state.0"])

    def test_a_structure_that_contains_itself_ends(self):
        cycle = []
        cycle.append(cycle)
        self.assertEqual(structures.Finder(torch).outputs(cycle), [])


if __name__ == "__main__":
    unittest.main()
