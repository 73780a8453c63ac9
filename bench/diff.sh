#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How fast ttrace-diff compares two HDF5 files, next to h5diff, cmp, numpy and torch, and two traces; see diff.py.
#   bench/diff.sh [FOLDER]     about 10 GB there, kept for the next time; BUILD (build) is the build folder
case "${1:-}" in -h | --help) sed -n '3,6s/^# \{0,1\}//p' "$0"; exit 0 ;; -*) echo "$0: unknown option $1" >&2; exit 2 ;; esac
set -e
build=${BUILD:-build}
ninja -C "$build" tools/ttrace-diff tools/ttrace-tolerance bench/diff_limits bench/diff_trace >/dev/null
exec "${PYTHON:-python3}" "$(dirname "$0")/diff.py" --build "$build" "$@"
