# SPDX-License-Identifier: Apache-2.0
"""Runs programs under the built ttrace-capture and reads what they left, with h5py alone.

TTRACE_BUILD names the Meson build directory. The programs lie in programs/; each prints what it
computed or saves it with torch.save, so that records are compared with an independent truth.
"""
import collections
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import h5py
import torch

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(SOURCE / "test"))
import forkserver  # noqa: E402
import limited  # noqa: E402

AGENT = SOURCE / "capture" / "python"
BUILD = pathlib.Path(os.environ.get("TTRACE_BUILD", SOURCE / "build"))
CAPTURE = BUILD / "tools" / "ttrace-capture"
LIMIT_SECONDS = 200  # a machine may be busy; nothing waits on purpose

PHASES = ["param", "forward", "recompute", "backward", "grad", "step", "comm"]
KINDS = ["full", "stats", "hash"]
TRAINABLE, ROOT_INPUT, GLUE, NO_GRADIENT = 1, 2, 4, 8
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
          torch.float8_e5m2, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
          torch.bool]


class Row:
    """A record: its key and what the index says of it."""

    def __init__(self, row, names, layouts, file, sequence):
        self.sequence = sequence
        self.phase = PHASES[row["phase"]]
        self.module, self.slot = names[row["module"]], names[row["slot"]]
        self.raw_name = self.module if row["raw_name"] < 0 else names[row["raw_name"]]
        self.microbatch, self.call = int(row["microbatch"]), int(row["call"])
        self.kind, self.flags = KINDS[row["kind"]], int(row["flags"])
        self.layout = json.loads(layouts[row["layout"]]) if row["layout"] >= 0 else None
        self.alias_of = int(row["alias_of"])
        self.dtype = DTYPES[row["dtype"]]
        self.shape = tuple(int(extent) for extent in row["shape"][:row["ndim"]])
        self.bytes = int(row["bytes"])
        self.hash = (int(row["hash_low"]), int(row["hash_high"]))
        self._file, self._offset = file, int(row["offset"])
        self.target = self  # the row that holds the bytes

    @property
    def key(self):
        microbatch = f"mb{self.microbatch}/" if self.microbatch >= 0 else ""
        call = f"#{self.call}" if self.call else ""
        return f"{microbatch}{self.phase}/{self.module}{call}/{self.slot}"

    def value(self):
        """The tensor, from its bytes: no conversion of any library is involved."""
        target = self.target
        if target.bytes == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        with open(target._file, "rb") as file:
            file.seek(target._offset)
            data = bytearray(file.read(target.bytes))
        return torch.frombuffer(data, dtype=torch.uint8).view(self.dtype).view(self.shape)


class Segment:
    def __init__(self, path):
        self.path = path
        with h5py.File(path) as file:
            self.complete = bool(file.attrs["complete"])
            self.iteration = int(file.attrs["iteration"])
            names = [text.decode() for text in file["names"][()]] if "names" in file else []
            layouts = [text.decode() for text in file["layouts"][()]] if "layouts" in file else []
            self.rows = [Row(row, names, layouts, path, sequence)
                         for sequence, row in enumerate(file["index"][()])]
        for row in self.rows:
            if row.alias_of >= 0:
                row.target = self.rows[row.alias_of]
        self.by_key = {row.key: row for row in self.rows}
        assert len(self.by_key) == len(self.rows), f"{path}: a key occurs twice"

    def __getitem__(self, key):
        return self.by_key[key]

    def keys(self, *phases):
        return {row.key for row in self.rows if not phases or row.phase in phases}


class Trace:
    def __init__(self, path):
        self.path = path
        self.ranks = sorted(int(folder.name[4:]) for folder in path.glob("rank*"))

    def rank(self, rank=0):
        return json.loads((self.path / f"rank{rank:05d}" / "rank.json").read_text())

    def iterations(self, rank=0):
        return sorted(int(file.stem[2:])
                      for file in (self.path / f"rank{rank:05d}").glob("it*.h5"))

    def segment(self, iteration=0, rank=0):
        return Segment(self.path / f"rank{rank:05d}" / f"it{iteration:06d}.h5")

    def events(self, rank=0):
        return {(event["what"], event["where"]) for event in self.rank(rank).get("events", [])}


def torchrun(ranks):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
            str(ranks)]


SERVER = forkserver.Server()


def forked(ranks):
    """The quick way to run ranks, as forks of a process that has imported torch."""
    return [*SERVER.command(), *([PROGRAMS / "forked.py", ranks] if ranks > 1 else [])]


class CaptureTest(unittest.TestCase):
    """A scratch directory a class, and commands that run in it."""

    @classmethod
    def setUpClass(cls):
        if not CAPTURE.exists():
            raise unittest.SkipTest(f"{CAPTURE} is not built")
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="ttrace-agent-"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)

    @classmethod
    def environment(cls, **more):
        return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONFAULTHANDLER": "1", "TORCH_NCCL_ENABLE_MONITORING": "0", **more}

    @classmethod
    def run_command(cls, command, expected=0, clear=lambda: None, **environment):
        words = [str(word) for word in command]
        done = limited.run_again_if_it_hangs(words, LIMIT_SECONDS, clear, cwd=cls.scratch,
                                             env=cls.environment(**environment))
        if expected is not None and done.returncode != expected:
            raise AssertionError(f"{' '.join(words)}\nexit code {done.returncode}, expected "
                                 f"{expected}\n--- stdout\n{done.stdout[-4000:]}\n--- stderr\n"
                                 f"{done.stderr[-4000:]}")
        return done

    @classmethod
    def capture(cls, name, program, *arguments, ranks=1, options=(), expected=0, launcher=None,
                **environment):
        """Traces a program into scratch/name; (the trace, the finished process)."""
        command = [CAPTURE, "-o", cls.scratch / name, *options, "--",
                   *(launcher or forked(ranks)), PROGRAMS / program, *arguments]
        done = cls.run_command(command, expected, lambda: shutil.rmtree(cls.scratch / name),
                               **environment)
        return Trace(cls.scratch / name), done

    def assert_same_bits(self, recorded, truth, key=""):
        self.assertEqual(recorded.dtype, truth.dtype, key)
        self.assertEqual(tuple(recorded.shape), tuple(truth.shape), key)
        as_bytes = [tensor.detach().contiguous().reshape(-1).view(torch.uint8)
                    for tensor in (recorded, truth)]
        self.assertTrue(torch.equal(*as_bytes), f"{key}: the bits differ")

    def assert_saved_values(self, trace, rank=0):
        """Each value that programs/truth.py saved of captured iterations; their number.

        Twice: the bytes that the index points at, and the dataset that h5py reads.
        """
        saved = collections.defaultdict(dict)
        for key, value in torch.load(self.scratch / f"{trace.path.name}.pt.{rank}").items():
            iteration, key = key.split("/", 1)
            saved[int(iteration[2:])][key] = value
        compared = 0
        for iteration in trace.iterations(rank):
            segment = trace.segment(iteration, rank)
            with h5py.File(segment.path) as file:
                for key, value in saved[iteration].items():
                    row = segment[key]
                    self.assert_same_bits(row.value(), value, key)
                    self.assert_same_dataset(file[f"data/{row.target.key}"], value, key)
                    compared += 1
        return compared

    def assert_same_dataset(self, dataset, value, key):
        if value.dtype == torch.bfloat16:  # NumPy has no such type, h5py reads it as a wider one
            self.assert_same_bits(torch.from_numpy(dataset.astype("float32")[()]), value.float(),
                                  key)
        else:
            self.assert_same_bits(torch.from_numpy(dataset[...]), value, key)
