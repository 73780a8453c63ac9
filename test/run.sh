#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, runs every test; ends with "N passed, N failed".
#   ./test/run.sh               everything, the C++ unit tests and the NCCL recorder under ASan and
#                               UBSan, programs of many threads under TSan
#   ./test/run.sh --build-only  stop after the build
#   ./test/run.sh NAME...       only these Meson tests
# SANITIZE=no runs the unit tests as they are, without the sanitizers' build.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
source "$(dirname "$0")/../tools/setup.sh"

build_ttrace
if [ "${1:-}" = --build-only ]; then
  say "Built in $ttrace_build"
  exit 0
fi

logs=()
# run_tests TREE ARGUMENTS...: builds what these tests need. It never stops at a failure; the count
# decides, and a build that broke leaves no log, which counts as one.
run_tests() {
  local tree=$1; shift
  rm -f "$tree/meson-logs/testlog.json" "$tree/meson-logs/hung.txt"
  meson test -C "$tree" --print-errorlogs --num-processes 2 "$@" || true
  logs+=("$tree/meson-logs/testlog.json")
}

if [ $# -gt 0 ]; then
  say "Tests $*"
  run_tests "$ttrace_build" "$@"
elif [ "${SANITIZE:-yes}" = no ]; then
  say "Tests"
  run_tests "$ttrace_build"
else
  say "Tests"
  run_tests "$ttrace_build" --no-suite unit
  say "C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer"
  sanitized=$ttrace_root/build-asan
  # Without UBSan's checks for null (ASan stops there, too) and vptr: they take a third of the build.
  configure_tree "$sanitized" -Dcuda=disabled "-Dnccl=$NCCL" "${cuda_options[@]}" -Dwerror=false -Doptimization=0 \
    -Ddebug=true "-Dcpp_args=['-g1','-fno-sanitize=null,vptr']" -Db_sanitize=address,undefined -Db_lundef=false
  run_tests "$sanitized" --suite unit
fi
python3 "$ttrace_root/test/count_results.py" "${logs[@]}"
