#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the CUDA sources once more and reads what ptxas says: no kernel spills registers or has a
stack, which would cost it most of its speed. Needs no device.

    check_spills.py NVCC SOURCE_ROOT ARCH... -- FLAGS..."""
import re
import subprocess
import sys

KERNEL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
TYPES = 11  # a kernel for each type of elements; bool's bytes are those of uint8


def main():
    separator = sys.argv.index("--")
    nvcc, root, *architectures = sys.argv[1:separator]
    flags = sys.argv[separator + 1:]
    for architecture in architectures:
        for name in ("backend_cuda", "compare_device"):
            done = subprocess.run(
                [nvcc, "-std=c++20", "-O3", *flags, "-Xptxas=-v", f"-I{root}", "-cubin",
                 f"-gencode=arch=compute_{architecture},code=sm_{architecture}", "-o", "/dev/null",
                 f"{root}/diff/{name}.cu"], capture_output=True, text=True)
            kernels = KERNEL.findall(done.stderr)
            if done.returncode or len(kernels) != TYPES:
                sys.exit(f"{name}, sm_{architecture}: exit {done.returncode}, {len(kernels)} "
                         f"kernels\n{done.stderr[-2000:]}")
            if any(int(number) for kernel in kernels for number in kernel):
                sys.exit(f"{name}, sm_{architecture}: registers are spilled\n{done.stderr}")
            print(f"{name}, sm_{architecture}: {len(kernels)} kernels, nothing spilled")


if __name__ == "__main__":
    main()
