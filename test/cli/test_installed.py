# SPDX-License-Identifier: Apache-2.0
"""Programs of C and C++ against an installed tree, found by pkg-config: the examples of the
documentation, compiled with all warnings, run with and without ttrace-capture.
"""
from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import h5py
import numpy

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
SOURCE = pathlib.Path(os.environ["TTRACE_SOURCE"])
WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wconversion",
            "-Wsign-conversion", "-Werror"]
C99 = [os.environ.get("CC", "cc"), "-std=c99", *WARNINGS]
CPP17 = [os.environ.get("CXX", "c++"), "-std=c++17", *WARNINGS]
LIMIT_SECONDS = 120


def run(*command, **variables):
    kept = {name: text for name, text in os.environ.items()
            if name not in ("RANK", "WORLD_SIZE") and not name.startswith("TTRACE_")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**kept, **variables}, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def blocks(page, language):
    text = (SOURCE / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@unittest.skipUnless(shutil.which("meson"), "meson is not on PATH")
@unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="ttrace-installed-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir",
            cls.folder / "root")
        (described,) = (cls.folder / "root").rglob("ttrace.pc")
        prefix = re.search(r"^prefix=/(.*)$", described.read_text(), re.MULTILINE)[1]
        cls.prefix = cls.folder / "root" / prefix
        cls.flags = run("pkg-config", f"--define-variable=prefix={cls.prefix}", "--cflags",
                        "--libs", "ttrace", PKG_CONFIG_LIBDIR=str(described.parent)).split()

    def build(self, compiler, suffix, text, *others):
        source = self.folder / f"{self.id()}.{suffix}"
        source.write_text(text)
        program = self.folder / self.id()
        run(*compiler, source, *others, *self.flags, "-o", program)
        return program

    def records(self, program):
        """Names below /data to values, by iteration. Alone the program says and leaves nothing,
        under ttrace-capture a trace."""
        self.assertEqual(run(program), "")
        trace = self.folder / f"{self.id()}.trace"
        run(self.prefix / "bin" / "ttrace-capture", "--iterations", "0-1", "-o", trace, "--", program)
        found = []
        for path in sorted((trace / "rank00000").glob("*.h5")):
            with h5py.File(path) as file:
                values = {}
                file["data"].visititems(
                    lambda name, item: values.update({name: item[()]})
                    if isinstance(item, h5py.Dataset) else None)
                found.append(values)
        return found

    def check(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for values, wanted in zip(found, expected):
            self.assertEqual(sorted(values), sorted(wanted))
            for name, value in wanted.items():
                self.assertEqual(values[name].shape, value.shape, name)
                numpy.testing.assert_array_equal(values[name], value, name)

    def test_the_cpp_example(self):
        text, _ = blocks("docs/frameworks.md", "cpp")
        weight = numpy.full(3, 0.5, numpy.float32)
        expected = []
        for step in range(2):
            wanted = {"param/fc.weight/value": weight.copy()}
            gradient = numpy.zeros(3, numpy.float32)
            for i in range(2):
                tokens = numpy.array([step, i, 7])
                gradient += tokens.astype(numpy.float32)
                wanted[f"mb{i}/forward/@root/input.0"] = tokens
                wanted[f"mb{i}/forward/fc/output.0"] = \
                    (weight * tokens.astype(numpy.float32)).reshape(1, 3)
            wanted["grad/fc.weight/reduced"] = gradient
            weight = weight - numpy.float32(0.1) * gradient
            wanted["step/fc.weight/param"] = weight
            expected.append(wanted)
        self.check(self.records(self.build(CPP17, "cpp", text)), expected)

    def test_the_example_of_several_ranks(self):
        """Two ranks do what one does, and everything is compared and checked."""
        _, text = blocks("docs/frameworks.md", "cpp")
        program = self.build(CPP17, "cpp", text, SOURCE / "test/cli/installed_sum.cpp")
        room = self.folder / "room"
        room.write_bytes(bytes(65536))
        both = ["sh", "-c", 'RANK=0 "$0" & one=$!; RANK=1 "$0" || exit 1; wait $one', program]
        traces = {}
        for name, command, variables in (("one", [program], {}),
                                         ("two", both, {"ROOM": str(room), "WORLD_SIZE": "2"})):
            traces[name] = self.folder / f"{self.id()}.{name}"
            run(self.prefix / "bin/ttrace-capture", "--iterations", "0-1", "--comm", "full", "-o",
                traces[name], "--", *command, **variables)
        weight = numpy.array([0.5, -0.25, 1.0, 0.125])
        samples = [numpy.array([sample, 3, 1 + sample % 2, 7]) for sample in range(4)]
        gradient = sum((weight @ tokens) * tokens for tokens in samples)
        with h5py.File(traces["two"] / "rank00001/it000000.h5") as file:
            numpy.testing.assert_allclose(file["data/grad/fc.weight/reduced"][()], gradient)
            numpy.testing.assert_allclose(file["data/grad/@root/norm"][()],
                                          numpy.linalg.norm(gradient), rtol=1e-6)
        tools = self.prefix / "bin"
        report = json.loads(run(tools / "ttrace-diff", traces["one"], traces["two"], "--json", "-"))
        self.assertEqual(report["verdict"], "same")
        checks = {entry["name"]: entry for entry in
                  json.loads(run(tools / "ttrace-check", traces["two"], "--json", "-"))["checks"]}
        self.assertEqual([name for name, entry in checks.items() if entry["violations"]], [])
        for name in ("data", "order", "groups", "conserve", "parts", "nonfinite", "replicas",
                     "norm", "update", "changed"):
            self.assertEqual(checks[name]["verdict"], "passed", name)
        self.assertEqual(checks["conserve"]["compared"]["reductions"], 4)
        self.assertEqual(checks["update"]["compared"],
                         {"optimizer states": 4, "parameters after the step": 4})

    def test_objects_that_end_at_once_are_warned_of(self):
        for text in ('ttrace::Scope("fc");', "ttrace::Iteration(0);", "ttrace::Run();"):
            program = "#include <ttrace.hpp>\nint main() { " + text + " }\n"
            with self.assertRaisesRegex(AssertionError, "nodiscard"):
                self.build(CPP17, "cpp", program)

    def test_the_c_example(self):
        (text,) = blocks("docs/frameworks.md", "c")
        expected = [{f"mb{i}/forward/fc/output.0":
                     numpy.float32(0.5) * numpy.array([[step + i, step + i + 1, step + i + 2]],
                                                      numpy.float32) for i in range(2)}
                    for step in range(2)]
        self.check(self.records(self.build(C99, "c", text)), expected)

    def test_the_fragment_of_the_readme(self):
        (text,) = blocks("README.md", "c")
        program = self.build(C99, "c", "#include <ttrace.h>\n"
                             "int main(void) {\nenum { rows = 2, columns = 3 };\n"
                             "const float values[6] = {1, 2, 3, 4, 5, 6};\n" + text + "}\n")
        value = numpy.arange(1, 7, dtype=numpy.float32).reshape(2, 3)
        self.check(self.records(program), [{"mb0/forward/layers.0.fc/output.0": value}])

    def test_both_headers_stand_alone(self):
        self.build(C99, "c", "#include <ttrace.h>\nint main(void) { return ttrace_active(); }\n")
        self.build(CPP17, "cpp", "#include <ttrace.h>\n#include <ttrace.hpp>\n"
                   "int main() { return ttrace::active(); }\n")


if __name__ == "__main__":
    unittest.main()
