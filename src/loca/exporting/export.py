"""`export` and `compare`: from a model to a program for other software, and whether the two still agree."""

import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from loca.data import Identity
from loca.exporting.artifact import EXPECTED, PROBE, SUFFIXES, About, Artifact, Model, Space
from loca.exporting.formats import PLATFORMS, convert, run_stablehlo, to_stablehlo
from loca.exporting.program import Program, example_in
from loca.models import LEVEL, Operator, knows_sensors
from loca.parameters import count
from loca.saving import Channel, Classes, Header
from loca.typing import Measurements, MultiInput, Numbers

TOLERANCE = 1e-5
"""How far a program may differ from its model, relative to the largest value of each channel."""


class Difference(NamedTuple):
    """The largest difference of an output, absolute and relative to the largest value of its channel."""

    output: str
    absolute: float
    relative: float


def export(
    operator: Operator,
    path: str | os.PathLike[str],
    *,
    y: Numbers | None = None,
    level: float = LEVEL,
    gradients: bool = False,
    u: Numbers | Measurements | MultiInput | None = None,
    header: Header | None = None,
    classes: Classes = (),
) -> Artifact:
    """Write an operator as a program that runs without this package.

    The program takes and returns values in the units of the data, for any number of functions and queries. It returns
    `mean` and, for an operator that knows its error, `std`, `lower` and `upper`, and for a calibrated one the p-value
    `in_distribution` of every function. Before the file is written, the program is compared with the operator.

    **Arguments:**

    - `operator`: a model that was created from data.
    - `path`: a new file; MODEL.stablehlo runs in JAX, MODEL.onnx in ONNX Runtime. The latter is made in another
      environment; without one, the message says how to make it.
    - `y`: fixed queries (P, d_y). The program then takes inputs alone, and work on the queries is done once, here.
    - `level`: of bands.
    - `gradients`: whether the program can be differentiated once, in reverse mode; StableHLO only.
    - `u`: an input function, as in a call of the operator, if the operator does not know its sensors.
    - `header`: of the model file, from `loca.saving.inspect`: its digest, metrics and origin are kept.
    - `classes`: your own classes that the operator is made of, for ONNX.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"expected a name that ends in {' or '.join(SUFFIXES)}, got {path.name!r}")
    if path.exists():
        raise FileExistsError(f"{path} already exists; choose another name, or delete it first")
    if gradients and path.suffix == ".onnx":
        raise ValueError("ONNX files hold no derivatives; export .stablehlo with gradients")
    program = Program.of(operator, y, level, u)
    probe = program.probe()
    expected = program.predictions(probe)
    if path.suffix == ".onnx":
        contents, outputs, versions = convert(program, probe, classes)
        platforms = ("cpu",)
    else:
        contents = to_stablehlo(program, gradients=gradients)
        outputs = run_stablehlo(contents, [probe[port.name] for port in program.inputs])
        versions, platforms = {name: version(name) for name in ("loca-jax", "jax")}, PLATFORMS
    worst = max(differences(outputs, expected), key=lambda each: each.relative)
    if not worst.relative <= TOLERANCE:
        raise RuntimeError(
            f"the exported program differs from the model: {worst.output} by {worst.relative:.1e} of its largest "
            f"value, more than {TOLERANCE:g}; this is an error of the conversion, please report it"
        )
    kind = "onnx" if path.suffix == ".onnx" else "stablehlo"
    about = _describe(program, kind, versions, platforms, gradients, header)
    arrays = {PROBE + name: values for name, values in probe.items()}
    arrays |= {EXPECTED + name: values for name, values in expected.items()}
    artifact = Artifact(about, contents, arrays | _locations(program))
    artifact.write(path)
    return artifact


def compare(artifact: Artifact, operator: Operator) -> tuple[Difference, ...]:
    """Compare a program with an operator on the program's probe: the largest difference of every output.

    The two agree if no relative difference exceeds `TOLERANCE`. Raise `ValueError` if the operator takes or returns
    other arrays than the program.

    **Arguments:**

    - `artifact`: an exported program.
    - `operator`: the model that it was made from, or another one.
    """
    is_known = operator.signature is None or knows_sensors(operator.signature)
    queries, level = artifact.arrays.get("queries"), artifact.about.level or LEVEL
    program = Program.of(operator, queries, level, None if is_known else example_in(artifact.probe))
    for what, here, there in (
        ("takes", program.inputs, artifact.about.inputs),
        ("returns", program.outputs, artifact.about.outputs),
    ):
        if here != there:
            mine, its = (", ".join(map(str, ports)) for ports in (here, there))
            raise ValueError(f"the model {what} {mine}, but the program {what} {its}; it was made from another model")
    return differences(artifact(**artifact.probe), program.predictions(artifact.probe))


def differences(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> tuple[Difference, ...]:
    """The largest difference of every output; infinite if one of the two is not a number where the other is."""
    listed = []
    for name, right in expected.items():
        left, right = np.asarray(found[name], np.float64), np.asarray(right, np.float64)
        with np.errstate(invalid="ignore"):
            gap = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, np.abs(left - right))
        gap = np.nan_to_num(gap, nan=np.inf, posinf=np.inf)
        rows = gap.reshape(-1, right.shape[-1] if right.ndim > 1 else 1)
        scale = np.abs(np.nan_to_num(right)).reshape(rows.shape).max(axis=0)
        relative = rows.max(axis=0) / np.where(scale > 0.0, scale, 1.0)
        listed.append(Difference(name, float(gap.max()), float(relative.max())))
    return tuple(listed)


def _describe(
    program: Program,
    kind: Literal["stablehlo", "onnx"],
    versions: Mapping[str, str],
    platforms: tuple[str, ...],
    gradients: bool,
    header: Header | None,
) -> About:
    operator, signature = program.operator, program.signature
    normalization, domain = operator.normalization, signature.domain
    transforms = [
        *zip(operator.inputs, normalization.u_transforms, strict=False),
        *zip(operator.outputs, normalization.s_transforms, strict=False),
    ]
    names = ("u_shift", "u_scale", "s_shift", "s_scale")
    return About(
        export=1,
        kind=kind,
        versions=dict(versions),
        inputs=program.inputs,
        outputs=program.outputs,
        input_variables=Channel.of(operator.inputs),
        output_variables=Channel.of(operator.outputs),
        sensor_coordinates=[Channel.of(part.coordinates) for part in signature.fields],
        query_coordinates=Channel.of(signature.query_coordinates),
        domain=Space(description=str(domain), bounds=list(domain.bounds), periods=list(domain.periods)),
        normalization={name: np.asarray(getattr(normalization, name), np.float64).tolist() for name in names},
        transforms={v.name: t.name for v, t in transforms if not isinstance(t, Identity)},
        level=program.level,
        gradients=gradients,
        platforms=list(platforms),
        model=Model(
            name=type(operator).__name__,
            parameters=count(operator),
            sha256=None if header is None else header.digest,
            metrics={} if header is None else dict(header.metrics),
            provenance={} if header is None else dict(header.provenance),
        ),
    )


def _locations(program: Program) -> dict[str, np.ndarray]:
    """Where the sensors are, and the queries if they are fixed; sensors of several fields are numbered."""
    found = {} if program.y is None else {"queries": np.asarray(program.y)}
    for i, part in enumerate(program.signature.fields, start=1):
        if part.x is not None:
            found[f"sensors{i}" if program.signature.is_several else "sensors"] = np.asarray(part.x)
    return found
