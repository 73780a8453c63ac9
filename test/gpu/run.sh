#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For a machine with a GPU: builds with CUDA, then runs the kernels against the CPU backend and under
# compute-sanitizer, and compares tensors on the device, as a share of its own copying. Exit code 77
# (skipped) where there is no device.
set -euo pipefail
cd "$(dirname "$0")/../.."
tree=${1:-build-gpu}
[ -f "$tree/build.ninja" ] || meson setup "$tree" -Dcuda=enabled -Dnccl=disabled
meson compile -C "$tree" test_backend_cuda bandwidth
"$tree/test/gpu/test_backend_cuda"
"$tree/test/gpu/bandwidth"
if command -v compute-sanitizer >/dev/null; then
  compute-sanitizer --tool racecheck --error-exitcode 1 "$tree/test/gpu/test_backend_cuda"
  compute-sanitizer --tool memcheck --error-exitcode 1 "$tree/test/gpu/test_backend_cuda"
fi
