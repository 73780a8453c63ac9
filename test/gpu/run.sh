#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For a machine with a GPU: builds with CUDA, then runs the kernels against the CPU backend and under
# compute-sanitizer, compares tensors on the device, as a share of its own copying, and records tensors
# of the device that the program overwrites and frees at once. Exit code 77 (skipped) where there is no
# device.
set -euo pipefail
cd "$(dirname "$0")/../.."
tree=${1:-build-gpu}
[ -f "$tree/build.ninja" ] || meson setup "$tree" -Dcuda=enabled -Dnccl=disabled
meson compile -C "$tree" test_backend_cuda bandwidth device_capture ttrace-writer
"$tree/test/gpu/test_backend_cuda"
"$tree/test/gpu/bandwidth"
"$tree/test/gpu/device_capture"
if command -v compute-sanitizer >/dev/null; then
  compute-sanitizer --tool racecheck --error-exitcode 1 "$tree/test/gpu/test_backend_cuda"
  compute-sanitizer --tool memcheck --error-exitcode 1 "$tree/test/gpu/test_backend_cuda"
fi
./test/gpu/nccl.sh
