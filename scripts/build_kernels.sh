#!/usr/bin/env bash
# Compiles every GPU kernel for every architecture, without a GPU, into DIR (default: where `chimere serve` looks for them).
# Usage: scripts/build_kernels.sh [DIR [MODEL...]]. Needs libnvrtc.so.13; where the loader does not find it, the wheel nvidia-cuda-nvrtc
# is fetched into target/nvrtc-venv (needs python3 with venv), or CHIMERE_NVRTC names the library.
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
if [[ $# -gt 0 ]]; then
    options+=(--dir "$1")
    shift
fi
for model in "$@"; do
    options+=(--model "$model")
done
if [[ -z "${CHIMERE_NVRTC:-}" ]] && ! ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so\.13'; then
    venv=target/nvrtc-venv
    if [[ ! -x $venv/bin/python ]]; then
        python3 -m venv "$venv"
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'nvidia-cuda-nvrtc==13.0.*'
    CHIMERE_NVRTC="$(find "$PWD/$venv" -name libnvrtc.so.13 -print -quit)"
    export CHIMERE_NVRTC
fi
cargo run --release --locked -- kernels build "${options[@]}"
