#!/usr/bin/env bash
# Exported programs in C++, Node and Python without this package, and their conversion to ONNX, tested for real.
#   PYTHON       the Python that has loca and its tests (default: python)
#   PARITY_HOME  where the environment of jax2onnx and the packages of Node are kept (default: .parity)
#   ONNXRUNTIME  a release of ONNX Runtime for C++ (default: the headers in Debian 13 and the library in the wheel)
#
# requirements.txt: uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
#     --constraint requirements/py311.txt pyproject.toml reproduction/parity/readers/requirements.in
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../../.." && pwd)
mkdir -p "${PARITY_HOME:-.parity}"
environment=$(cd -- "${PARITY_HOME:-.parity}" && pwd)/readers
ours="${PYTHON:-python}"
install=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)

# The stamp is written last, so that an interrupted installation is done again.
if ! cmp -s "$here/requirements.txt" "$environment/requirements.txt"; then
    "$ours" -m venv --clear "$environment"
    "${install[@]}" --no-deps --require-hashes -r "$here/requirements.txt"
    "${install[@]}" --no-deps jax2onnx==0.17.1
    npm install --silent --prefix "$environment" --ignore-scripts onnxruntime-node@1.30.0
    cp "$here/requirements.txt" "$environment/requirements.txt"
fi

# ONNX Runtime accepts programs that were compiled with the headers of an earlier release.
make_release() {
    local mirror apt="$environment/apt" release="$environment/onnxruntime"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$release/lib"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$apt/sources.list"
    local get=(apt-get --quiet=2 -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User="$(id --user --name)")
    local library
    library=$("$environment/bin/python" -c 'import pathlib, onnxruntime as found
print(*pathlib.Path(found.__file__).parent.glob("capi/libonnxruntime.so.*"))')
    ln --symbolic --force "$library" "$release/lib/libonnxruntime.so"
    ln --symbolic --force "$library" "$release/lib/libonnxruntime.so.1"
    "${get[@]}" update && (cd "$apt" && "${get[@]}" download libonnxruntime-dev && dpkg-deb --extract libonnxruntime-dev_*.deb .)
    ln --symbolic --force --no-dereference "$apt/usr/include/onnxruntime" "$release/include"
}

if [ -z "${ONNXRUNTIME:-}" ] && command -v dpkg-deb > /dev/null; then
    export ONNXRUNTIME="$environment/onnxruntime"
    [ -e "$ONNXRUNTIME/include/onnxruntime_cxx_api.h" ] || make_release
fi
"${install[@]}" --no-deps --force-reinstall "$root"

cd "$root"
export LOCA_JAX2ONNX="$environment/bin/python" NODE_PATH="$environment/node_modules"
LOCA_FULL=1 "$ours" -m pytest -q -rs tests/exporting
