#!/usr/bin/env bash
# Makes the peers' environment unless it is there, from the locked requirements, and prints the path of its Python.
#   PYTHON       the Python that makes it (default: python)
#   PARITY_HOME  where environments are kept (default: .parity)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
environment="${PARITY_HOME:-.parity}/peers"

# The stamp is written last, so that an interrupted installation is done again.
if ! cmp -s "$here/requirements.txt" "$environment/requirements.txt"; then
    "${PYTHON:-python}" -m venv --clear "$environment"
    install=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${install[@]}" torch==2.13.0 >&2
    "${install[@]}" --no-deps --require-hashes -r "$here/requirements.txt" >&2
    cp "$here/requirements.txt" "$environment/requirements.txt"
fi
echo "$environment/bin/python"
