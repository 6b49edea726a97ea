"""Save a model to one file, load it, and inspect it."""

import contextlib
import dataclasses
import math
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pydantic

from loca.data import Identity, Records, Samples, Variable
from loca.domains import Domain
from loca.models import Operator
from loca.parameters import count
from loca.saving.container import (
    Arrays,
    Contents,
    ModelFileError,
    Strict,
    first_problem,
    parse,
    quoted,
    read_arrays,
    write,
    write_arrays,
)
from loca.saving.structure import Classes, Rebuilder, builtin_class, describe, name_of

MODEL_FILE = "model.safetensors"
"""The file of a run directory with the trained model."""

FORMAT = 1
"""Version of the format; to be raised when an older reader would misread a newer file."""

PACKAGES = ("loca-jax", "jax", "equinox", "numpy")
"""The packages that predictions depend on."""


class Entry(NamedTuple):
    """The type and shape of one array."""

    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Header:
    """What a model file says about its model.

    **Arguments:**

    - `format`: version of the format.
    - `model`: class of the model, such as `LOCA`.
    - `structure`: the parts of the model, as described in the documentation of the file.
    - `arrays`: type and shape of every array, by its place in the model.
    - `parameters`: number of trainable real numbers.
    - `domain`: Y, where it is known.
    - `inputs`, `outputs`: names and units of the channels.
    - `provenance`: the origin of the model, as given to `save`.
    - `metrics`: errors of the model by name, as given to `save`.
    - `versions`: versions of the packages that wrote the file.
    - `digest`: SHA-256 of the contents.
    - `size`: size of the file in bytes.
    """

    format: int
    model: str
    structure: Mapping[str, Any]
    arrays: Mapping[str, Entry]
    parameters: int
    domain: Domain | None
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    provenance: Mapping[str, Any]
    metrics: Mapping[str, float]
    versions: Mapping[str, str]
    digest: str
    size: int

    @property
    def described_domain(self) -> str:
        """Y in words; that of a domain with arrays, such as a mesh, is known by their shapes."""
        match self.structure["fields"].get("signature"):
            case {"fields": {"domain": {"class": str(name), "fields": dict(fields)}}} if self.domain is None:
                arrays = {
                    key: each["array"] for key, each in fields.items() if isinstance(each, dict) and "array" in each
                }
                shapes = (f"{key} {' × '.join(map(str, shape))}" for key, (_, *shape) in arrays.items())
                return f"{name.rpartition('.')[2]}({', '.join(shapes)})"
        return "unknown" if self.domain is None else str(self.domain)

    @property
    def symmetries(self) -> tuple[str, ...]:
        """The names of the symmetries of the model."""
        return _symmetries_in(self.structure)

    @property
    def transforms(self) -> dict[str, str]:
        """The transform of every variable that has one, by name."""
        match self.structure["fields"].get("normalization"):
            case {"fields": {"u_transforms": list(u), "s_transforms": list(s)}}:
                pairs = [*zip(self.inputs, u, strict=False), *zip(self.outputs, s, strict=False)]
                named = {variable.name: _transform_name(each) for variable, each in pairs}
                return {variable: name for variable, name in named.items() if name != Identity.name}
        return {}


def _symmetries_in(described: Any) -> tuple[str, ...]:
    """The generators of the group, and the scale, of a model that a structure describes and of the models inside it."""
    match described:
        case {"class": str(name), "fields": {"operator": inner, **fields}}:
            parts = [*fields.get("group", ())[1:], fields.get("scale")] if name.startswith("symmetries.") else []
            names = [part["fields"]["name"] for part in parts if isinstance(part, dict)]
            return (*(each for each in names if ";" not in each), *_symmetries_in(inner))
    return ()


def _transform_name(described: Any) -> str:
    """The name of a transform that a structure describes: that of its class, or those of the parts of a chain."""
    match described:
        case {"class": "data.Chain", "fields": {"parts": list(parts)}}:
            return "+".join(map(_transform_name, parts))
        case {"class": str(name)}:
            return getattr(builtin_class(name), "name", name)
    return quoted(described)


class Channel(Strict):
    """The name and unit of a channel or a coordinate."""

    name: str
    unit: str

    @classmethod
    def of(cls, variables: tuple[Variable, ...]) -> list["Channel"]:
        """The channels of these variables."""
        return [cls(name=variable.name, unit=variable.unit) for variable in variables]


class Document(Strict):
    """What a model file says about its model; keys are written in this order."""

    format: int
    versions: dict[str, str]
    model: dict[str, Any]
    parameters: pydantic.NonNegativeInt
    domain: dict[str, Any] | None
    inputs: list[Channel]
    outputs: list[Channel]
    metrics: dict[str, float]
    provenance: dict[str, Any]


