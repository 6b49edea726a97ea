"""The two formats of exported programs: StableHLO, which JAX runs on any of its platforms, and ONNX by jax2onnx."""

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from loca.exporting.program import Program
from loca.saving import Classes, ModelFileError, save

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""The platforms on which one and the same program runs."""


def to_stablehlo(program: Program, *, gradients: bool) -> bytes:
    """A program in the serialized form of `jax.export`."""
    function = jax.jit(program.function(in_chunks=not gradients))
    exported = export.export(function, platforms=PLATFORMS)(*program.specifications())
    with jax.enable_x64(True):  # derivatives have the precision of what they are derivatives of
        return bytes(exported.serialize(vjp_order=1 if gradients else 0))


def run_stablehlo(program: bytes, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a serialized program."""
    outputs: Any = export.deserialize(bytearray(program)).call(*inputs)
    return {name: np.asarray(values) for name, values in outputs.items()}


VARIABLE = "LOCA_JAX2ONNX"
"""The environment variable with the path of a Python interpreter that has jax2onnx."""

JAX2ONNX = "0.17.1"
"""The version of jax2onnx that the conversion was tested with; it calls parts that are not documented."""

RECIPE = """\
    python -m venv ~/jax2onnx
    ~/jax2onnx/bin/pip install loca-jax=={loca} jax=={jax} flax dm-pix onnx onnx-ir onnxruntime
    ~/jax2onnx/bin/pip install --no-deps jax2onnx=={jax2onnx}
    export {variable}=~/jax2onnx/bin/python"""
"""How to make the environment. jax2onnx pins an Orbax that does not work with our JAX, hence `--no-deps`."""


def convert(
    program: Program, probe: Mapping[str, np.ndarray], classes: Classes = ()
) -> tuple[bytes, dict[str, np.ndarray], dict[str, str]]:
    """Convert a program to ONNX in another process, whose environment has jax2onnx.

    Return the ONNX model, what ONNX Runtime computes with it for the probe inputs, and the versions that were used.
    The other process imports the classes that the model is made of.
    """
    needed, python = {"loca-jax": version("loca-jax"), "jax2onnx": JAX2ONNX}, os.environ.get(VARIABLE)
    path = Path(python or "").expanduser()
    if not path.is_file():
        problem = f"is {python}, which does not exist" if python else "is not set"
        recipe = RECIPE.format(loca=version("loca-jax"), jax=version("jax"), jax2onnx=JAX2ONNX, variable=VARIABLE)
        raise RuntimeError(
            f"ONNX files are made by jax2onnx, which needs an environment of its own, but {VARIABLE} {problem}; make "
            f"the environment once (from a checkout, install its path instead of loca-jax):\n{recipe}"
        )
    names = [f"{each.__module__}:{each.__qualname__}" for each in classes]  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save(program.operator, folder / "operator.safetensors")
        request = {"level": program.level, "classes": names, "needed": needed}
        (folder / "request.json").write_text(json.dumps(request))
        if program.y is not None:
            np.save(folder / "queries.npy", program.y)
        np.savez(folder / "probe.npz", **probe)  # pyright: ignore[reportArgumentType]
        run(str(path), "from loca.exporting.onnx_worker import main; main()", place)
        with np.load(folder / "outputs.npz") as outputs:
            versions = json.loads((folder / "versions.json").read_text())
            return (folder / "model.onnx").read_bytes(), dict(outputs), versions


def run(python: str, code: str, *arguments: str) -> str:
    """The output of another interpreter; raise with its last words if it fails."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # its own packages only
    done = subprocess.run([python, "-c", code, *arguments], capture_output=True, text=True, env=variables)
    if done.returncode:
        last = done.stderr.rpartition('\n  File "')[2]  # the last frame of a traceback, and the exception
        exception = re.search(r"\n\S.*", last, re.DOTALL)
        said = (exception.group() if exception else done.stderr).split() or ["no message"]
        raise RuntimeError(f"{python} failed: {' '.join(said)[:1000]}")
    return done.stdout


def run_onnx(model: bytes, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Predictions by ONNX Runtime."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise ImportError("running an ONNX file needs ONNX Runtime: pip install loca-jax[onnx]") from error
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    found = session.run(names, dict(inputs))
    return {name: np.asarray(values) for name, values in zip(names, found, strict=True)}


# ---- metadata --------------------------------------------------------------------------------------------------------
#
# An ONNX file is a protocol buffer, `ModelProto`. Its field 14, `metadata_props`, holds pairs of text, each a message
# with the fields 1 and 2. In this format, appending a field to the bytes of a message adds it to the message, so
# metadata is written without the package onnx, and found at the end of the file. The last pair is the SHA-256 of the
# file with zeros in its place; the values of the others are JSON.

KEY, VALUE, PAIR = (1 << 3) | 2, (2 << 3) | 2, (14 << 3) | 2
"""The tags of these fields, all of which begin with their length."""


def with_metadata(model: bytes, pairs: Mapping[str, str]) -> bytes:
    """An ONNX file with metadata and, as the last 64 bytes, its digest."""
    contents = b"".join([model, *(_pair(name, text) for name, text in pairs.items()), ENDING])
    return contents + hashlib.sha256(contents + NO_DIGEST).hexdigest().encode()


def read_metadata(contents: bytes, *names: str) -> tuple[list[str], str]:
    """Metadata of an ONNX file that `with_metadata` wrote, and its digest; raise if it is damaged."""
    digest = hashlib.sha256(contents[:-64] + NO_DIGEST).hexdigest()
    if contents[-64 - len(ENDING) : -64] != ENDING:
        raise ModelFileError("this is not an ONNX file of loca, or it was truncated; `loca export` writes them")
    if contents[-64:] != digest.encode():
        raise ModelFileError("the file does not match its SHA-256: it is damaged or was altered; export it again")
    try:
        return [_value(contents, name) for name in names], digest
    except ValueError as error:
        raise ModelFileError("the metadata of this file is not valid; export it again") from error


def _value(contents: bytes, name: str) -> str:
    """The JSON that follows a name and its own length, whose last byte alone is below 128."""
    key = _encoded(KEY, name.encode()) + bytes([VALUE])
    start = contents.rindex(key) + len(key)
    while contents[start] > 0x7F:
        start += 1
    text = contents[start + 1 :].decode(errors="replace")
    return text[: json.JSONDecoder().raw_decode(text)[1]]


def _pair(name: str, text: str) -> bytes:
    return _encoded(PAIR, _encoded(KEY, name.encode()) + _encoded(VALUE, text.encode()))


def _encoded(tag: int, contents: bytes) -> bytes:
    """A field that begins with its length: in groups of seven bits, the lowest first, the last without highest bit."""
    groups, size = [tag], len(contents)
    while size > 0x7F:
        groups.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*groups, size]) + contents


NO_DIGEST = b"0" * 64
ENDING = _pair("sha256", NO_DIGEST.decode())[:-64]
"""The bytes before the digest of a file."""
