"""Exported files: a program for other software, with everything that its users need to know about it.

A StableHLO file is a safetensors file like a model file, whose array `program` has the bytes of the program. An ONNX
file holds the same facts in its metadata: `loca` is the JSON document, and `arrays` the arrays in base64.
"""

import base64
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pydantic

from loca.durable import sync, write_atomically
from loca.exporting.formats import read_metadata, run_onnx, run_stablehlo, with_metadata
from loca.exporting.program import Port
from loca.saving import Channel, ModelFileError, Strict, first_problem, parse, read_arrays, write_arrays
from loca.typing import Numbers

SUFFIXES = (".stablehlo", ".onnx")
"""The endings of exported files."""

PROGRAM, PROBE, EXPECTED = "program", "probe.", "expected."
"""The array with a program in StableHLO, and the beginnings of the names of probe inputs and expected outputs."""


class Space(Strict):
    """Y: the range of every coordinate, and its period if it has one."""

    description: str
    bounds: list[tuple[float, float]]
    periods: list[float | None]


class Model(Strict):
    """The model that was exported; `sha256` is that of its file, if it came from one."""

    name: str
    parameters: pydantic.NonNegativeInt
    sha256: str | None
    metrics: dict[str, float]
    provenance: dict[str, Any]


class About(Strict):
    """The JSON document of an exported file, of which docs/deploy.md describes every key; they are in this order."""

    export: Literal[1]
    kind: Literal["stablehlo", "onnx"]
    versions: dict[str, str]
    inputs: list[Port]
    outputs: list[Port]
    input_variables: list[Channel]
    output_variables: list[Channel]
    sensor_coordinates: list[list[Channel]]
    query_coordinates: list[Channel]
    domain: Space
    normalization: dict[str, list[float]]
    transforms: dict[str, str]
    level: float | None
    gradients: bool
    platforms: list[str]
    model: Model


@dataclasses.dataclass(frozen=True, eq=False)
class Artifact:
    """An exported program. It can be called: `artifact(u=u, y=y)["mean"]`.

    **Arguments:**

    - `about`: the facts about it.
    - `program`: its bytes: serialized by `jax.export`, or the complete ONNX file.
    - `arrays`: the locations of sensors (`sensors`), fixed queries (`queries`), the inputs of a probe (`probe.u`, …),
      and the outputs that the model has for it (`expected.mean`, …).
    - `digest`: SHA-256 of the file; empty before it is written.
    - `size`: of the file, in bytes.
    """

    about: About
    program: bytes
    arrays: Mapping[str, np.ndarray]
    digest: str = ""
    size: int = 0

    @property
    def probe(self) -> dict[str, np.ndarray]:
        """The inputs of the probe, by name."""
        return {port.name: self.arrays[PROBE + port.name] for port in self.about.inputs}

    @property
    def expected(self) -> dict[str, np.ndarray]:
        """The outputs that the model has for the probe, by name."""
        return {port.name: self.arrays[EXPECTED + port.name] for port in self.about.outputs}

    def __call__(self, **inputs: Numbers) -> dict[str, np.ndarray]:
        """Run the program on inputs by name."""
        names = [port.name for port in self.about.inputs]
        if missing := [name for name in names if name not in inputs]:
            raise ValueError(f"the program takes {', '.join(names)}; {missing[0]} is missing")
        given = {port.name: np.asarray(inputs[port.name], port.dtype) for port in self.about.inputs}
        if self.about.kind == "onnx":
            return run_onnx(self.program, given)
        return run_stablehlo(self.program, list(given.values()))

    def write(self, path: Path) -> None:
        """Write the artifact to a new file, atomically."""
        if path.exists():
            raise FileExistsError(f"{path} already exists; choose another name, or delete it first")
        document = self.about.model_dump_json()
        _read_about(document)  # what cannot be read is not written
        if self.about.kind == "stablehlo":
            program = {PROGRAM: np.frombuffer(self.program, np.uint8)}
            write_arrays(path, document, {**self.arrays, **program})
            return
        arrays = {
            name: {"dtype": str(each.dtype), "shape": each.shape, "data": base64.b64encode(each.tobytes()).decode()}
            for name, each in self.arrays.items()
        }
        contents = with_metadata(self.program, {"loca": document, "arrays": json.dumps(arrays)})
        write_atomically(path, lambda file: file.write(contents))
        sync(path.parent)


def read_artifact(path: Path) -> Artifact:
    """Read an exported file; every bit of it is checked, and nothing in it is executed.

    Raise `ModelFileError` for anything but a complete and valid file.
    """
    try:
        if path.suffix == ".onnx":
            program = path.read_bytes()
            (document, listed), digest = read_metadata(program, "loca", "arrays")
            about = _read_about(document)
            try:
                arrays = {
                    name: np.frombuffer(base64.b64decode(x["data"], validate=True), x["dtype"]).reshape(x["shape"])
                    for name, x in parse(listed).items()
                }
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ModelFileError("the arrays in the metadata are not valid; export the file again") from error
            return Artifact(about, program, arrays, digest, len(program))
        contents = read_arrays(path)
        about, arrays = _read_about(contents.document), dict(contents.arrays)
        program = arrays.pop(PROGRAM).tobytes()
        return Artifact(about, program, arrays, contents.digest, contents.size)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error


def _read_about(text: str) -> About:
    parse(text)
    try:
        return About.model_validate_json(text)
    except pydantic.ValidationError as error:
        raise ModelFileError(f"this is no program that this `loca export` wrote: {first_problem(error)}") from None
