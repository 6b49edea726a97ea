#!/usr/bin/env bash
# Scattering coefficients and speed against Kymatio 0.3.0, which lives in an environment of its own.
#   PYTHON       the Python that has loca (default: python)
#   PARITY_HOME  where the environment is kept (default: .parity)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
environment="${PARITY_HOME:-.parity}/kymatio"
ours="${PYTHON:-python}"

# The stamp is written last, so that an interrupted installation is done again.
if ! cmp -s "$here/requirements.txt" "$environment/requirements.txt"; then
    "$ours" -m venv --clear "$environment"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$environment/requirements.txt"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
theirs=(env -u PYTHONPATH "$environment/bin/python" "$here/reference.py")
"${theirs[@]}" coefficients "$work/kymatio.npz"
"$ours" "$here/compare.py" "$work/kymatio.npz" "${theirs[@]}" time
