#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ttrace-check sees without a reference; see check.py.
here=$(dirname "$0")
exec "${PYTHON:-python3}" "$here/check.py" "$@"
