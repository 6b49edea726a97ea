#!/usr/bin/env bash
# Our FNO against neuraloperator 2.0.0 and our DeepONet against DeepXDE 1.15.0, in an environment of their own.
#   PYTHON       the Python that has loca (default: python)
#   PARITY_HOME  where the environment is kept (default: .parity)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
environment="${PARITY_HOME:-.parity}/peers"
ours="${PYTHON:-python}"

# The stamp is written last, so that an interrupted installation is done again.
if ! cmp -s "$here/requirements.txt" "$environment/requirements.txt"; then
    "$ours" -m venv --clear "$environment"
    install=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${install[@]}" torch==2.13.0
    "${install[@]}" --no-deps --require-hashes -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$environment/requirements.txt"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env -u PYTHONPATH "$environment/bin/python" "$here/peer.py" "$work/peers.npz"
"$ours" "$here/compare.py" "$work/peers.npz"
