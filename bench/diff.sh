#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How fast ttrace-diff compares two HDF5 files, next to h5diff, cmp, numpy and torch, and two traces; see diff.py.
#   bench/diff.sh [FOLDER]     about 10 GB there, kept for the next time; BUILD (build) is the build folder
# The folder is /tmp/ttrace-diff-bench unless given; it takes 8 minutes. Needs h5diff, and h5py, numpy and torch.
case "${1:-}" in -h | --help) sed -n '3,6s/^# \{0,1\}//p' "$0"; exec "${PYTHON:-python3}" "$(dirname "$0")/diff.py" --help ;; esac
set -e
build=${BUILD:-build}
ninja -C "$build" tools/ttrace-diff tools/ttrace-tolerance bench/diff_limits bench/diff_trace >/dev/null
exec "${PYTHON:-python3}" "$(dirname "$0")/diff.py" --build "$build" "$@"
