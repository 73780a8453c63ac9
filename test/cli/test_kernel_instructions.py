# SPDX-License-Identifier: Apache-2.0
"""The comparison kernel takes no more instructions than it should: callgrind counts them, so that
another program on the machine changes nothing. Valgrind knows no AVX-512; the AVX2 loop is counted.
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(os.environ["TTRACE_BUILD"]) / "test" / "measure_once"
SMALL, LARGE = 1 << 16, 1 << 18
# Instructions an element with g++ 12 were 9.8, 2.4, 11.6 and 13.6; a quarter more is for other
# compilers.
LIMITS = {
    ("float32", "all"): 12.3,
    ("float32", "equal"): 3.0,
    ("bfloat16", "all"): 14.5,
    ("float64", "all"): 17.0,
}


def count(kind: tuple[str, str], elements: int) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--toggle-collect=measured",
             str(PROGRAM), *kind, str(elements)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{kind} x {elements}: exit {done.returncode}\n{done.stderr}")
    return int(re.search(r"Collected : (\d+)", done.stderr)[1]), done.stdout.strip()


@unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
class KernelInstructions(unittest.TestCase):
    def test_instructions_an_element_stay_below_the_limit(self) -> None:
        for kind, limit in LIMITS.items():
            with self.subTest(kind=kind):
                small, loop = count(kind, SMALL)
                large, _ = count(kind, LARGE)
                if loop != "cpu-AVX2":
                    self.skipTest(f"the limits are those of AVX2, this processor has {loop}")
                each = (large - small) / (LARGE - SMALL)
                print(f"{' '.join(kind)}: {each:.2f} instructions an element, limit {limit}")
                self.assertLessEqual(each, limit)
                # What is done once a tensor must not hide in the difference.
                self.assertLessEqual(small / SMALL, 1.2 * limit)


if __name__ == "__main__":
    unittest.main()
