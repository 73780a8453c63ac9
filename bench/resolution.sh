#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How small an error each mode finds; see resolution.py. Goes on where it stopped.
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/resolution.py" "$@"
