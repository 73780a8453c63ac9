#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the NCCL recorder costs a call; see nccl/nccl.py. Needs: meson compile nccl_calls fake_device_ops
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/nccl/nccl.py" "$@"
