# SPDX-License-Identifier: Apache-2.0
"""ttrace-merge as a user runs it. The traces come from the program write_trace, whose tensors follow
a formula; the same formula in numpy says what the merged datasets must be, and h5py reads them."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy

BUILD = Path(os.environ.get("TTRACE_BUILD", "build"))
MERGE = BUILD / "tools" / "ttrace-merge"
WRITE_TRACE = BUILD / "test" / "write_trace"


def known(tensor: int, *shape: int) -> numpy.ndarray:
    """The values of test/libttrace/write_trace.cpp, in exact integers."""
    count = int(numpy.prod(shape, dtype=numpy.int64))
    k = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(1000003 * tensor)
    mixed = k * numpy.uint64(2654435761) % numpy.uint64(2**32)
    return (mixed.astype(numpy.float64) / 2.0**32 - 0.5).astype(numpy.float32).reshape(shape)


class MergeTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ttrace-merge-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "merged"

    def write(self, name: str, *arguments: object) -> Path:
        trace = self.folder / name
        subprocess.run([WRITE_TRACE, trace, *map(str, arguments)], check=True, timeout=60)
        return trace

    def merge(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run([MERGE, *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def check_known(self, trace: Path, rows: int = 8) -> None:
        with h5py.File(trace / "rank00000" / "it000000.h5", "r") as file:
            data = file["data"]
            expected = {
                "param/layer.weight/value": known(1, rows, 6),
                "param/gate.weight/value": known(2, 8, 4),
                "param/norm.weight/value": known(3, 6),
                "step/layer.weight/exp_avg": known(4, rows, 6),
                "mb0/forward/layer/output.0": known(10, 4, 8),
                "mb1/forward/layer/output.0": known(11, 4, 8),
                "mb0/forward/@root/output.0": known(20),
                "mb1/forward/@root/output.0": known(21),
                "mb0/forward/@root/input.tokens": numpy.array([0, 7, 8], dtype=numpy.int64),
                "mb1/forward/@root/input.tokens": numpy.array([1, 7, 8], dtype=numpy.int64),
            }
            for name, values in expected.items():
                merged = data[name][()]
                self.assertEqual(merged.dtype, values.dtype, name)
                self.assertTrue(numpy.array_equal(merged, values), name)
            names = []
            data.visititems(lambda name, item: names.append(name)
                            if isinstance(item, h5py.Dataset) else None)
            self.assertEqual(sorted(names), sorted(expected))

    def test_declared_shards_merge_to_the_known_tensors(self):
        trace = self.write("trace", 2, 2)
        done = self.merge(trace, "-o", self.out)
        self.check_known(self.out)
        self.assertNotIn("problem:", done.stdout)
        self.assertIn("12 tensors", done.stdout)  # ten datasets and two aliases

    def test_an_alias_stays_an_alias_of_the_same_tensor(self):
        self.merge(self.write("trace", 2, 2), "-o", self.out)
        with h5py.File(self.out / "rank00000" / "it000000.h5", "r") as file:
            index = file["index"][()]
            names = [name.decode() for name in file["names"][()]]
        aliases = [row for row in index if row["alias_of"] >= 0]
        self.assertEqual(len(aliases), 2)
        for row in aliases:
            target = index[row["alias_of"]]
            self.assertEqual((names[row["module"]], names[row["slot"]]), ("norm", "input.0"))
            self.assertEqual((names[target["module"]], names[target["slot"]]), ("layer", "output.0"))
            self.assertEqual(row["microbatch"], target["microbatch"])

    def test_a_merged_trace_is_a_trace_of_one_rank_with_the_modules_of_all(self):
        self.merge(self.write("trace", 2, 2), "-o", self.out)
        rank = json.loads((self.out / "rank00000" / "rank.json").read_text())
        trace = json.loads((self.out / "trace.json").read_text())
        self.assertTrue(trace["logical"])
        self.assertEqual(trace["command"], ["known"])
        self.assertEqual((rank["rank"], rank["world_size"], rank["axes"]), (0, 1, []))
        self.assertEqual(rank["merged"], {"dp": 2, "tp": 2})
        self.assertIn("layer.only0", rank["modules"])
        self.assertIn("layer.only3", rank["modules"])
        self.assertEqual(rank["modules"]["layer"]["calls"], 1)
        self.assertEqual(rank["parameters"]["layer.weight"]["shape"], [8, 6])

        again = self.folder / "again"
        self.merge(self.out, "-o", again)
        self.check_known(again)

    def test_tensors_larger_than_a_block_pass_in_bounded_memory(self):
        rows = 4_000_000  # of 24 bytes: 92 MiB, twelve blocks
        trace = self.write("trace", 2, 1, rows)
        code = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]); "
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); "
                "sys.exit(done.returncode)")
        done = subprocess.run(["python3", "-c", code, MERGE, trace, "-q", "-o", self.out],
                              stdout=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(done.returncode, 0)
        self.check_known(self.out, rows)
        self.assertLess(int(done.stdout), 64 * 1024)  # KiB

    def test_content_of_a_reference_replaces_declarations(self):
        reference = self.write("reference", 1, 1)
        trace = self.write("trace", 2, 2, "undeclared")
        done = self.merge(trace, "--check", code=1)
        self.assertIn("no layout is declared", done.stdout)
        self.merge(trace, "--like", reference, "-o", self.out)
        self.check_known(self.out)

    def test_a_rule_file_replaces_declarations(self):
        trace = self.write("trace", 2, 2, "undeclared")
        rules = self.folder / "rules"
        rules.write_text('layer.weight "h[tp] d" 8x6\ngate.* "[tp:/2] -"\n'
                         'forward/layer/* "s h[tp]"\nforward/norm/* "s h[tp]"\n')
        self.merge(trace, "--layout", rules, "-o", self.out)
        self.check_known(self.out)

        rules.write_text('layer.weight "h[tp d"\n')
        self.assertIn("rules, line 1", self.merge(trace, "--layout", rules, "--check", code=2).stderr)

    def test_a_deleted_rank_is_a_hole_that_is_named(self):
        trace = self.write("trace", 2, 1)
        shutil.rmtree(trace / "rank00001")
        done = self.merge(trace, "-o", self.out, code=1)
        self.assertIn("hole: it0/param/layer.weight/value: no rank holds [4:8, 0:6]: "
                      "no rank at tp=1", done.stdout)
        self.assertIn("rank 1 of 2 is not in the trace", done.stdout)
        with h5py.File(self.out / "rank00000" / "it000000.h5", "r") as file:
            self.assertNotIn("layer.weight", file["data/param"])  # nothing is filled in
            self.assertTrue(numpy.array_equal(file["data/param/norm.weight/value"][()], known(3, 6)))

    def test_a_deleted_copy_is_reported_though_weights_are_whole(self):
        trace = self.write("trace", 1, 2)
        shutil.rmtree(trace / "rank00001")
        done = self.merge(trace, "--check", code=1)
        self.assertIn("rank 1 of 2 is not in the trace", done.stdout)
        self.assertIn("it0/step/layer.weight/exp_avg: no rank holds [4:8, 0:6] [3:4, 5:6]: "
                      "flat ranges of other ranks are missing", done.stdout)

    def test_swapped_ranks_are_noticed(self):
        for kind in ("rank00000", "rank00000/it000000.h5"):
            trace = self.write("swap" + str(len(kind)), 2, 1)
            first, second = trace / kind, trace / kind.replace("rank00000", "rank00001")
            spare = trace / "spare"
            first.rename(spare)
            second.rename(first)
            spare.rename(second)
            done = self.merge(trace, "-o", self.out, code=2)
            self.assertIn("renamed?", done.stderr)
            self.assertFalse(self.out.exists())

    def test_a_copy_that_differs_is_named(self):
        trace = self.write("trace", 2, 2, "shifted=2")
        done = self.merge(trace, "-o", self.out, code=1)
        self.assertIn("replica_conflict: it0/param/norm.weight/value", done.stdout)
        self.assertIn("rank 2 differs from ranks 0, 1, 3", done.stdout)
        weight = known(3, 6).astype(numpy.float64)
        error = 0.25 / numpy.linalg.norm(weight)
        self.assertIn(f"relative error between the copies {error:.3g}", done.stdout)
        with h5py.File(self.out / "rank00000" / "it000000.h5", "r") as file:
            self.assertNotIn("norm.weight", file["data/param"])

    def test_what_was_kept_without_bytes_is_proved_but_not_merged(self):
        trace = self.write("trace", 2, 2, "rowless")
        self.merge(trace, "--check")
        done = self.merge(trace, "-o", self.out, code=1)
        self.assertIn("it0/param/layer.weight/value: it was captured without its bytes", done.stdout)

    def test_trouble_leaves_nothing_behind(self):
        trace = self.write("trace", 2, 2)
        self.out.mkdir()
        (self.out / "precious").write_text("x")
        self.assertIn("not an empty folder", self.merge(trace, "-o", self.out, code=2).stderr)
        self.assertEqual([entry.name for entry in self.out.iterdir()], ["precious"])

        undeclared = self.write("undeclared", 2, 2, "undeclared")
        segment = undeclared / "rank00003" / "it000000.h5"
        segment.write_bytes(segment.read_bytes()[:-1000])
        before = sorted(self.folder.iterdir())
        self.assertIn("it000000.h5", self.merge(undeclared, "-o", self.folder / "new",
                                                code=2).stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_an_interrupt_leaves_nothing_behind(self):
        trace = self.write("trace", 1, 1, 4_000_000)
        before = sorted(self.folder.iterdir())
        process = subprocess.Popen([MERGE, trace, "-o", self.out], stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True)
        deadline = time.monotonic() + 60
        while len(list(self.folder.iterdir())) == len(before) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        self.assertIn("interrupted", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 2)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_an_empty_output_folder_is_used(self):
        self.out.mkdir()
        self.merge(self.write("trace", 2, 1), "-o", f"{self.out}/")
        self.check_known(self.out)

    def test_check_writes_nothing_and_prints_the_table(self):
        trace = self.write("trace", 2, 2)
        before = sorted(self.folder.iterdir())
        table = [line.split() for line in self.merge(trace, "--check").stdout.splitlines()]
        self.assertEqual(table[0], ["phase", "keys", "proved", "assumed", "problems"])
        self.assertIn(["param", "3", "3", "0", "0"], table)
        self.assertIn(["forward", "8", "8", "0", "0"], table)
        self.assertIn(["step", "1", "1", "0", "0"], table)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_top_counts_what_it_hides(self):
        trace = self.write("trace", 2, 2, "undeclared")
        done = self.merge(trace, "--check", "--top", 1, code=1)
        self.assertEqual(done.stdout.count("layout_unknown: "), 1)
        self.assertRegex(done.stdout, r"and \d+ more, --top \d+ lists them")

    def test_quiet_prints_nothing(self):
        done = self.merge(self.write("trace", 2, 2, "shifted=1"), "--check", "-q", code=1)
        self.assertEqual(done.stdout + done.stderr, "")

    def test_command_line_mistakes_are_trouble(self):
        trace = self.write("trace", 1, 1)
        cases = {
            ("--iteratoin=0", "--check", trace): "did you mean --iteration?",
            ("--iteratoin", "0", "--check", trace): "did you mean --iteration?",
            ("--ouput", "x", trace): "did you mean --output?",
            ("--zzzzzzzzzzzz", trace): "unknown option --zzzzzzzzzzzz, try --help",
            (): "TRACE is required",
            (trace,): "-o OUT: is missing",
            (trace, "--check", "-o", "x"): "leave out -o",
            (trace, "--check", "--iteration", "5"): "--iteration: 5",
            (trace, "--check", "--iteration", "x"): "--iteration",
            (self.folder / "absent", "--check"): "no such folder",
        }
        for arguments, message in cases.items():
            with self.subTest(arguments=arguments):
                done = self.merge(*arguments, code=2)
                self.assertIn(message, done.stderr)
                self.assertTrue(done.stderr.startswith("ttrace-merge: "), done.stderr)
                self.assertEqual(done.stdout, "")

    def test_help_and_version(self):
        text = self.merge("--help").stdout
        self.assertTrue(text.startswith("Example: ttrace-merge"), text)
        self.assertLess(len(text.splitlines()), 40)
        self.assertRegex(self.merge("--version").stdout, r"^ttrace-merge \d+\.\d+")

    def test_a_closed_pipe_is_quiet_and_a_full_disk_is_not(self):
        trace = self.write("trace", 2, 2)
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = subprocess.run([MERGE, trace, "--check"], stdout=write_end, stderr=subprocess.PIPE,
                              text=True, timeout=60)
        os.close(write_end)
        self.assertEqual(done.stderr, "")
        with open("/dev/full", "w") as full:
            done = subprocess.run([MERGE, trace, "--check"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    unittest.main()
