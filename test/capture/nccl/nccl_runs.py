# SPDX-License-Identifier: Apache-2.0
"""Runs the scenarios under ttrace-capture --comm and reads what they left, with h5py alone."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
HERE = BUILD / "test" / "capture" / "nccl"
FAKE = BUILD / "test" / "fake_nccl"
CLIENT = [str(HERE / "nccl_client")]
HIDDEN = [str(HERE / "nccl_hidden"), str(HERE / "libnccl_scenarios.so")]
DTYPES = {0: "<f8", 1: "<f4", 3: "<f2", 6: "i1", 9: "<i8"}
IN_PLACE, ASYNCHRONOUS, IN_GROUP, FAILED, BEGUN = 1, 2, 4, 8, 16
COUNT = 6
SANITIZER = os.environ.get("SANITIZER_RUNTIME")  # where all of this is built with one

# Starts the ranks of a job, as a launcher does.
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen(sys.argv[2:], env={**os.environ, "RANK": str(rank)})
         for rank in range(int(sys.argv[1]))]
sys.exit(max(rank.wait() for rank in ranks))
"""

Call = collections.namedtuple(
    "Call", "function reduction group module sequence member size peer microbatch flags count "
            "factor input output position input_key output_key")


def given(rank, count=COUNT, start=0):
    """A rank's input, as the scenarios fill it."""
    return [1 + 10 * rank + start + i for i in range(count)]


def total(ranks, count=COUNT, start=0):
    return [sum(given(rank, 1, start + i)[0] for rank in range(ranks)) for i in range(count)]


def preload(*libraries):
    """LD_PRELOAD for these: a sanitizer's runtime must come first."""
    return ":".join([SANITIZER, *libraries] if SANITIZER else libraries)


class Segment:
    def __init__(self, path):
        with h5py.File(path) as file:
            self.names = [text.decode() for text in file["names"][()]]
            self.index = file["index"][()]
            rows = file["collectives"][()] if "collectives" in file else []
        self.path = path
        self.calls = [self._call(row) for row in rows]

    def _text(self, row):
        return self.names[row] if row >= 0 else None

    def _key(self, row):
        if row < 0:
            return None
        record = self.index[row]
        return (self.names[record["module"]], self.names[record["slot"]], int(record["call"]),
                int(record["microbatch"]), int(record["phase"]), int(record["kind"]))

    def _value(self, row):
        if row < 0:
            return None
        record = self.index[row]
        if record["dtype"] not in DTYPES:  # numpy has no bfloat16
            return None
        if record["kind"] != 0:
            return "hash"
        with open(self.path, "rb") as file:
            file.seek(int(record["offset"]))
            return numpy.frombuffer(file.read(int(record["bytes"])),
                                    DTYPES[int(record["dtype"])]).tolist()

    def _call(self, row):
        number = {name: row[name].item() for name in (
            "sequence", "member", "size", "peer", "microbatch", "flags", "count", "factor",
            "position")}
        return Call(**{name: self._text(row[name])
                       for name in ("function", "reduction", "group", "module")},
                    **number, input=self._value(row["input"]), output=self._value(row["output"]),
                    input_key=self._key(row["input"]), output_key=self._key(row["output"]))


class NcclTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ttrace-nccl-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.trace = self.folder / "trace"
        self.ids = self.folder / "ids"
        self.ids.mkdir()

    def environment(self, **settings):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("TTRACE_", "LD_", "RANK"))}
        if SANITIZER:
            kept["LD_PRELOAD"] = SANITIZER
        return {**kept, "NCCL_ID_DIR": str(self.ids), "FAKE_NCCL_TIMEOUT": "30",
                "TTRACE_DEVICE_OPS": str(FAKE / "libfake_device_ops.so"), **settings}

    def capture(self, command, ranks=1, comm="full", options=(), code=0, **settings):
        """Runs it on that many ranks; the finished process."""
        done = subprocess.run(
            [BUILD / "tools" / "ttrace-capture", "-q", "-o", self.trace, "--comm", comm, *options,
             "--", sys.executable, "-c", LAUNCHER, str(ranks), *command],
            env=self.environment(WORLD_SIZE=str(ranks), **settings), capture_output=True, text=True,
            timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def segment(self, rank=0, iteration=0):
        return Segment(self.trace / f"rank{rank:05d}" / f"it{iteration:06d}.h5")

    def calls(self, rank=0, iteration=0):
        return self.segment(rank, iteration).calls

    def rank_json(self, rank=0):
        return json.loads((self.trace / f"rank{rank:05d}" / "rank.json").read_text())
