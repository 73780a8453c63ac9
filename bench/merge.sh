#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What merging costs: the steps alone, for 64 ranks of about 10,000 tensors each (96 layers, TP 8, PP 4, DP 2),
# and how fast shards of 4 MiB are put together, against a plain loop that reads the same files.
#   bench/merge.sh [FOLDER]     about 3 GB there, kept for the next time; BUILD (build) is the build folder
case "${1:-}" in -h | --help) sed -n '3,6s/^# \{0,1\}//p' "$0"; exit 0 ;; -*) echo "$0: unknown option $1" >&2; exit 2 ;; esac
set -e
build=${BUILD:-build}
folder=${1:-/tmp/ttrace-merge-bench}
ninja -C "$build" bench/merge_trace bench/merge_time >/dev/null
mkdir -p "$folder"
make() {
    name=$1; shift
    [ -e "$folder/$name.done" ] && return
    rm -rf "${folder:?}/$name"
    "$build/bench/merge_trace" "$folder/$name" "$@"
    touch "$folder/$name.done"
}
make small ranks 8 4 2 96 17
make reference ranks 1 1 1 96 34
make large large 8 1024

plan=$("$build/bench/merge_time" plan "$folder/small")
infer=$("$build/bench/merge_time" infer "$folder/small" "$folder/reference")
"$build/bench/merge_time" read "$folder/large" >/dev/null  # into the page cache
read=$("$build/bench/merge_time" read "$folder/large")
merge=$("$build/bench/merge_time" merge "$folder/large")

# Seconds of CPU: what others do on the machine counts for less.
cpu() { echo "$1" | awk -v name="$2" '$1 == name && $3 == "cpu" { print $4 }'; }
value() { echo "$1" | awk -v name="$2" '$1 == name { print $2 }'; }
sum() { echo "$@" | awk '{ for (i = 1; i <= NF; ++i) sum += $i; printf "%.2f", sum }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

planning=$(sum "$(cpu "$plan" number)" "$(cpu "$plan" group)" "$(cpu "$plan" decide)" \
    "$(cpu "$plan" place_and_prove)")
inference=$(cpu "$infer" infer)
peak=$(value "$plan" peak)
echo "| step | measured | target | of the target |"
echo "|---|---|---|---|"
echo "| open 64 segments | $(cpu "$plan" open) s | | |"
echo "| planning: number, group, decide, place, prove ($(value "$plan" tensors) tensors) | $planning s | 2 s | $(ratio "$planning" 2) |"
echo "| peak memory of it | $peak MiB | 500 MiB | $(ratio "$peak" 500) |"
echo "| inference by content | $inference s | 1 s | $(ratio "$inference" 1) |"
speed=$(ratio "$(cpu "$read" read)" "$(cpu "$merge" merge)")
echo "| merging shards of 4 MiB, speed as a share of reading | $speed | 0.5 | $(ratio "$speed" 0.5) |"
