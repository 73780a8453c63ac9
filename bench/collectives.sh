#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What recording collectives costs a call of torch.distributed; see collectives.py.
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/collectives.py" "$@"
