#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What each mode finds, and what it wrongly flags; see detection.py. Goes on where it stopped.
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/detection.py" "$@"
