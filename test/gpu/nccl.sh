#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For a machine with a GPU: NCCL's calls on one device, recorded and compared with what they compute.
#   ./test/gpu/nccl.sh [BUILD]
# The programs are linked with stand-ins of the same names; at run time they get the real libraries
# of NCCL_LIBRARIES, by default those of the Python packages nvidia-nccl-cu13 and
# nvidia-cuda-runtime. Exit code 77 (skipped) where there is no device.
set -euo pipefail
cd "$(dirname "$0")/../.."
tree=${1:-build-gpu-nccl}
[ -e /dev/nvidiactl ] || { echo "no device"; exit 77; }
packages() { python3 -c 'import nvidia, pathlib
print(":".join(str(p) for base in nvidia.__path__ for p in pathlib.Path(base).glob("*/lib")))'; }
export NCCL_LIBRARIES=${NCCL_LIBRARIES:-$(packages)}
[ -f "$tree/build.ninja" ] || meson setup "$tree" -Dcuda=disabled -Dnccl=enabled
meson compile -C "$tree" nccl_client nccl_hidden nccl_scenarios ttrace_nccl ttrace_capture \
  ttrace-writer ttrace-capture
TTRACE_BUILD=$PWD/$tree python3 test/capture/nccl/test_nccl_device.py
