#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole tool in one command: a real Megatron-Core training step on one rank (the reference), the
# same on four ranks (tensor parallel 2, pipeline parallel 2, sequence parallel), and the same with a
# bug put in. ttrace must call the second "same" and name the buggy module in the third.
#   ./samples/demo.sh [BUG]     BUG: sp-layernorm-grad (default) or another of samples/megatron
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '3,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
source "$(dirname "$0")/../tools/setup.sh"
bug=${1:-sp-layernorm-grad}

build_ttrace

traces=${TTRACE_DEMO_DIR:-$ttrace_root/demo.trace}
rm -rf "$traces"
mkdir -p "$traces"
export OMP_NUM_THREADS=1 PATH=$ttrace_build/tools:$PATH
train=$ttrace_root/samples/megatron/pretrain_gpt.py
layout=(--tp 2 --pp 2 --sp)

show() { printf '\n$ %s\n' "$(echo "$*" | sed "s#$ttrace_root/##g")"; }
# capture NAME COMMAND...: a run whose output is kept beside its trace, shown when it fails.
capture() {
  local name=$1; shift
  show ttrace-capture -o "$name" "$@"
  ttrace-capture -q -o "$traces/$name" "$@" >"$traces/$name.log" 2>&1 || { local code=$?; cat "$traces/$name.log"; fail "$name: capture ended with exit code $code, see above"; }
  grep -h '^iteration' "$traces/$name.log" | head -n 2 || true
}
verdict=0
compare() {
  local expected=$1 name=$2 code=0
  show ttrace-diff reference.trace "$name"
  ttrace-diff "$traces/reference.trace" "$traces/$name" || code=$?
  [ "$code" = "$expected" ] || { echo "demo: expected exit code $expected, got $code" >&2; verdict=1; }
}

say "1. The reference: one rank"
capture reference.trace -- python3 "$train"
say "2. The run in doubt: four ranks, TP2 x PP2 with sequence parallelism, the same start weights"
capture healthy.trace --init-from "$traces/reference.trace" -- torchrun --nproc-per-node 4 "$train" "${layout[@]}"
compare 0 healthy.trace
say "3. The same with a bug: $bug"
capture buggy.trace --init-from "$traces/reference.trace" -- torchrun --nproc-per-node 4 "$train" "${layout[@]}" --bug "$bug"
compare 1 buggy.trace
exit $verdict
