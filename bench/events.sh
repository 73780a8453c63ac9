#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What recording events costs a training step, beside TrainCheck's own collector; see events.py.
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/events.py" "$@"