def save(
    model: Operator,
    path: str | os.PathLike[str],
    *,
    data: Samples | Records | Header | None = None,
    metrics: Mapping[str, float] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to one file, atomically.

    An existing file is replaced only when the new one is completely on the disk; any error before leaves it unchanged.

    **Arguments:**

    - `model`: any operator made of modules, arrays, numbers, text and named functions.
    - `path`: the file, by convention `NAME.safetensors`.
    - `data`: names and units of the channels, and the domain: the data that the model was trained on, or what
        `inspect` returns for another file. Without it channels are called u1, u2, … and s1, s2, …
    - `metrics`: errors of the model, such as `{"relative_l2": 0.01}`.
    - `provenance`: the origin of the model, in any form that JSON can hold.
    """
    arrays: Arrays = {}
    structure = describe(model, "", arrays)
    known = model if data is None else data
    here, there = ((len(each.inputs), len(each.outputs)) for each in (known, model))
    if here != there:
        raise ModelFileError(
            f"the data has {here[0]} input and {here[1]} output channels but the model has {there[0]} and {there[1]}; "
            "pass the data that the model was created for"
        )
    numbers = {name: float(value) for name, value in (metrics or {}).items()}
    if wrong := [name for name, value in numbers.items() if not math.isfinite(value)]:
        raise ModelFileError(f"a model file holds finite numbers only; leave out the metrics {', '.join(wrong)}")
    domain = known.domain
    if domain is not None and (not builtin_class(name_of(type(domain))) or jax.tree.leaves(domain)):
        domain = None  # only the model holds domains of the caller and those with arrays
    document = Document(
        format=FORMAT,
        versions={name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        model=structure,
        parameters=count(model),
        domain=None if domain is None else describe(domain, "domain", {}),
        inputs=Channel.of(known.inputs),
        outputs=Channel.of(known.outputs),
        metrics=numbers,
        provenance=dict(provenance or {}),
    )
    # not `model_dump_json`, which spells numbers differently (1e-5 instead of 1e-05): equal models are equal files
    write_arrays(Path(path), write(document.model_dump()), arrays)


def load(path: str | os.PathLike[str], *, classes: Classes = ()) -> Operator:
    """Load a model as it was saved.

    Every size is checked against the file before memory is allocated, and every bit against the digest. Nothing in the
    file is executed or imported. Raise `ModelFileError` for anything but a complete and valid model file.

    **Arguments:**

    - `path`: a file written by `save`.
    - `classes`: your own classes and activations that the model is made of: `load(path, classes=[MyKernel])`.
    """
    with _naming(path):
        header, contents = _read(Path(path))
        rebuilder = Rebuilder(contents.arrays, classes, header.versions.get("loca-jax", ""))
        model = rebuilder.build(header.structure)
        if not isinstance(model, Operator):
            raise ModelFileError(f"the file holds a {header.model}, which is a part of models and not a model")
        if rebuilder.unused:
            raise ModelFileError(f"the file has arrays that no part of the model has: {quoted(rebuilder.unused)}")
    return model


def inspect(path: str | os.PathLike[str]) -> Header:
    """Read what a model file says about its model; the complete file is checked, but no weights are kept.

    Raise `ModelFileError` for anything but a complete and valid model file.
    """
    with _naming(path):
        return _read(Path(path))[0]


@contextlib.contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except (ModelFileError, RecursionError) as error:  # of a model that is nested too deeply
        raise ModelFileError(f"{path}: {error}") from error


def _read(path: Path) -> tuple[Header, Contents]:
    """The header and the contents of a model file."""
    contents = read_arrays(path)
    parsed = parse(contents.document)
    match parsed:
        case {"format": int(found), **others} if type(found) is int:
            if found != FORMAT:
                writer = others.get("versions")
                raise ModelFileError(
                    f"the file has format {found}, but this version of loca reads format {FORMAT}; it was written by "
                    f"{quoted(writer)}: pip install --upgrade loca-jax, or save the model again"
                )
        case _:
            raise ModelFileError("the header has no version of its format; this is not a model file of loca")
    try:
        document = Document.model_validate(parsed)
    except pydantic.ValidationError as error:
        raise ModelFileError(first_problem(error)) from None
    match document.model:
        case {"class": str(name), "fields": dict()} if len(document.model) == 2:
            pass
        case _:
            raise ModelFileError(f"the model is described as {quoted(document.model)}; expected a class and its fields")
    domain = None
    if document.domain is not None:  # a built-in one, which has no arrays
        domain = Rebuilder({}, classes=(), writer="").build(document.domain)
        if not isinstance(domain, Domain):
            raise ModelFileError(f"the domain is described as {quoted(document.domain)}, which is not a domain")
    return Header(
        format=document.format,
        model=name.rpartition(".")[2],
        structure=document.model,
        arrays={place: Entry(str(array.dtype), array.shape) for place, array in contents.arrays.items()},
        parameters=document.parameters,
        domain=domain,
        inputs=tuple(Variable(channel.name, channel.unit) for channel in document.inputs),
        outputs=tuple(Variable(channel.name, channel.unit) for channel in document.outputs),
        provenance=document.provenance,
        metrics=document.metrics,
        versions=document.versions,
        digest=contents.digest,
        size=contents.size,
    ), contents
