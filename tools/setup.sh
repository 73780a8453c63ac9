#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing and builds ttrace; sourced by samples/demo.sh and test/run.sh.
# Each step is skipped when its result is there, so that a second run starts in seconds.
# Works on Debian and Ubuntu, as root or with sudo. Settings: CUDA and NCCL = auto, enabled, disabled;
# GPU_ARCH = compute capabilities to build for, e.g. 90.
set -euo pipefail

ttrace_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ttrace_venv=$ttrace_root/.venv
ttrace_build=$ttrace_root/build
: "${CUDA:=auto}" "${NCCL:=auto}"

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "$1: need root: run as root or install sudo"; fi
}

# A package is missing when dpkg does not list it as installed.
install_packages() {
  command -v dpkg-query >/dev/null || fail "dpkg-query: this script knows Debian and Ubuntu only; README.md lists what to install elsewhere"
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "Installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The Python to build on: the first one on PATH that has torch, else the first one.
choose_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import torch' 2>/dev/null; then
      echo "$candidate"; return
    fi
  done
  command -v python3 || fail "python3: not found after installing it"
}

# An importable torch is used as it is: the environment then sees the system's packages.
make_venv() {
  [ -x "$ttrace_venv/bin/pip" ] && return
  local python; python=$(choose_python)
  local options=()
  "$python" -c 'import torch' 2>/dev/null && options+=(--system-site-packages)
  if ! "$python" -m venv "${options[@]}" "$ttrace_venv" 2>/dev/null; then
    rm -rf "$ttrace_venv"
    install_packages python3-venv
    "$python" -m venv "${options[@]}" "$ttrace_venv"
  fi
}

has_python_headers() {
  "$ttrace_venv/bin/python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

# pip_needs MODULE PACKAGE...: installs when the module cannot be imported.
pip_needs() {
  local module=$1; shift
  "$ttrace_venv/bin/python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" 2>/dev/null && return
  say "Installing $*"
  "$ttrace_venv/bin/pip" install -q "$@" 2>&1 | grep -v '^WARNING' || true
  "$ttrace_venv/bin/python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" ||
    fail "pip: $*: could not be installed, see above"
}

install_dependencies() {
  install_packages g++ pkg-config python3 libhdf5-dev hdf5-tools zlib1g-dev libcli11-dev \
    nlohmann-json3-dev catch2 libxxhash-dev libhwy-dev libsimdjson-dev
  make_venv
  has_python_headers || install_packages python3-dev
  pip_needs mesonbuild meson
  pip_needs ninja ninja
  pip_needs torch torch==2.13.0
  pip_needs numpy numpy
  pip_needs h5py h5py
  pip_needs packaging packaging
  pip_needs megatron --no-deps megatron-core==0.16.1
  pip_needs xxhash xxhash
  export PATH=$ttrace_venv/bin:$PATH
}

# CUDA's wheels lay one toolkit here, each its part.
wheels_toolkit() {
  "$ttrace_venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/nvidia/cu13")'
}

# toolkit_needs FILE PACKAGE...: installs when the toolkit of wheels lacks the file. A torch brings
# some of them: then the others are taken of its release. Those of a system's torch lie elsewhere, and
# all must be in one place.
toolkit_needs() {
  local file=$1 toolkit release=13.0 options=(--ignore-installed) package; shift
  toolkit=$(wheels_toolkit)
  [ -f "$toolkit/$file" ] && return
  if [ -f "$toolkit/include/cuda_runtime.h" ]; then
    options=()
    release=$("$ttrace_venv/bin/python" -c 'from importlib.metadata import version
print(".".join(version("nvidia-cuda-runtime").split(".")[:2]))')
  fi
  say "Installing $*"
  "$ttrace_venv/bin/pip" install -q --no-deps "${options[@]}" "${@/%/==$release.*}" 2>&1 | grep -v '^WARNING' || true
  [ -f "$toolkit/$file" ] || fail "pip: $*: installed no $file, see above"
}

# With CUDA=enabled and no nvcc on the machine, the compiler comes from wheels, which have `lib`
# where nvcc and Meson look for `lib64` and `targets/...`.
install_cuda() {
  [ "$CUDA" = enabled ] || return 0
  command -v nvcc >/dev/null && return
  [ -x /usr/local/cuda/bin/nvcc ] && { export PATH=/usr/local/cuda/bin:$PATH; return; }
  toolkit_needs bin/nvcc nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl
  local prefix; prefix=$(wheels_toolkit)
  mkdir -p "$prefix/targets/x86_64-linux"
  ln -sfn lib "$prefix/lib64"
  ln -sfn ../../lib "$prefix/targets/x86_64-linux/lib"
  ln -sfn ../../include "$prefix/targets/x86_64-linux/include"
  export PATH=$prefix/bin:$PATH CUDA_PATH=$prefix
  cuda_options=("-Dtoolkit_root=$prefix")
}

# NCCL's header includes CUDA's: from wheels where no toolkit is.
install_nccl() {
  [ "$NCCL" = enabled ] || return 0
  pip_needs nvidia.nccl nvidia-nccl-cu13
  [ ${#cuda_options[@]} = 0 ] && [ ! -f /usr/local/cuda/include/cuda_runtime.h ] || return 0
  # cuda_runtime.h includes the one, cuda_fp16.h the other.
  toolkit_needs include/crt/host_config.h nvidia-cuda-runtime nvidia-cuda-crt
  toolkit_needs include/nv/target nvidia-cuda-runtime nvidia-cuda-cccl
  cuda_options=("-Dtoolkit_root=$(wheels_toolkit)")
}

# configure_tree DIRECTORY MESON-OPTIONS...
configure_tree() {
  local tree=$1; shift
  [ -f "$tree/build.ninja" ] && return
  say "Configuring $(basename "$tree")"
  meson setup "$tree" "$ttrace_root" "$@" >"$tree.log" 2>&1 || { cat "$tree.log" >&2; rm -rf "$tree"; fail "meson setup failed, see above"; }
}

# build_tree DIRECTORY MESON-OPTIONS...
build_tree() {
  configure_tree "$@"
  local tree=$1
  meson compile -C "$tree" >"$tree.log" 2>&1 || { tail -n 60 "$tree.log" >&2; fail "build failed, see above and $tree.log"; }
}

build_ttrace() {
  cuda_options=()
  install_dependencies
  install_cuda
  install_nccl
  say "Building ttrace"
  [ -n "${GPU_ARCH:-}" ] && cuda_options+=("-Dgpu_arch=$GPU_ARCH")
  build_tree "$ttrace_build" "-Dcuda=$CUDA" "-Dnccl=$NCCL" "${cuda_options[@]}"
}
