#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors on a CUDA device are handed over where they are, in their stream, and nobody waits.

There is no device here: tensors of the host say that they are on one, and the library is a list of
the calls. What becomes of such calls is tested in test/capture/device.
"""
import ctypes
import pathlib
import sys
import types
import unittest
from unittest import mock

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "capture" / "python"))

from ttrace_agent import abi, recorder  # noqa: E402

STREAM = 77


class OnDevice(torch.Tensor):
    used_by = []  # streams, as the allocator was told

    is_cuda = True
    is_cpu = False

    def record_stream(self, stream):
        OnDevice.used_by.append((self.data_ptr(), stream.cuda_stream))

    def cpu(self):
        raise AssertionError("waits for the device")


class Calls:
    """What the library was told, and the bytes at the addresses it was given."""

    def __init__(self):
        self.records = []

    def record(self, phase, dtype, kind, shape, microbatch, call, flags, module, slot, raw_name,
               layout, data, alias_of, device=abi.HOST, stream=0):
        count = 1
        for extent in shape:
            count *= extent
        values = list((ctypes.c_float * count).from_address(data)) if data else None
        self.records.append((module, device, stream, alias_of, data, values))
        return len(self.records) - 1


def new_recorder(notes):
    options = types.SimpleNamespace(kind="full", filtered=False, layout_rules=[], estimate=False)
    agent = types.SimpleNamespace(options=options, library=Calls(),
                                  note=lambda *words: notes.append(words))
    made = recorder.Recorder(agent, torch)
    made._plain.add(OnDevice)
    made._copies_cuda = True
    return made, agent.library


class OnTheDevice(unittest.TestCase):
    def setUp(self):
        self.notes = []
        self.recorder, self.library = new_recorder(self.notes)
        self.capturing = False
        OnDevice.used_by = []
        for name, value in (("current_stream", lambda device: types.SimpleNamespace(
                                 cuda_stream=STREAM)),
                            ("is_current_stream_capturing", lambda: self.capturing)):
            patch = mock.patch.object(torch.cuda, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, module, tensor):
        return self.recorder.write("forward", module, "output.0", tensor)

    def test_the_address_and_the_stream_are_handed_over(self):
        tensor = torch.arange(6.0).as_subclass(OnDevice)
        self.assertEqual(self.write("layer", tensor), 0)
        self.assertEqual(self.library.records,
                         [("layer", abi.DEVICE, STREAM, -1, tensor.data_ptr(), list(range(6)))])
        self.assertEqual(OnDevice.used_by, [(tensor.data_ptr(), STREAM)])

    def test_others_are_packed_on_the_device(self):
        tensor = torch.arange(6.0).reshape(2, 3).t().as_subclass(OnDevice)
        self.write("layer", tensor)
        (_, device, stream, _, data, values), = self.library.records
        self.assertEqual((device, stream, values), (abi.DEVICE, STREAM, [0, 3, 1, 4, 2, 5]))
        self.assertNotEqual(data, tensor.data_ptr())
        self.assertEqual(OnDevice.used_by, [(data, STREAM)])

    def test_the_same_again_is_an_alias_without_an_address(self):
        tensor = torch.arange(6.0).as_subclass(OnDevice)
        self.write("layer", tensor)
        self.write("next", tensor)
        self.assertEqual(self.library.records[1], ("next", abi.HOST, 0, 0, 0, None))
        tensor += 1
        self.write("changed", tensor)
        self.assertEqual(self.library.records[2][3], -1)

    def test_a_graph_that_is_being_captured_gets_nothing_of_ours(self):
        self.capturing = True
        tensor = torch.arange(6.0).reshape(2, 3).t().as_subclass(OnDevice)
        self.assertEqual(self.write("layer", tensor), abi.NOT_ALIAS)
        self.assertEqual((self.library.records, OnDevice.used_by), ([], []))
        self.assertEqual(self.notes[0][:2], ("not recorded", "layer/output.0"))

    def test_a_tensor_of_the_host_has_no_stream(self):
        tensor = torch.arange(6.0)
        self.write("layer", tensor)
        self.assertEqual(self.library.records,
                         [("layer", abi.HOST, 0, -1, tensor.data_ptr(), list(range(6)))])


if __name__ == "__main__":
    unittest.main()
