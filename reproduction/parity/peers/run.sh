#!/usr/bin/env bash
# Our FNO against neuraloperator 2.0.0 and our DeepONet against DeepXDE 1.15.0, in an environment of their own.
#   PYTHON       the Python that has loca (default: python)
#   PARITY_HOME  where the environment is kept (default: .parity)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
theirs=$("$here/environment.sh")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env -u PYTHONPATH "$theirs" "$here/peer.py" "$work/peers.npz"
"${PYTHON:-python}" "$here/compare.py" "$work/peers.npz"
