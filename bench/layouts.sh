#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every layout of the samples against one rank; see layouts.py. Goes on where it stopped.
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/layouts.py" "$@"
