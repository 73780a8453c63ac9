#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Inferring and checking invariants beside TrainCheck 0.2.0, which it installs; see invariants.py.
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/invariants.py" "$@"
