#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The loops of the comparison on ARM's NEON: compiles them and the fuzzer with a cross compiler and
# runs it in an emulator, for machines that have no ARM processor.
#   test/neon.sh [SECONDS]     needs g++-aarch64-linux-gnu, qemu-user and the headers of Highway
case "${1:-}" in -h | --help) sed -n '3,5s/^# \{0,1\}//p' "$0"; exit 0 ;; -*) echo "$0: unknown option $1" >&2; exit 2 ;; esac
set -e
cd "$(dirname "$0")/.."
for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $program >/dev/null || { echo "$0: $program: not found; apt-get install g++-aarch64-linux-gnu qemu-user" >&2; exit 2; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Highway is headers only here; the system's other headers are not those of the target.
cp -r "$(pkg-config --variable=includedir libhwy)/hwy" "$scratch"
aarch64-linux-gnu-g++ -std=c++20 -O2 -ffp-contract=off -Wno-psabi -I. -I"$scratch" \
  diff/strip_loops.cpp diff/noise_loops.cpp diff/statistics_loops.cpp diff/backend.cpp diff/backend_cpu.cpp \
  diff/backend_scalar.cpp diff/backend_cuda_absent.cpp libttrace/core/dtype.cpp libttrace/core/intervals.cpp \
  test/diff/fuzz_backends.cpp -o "$scratch/fuzz" -lpthread
qemu-aarch64 -L /usr/aarch64-linux-gnu "$scratch/fuzz" --seconds "${1:-60}" --seed "$(date +%s)"
