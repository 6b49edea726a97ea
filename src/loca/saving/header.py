"""The header of a model file: a JSON document, written and validated with pydantic."""

from __future__ import annotations

import dataclasses
import math
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import pydantic

from loca.data import Identity, Records, Samples, Variable
from loca.domains import Domain
from loca.models import LOCA, DeepONet, Operator
from loca.parameters import count
from loca.saving import strict_json
from loca.saving.container import Entry
from loca.saving.registry import builtin_class, name_of
from loca.saving.strict_json import ModelFileError, quoted
from loca.saving.structure import Rebuilder, describe, entries_in

FORMAT = 1
"""Version of the format; to be raised when an older reader would misread a newer file."""

PACKAGES = ("loca-jax", "jax", "equinox", "numpy")
"""The packages that predictions depend on."""

VERSION = re.compile(r"[0-9][0-9A-Za-z.+!]{0,30}")
"""What the version of a package looks like: it becomes part of a command that a message suggests."""


@dataclasses.dataclass(frozen=True)
class Header:
    """The header of a model file, read without its weights.

    **Arguments:**

    - `format`: version of the format.
    - `model`: class of the model, such as `LOCA`.
    - `structure`: the parts of the model, as described in the documentation of the file.
    - `arrays`: dtype and shape of every array, by its place in the model.
    - `parameters`: number of trainable real numbers.
    - `domain`: Y, where it is known.
    - `normalization`: shift and scale of each channel of u and s.
    - `inputs`, `outputs`: names and units of the channels.
    - `provenance`: the origin of the model, as given to `save`.
    - `metrics`: errors of the model by name, as given to `save`.
    - `versions`: versions of the packages that wrote the file.
    - `digest`: SHA-256 of the file.
    - `size`: size of the file in bytes.
    """

    format: int
    model: str
    structure: Mapping[str, Any]
    arrays: Mapping[str, Entry]
    parameters: int
    domain: Domain | None
    normalization: Mapping[str, tuple[float, ...]]
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
    def transforms(self) -> dict[str, str]:
        """The transform of every variable that has one, by name."""
        match self.structure["fields"].get("normalization"):
            case {"fields": {"u_transforms": list(u), "s_transforms": list(s)}}:
                pairs = [*zip(self.inputs, u, strict=False), *zip(self.outputs, s, strict=False)]
                named = {variable.name: transform_name(each) for variable, each in pairs}
                return {variable: name for variable, name in named.items() if name != Identity.name}
        return {}


def transform_name(described: Any) -> str:
    """The name of a transform that a structure describes: that of its class, or those of the parts of a chain."""
    match described:
        case {"class": "data.Chain", "fields": {"parts": list(parts)}}:
            return "+".join(map(transform_name, parts))
        case {"class": str(name)}:
            return getattr(builtin_class(name), "name", name)
    return quoted(described)


class Strict(pydantic.BaseModel):
    """JSON without conversions between types and without unknown keys."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid", frozen=True)


class Channel(Strict):
    """The name and unit of a channel."""

    name: str
    unit: str


class Document(Strict):
    """What a model file says about its model; keys are written in this order."""

    format: int
    versions: dict[str, str]
    model: dict[str, Any]
    parameters: pydantic.NonNegativeInt
    domain: dict[str, Any] | None
    normalization: dict[str, list[float]]
    inputs: list[Channel]
    outputs: list[Channel]
    metrics: dict[str, float]
    provenance: dict[str, Any]


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_document(text: str, entries: Mapping[str, Entry], digest: str, size: int) -> Header:
    """The header of a file with these arrays, from JSON of any origin."""
    parsed = strict_json.parse(text)
    check_version(parsed)
    try:
        document = Document.model_validate(parsed)
    except pydantic.ValidationError as error:
        raise ModelFileError(first_problem(error)) from None
    described = dict(entries_in(document.model))
    if "class" not in document.model:
        raise ModelFileError(f"the model is described as {quoted(document.model)}; expected a class and its fields")
    if described != dict(entries):
        wrong = sorted(place for place in described.keys() | entries if described.get(place) != entries.get(place))
        raise ModelFileError(f"the model and the list of arrays disagree about {quoted(wrong)}")
    return Header(
        format=document.format,
        model=document.model["class"].rpartition(".")[2],
        structure=document.model,
        arrays=dict(entries),
        parameters=document.parameters,
        domain=None if document.domain is None else read_domain(document.domain),
        normalization={name: tuple(values) for name, values in document.normalization.items()},
        inputs=tuple(Variable(channel.name, channel.unit) for channel in document.inputs),
        outputs=tuple(Variable(channel.name, channel.unit) for channel in document.outputs),
        provenance=document.provenance,
        metrics=document.metrics,
        versions=document.versions,
        digest=digest,
        size=size,
    )


def check_version(parsed: Any) -> None:
    """Raise unless this version of the package reads this version of the format."""
    match parsed:
        case {"format": int(found)} if found == FORMAT and type(found) is int:
            return
        case {"format": int(found), "versions": {"loca-jax": str(writer)}} if VERSION.fullmatch(writer):
            remedy = f"it was written by loca-jax {writer}: pip install 'loca-jax>={writer}'"
        case {"format": int(found)}:
            remedy = "pip install --upgrade loca-jax"
        case _:
            raise ModelFileError("the header has no version of its format; this is not a model file of loca")
    raise ModelFileError(f"the file has format {found}, but this version of loca reads format {FORMAT}; {remedy}")


EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "a number that is not negative",
}
"""What was expected, by pydantic's types of errors."""


def first_problem(error: pydantic.ValidationError) -> str:
    """The first thing that is wrong with a document."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field = quoted(".".join(map(str, problem["loc"])))
    match problem["type"]:
        case "missing":
            return f"the header lacks {field}"
        case "extra_forbidden":
            return f"the header has an unknown field {field}"
        case kind:
            return f"{field} in the header is {quoted(problem['input'])}; expected {EXPECTED.get(kind, 'another type')}"


def read_domain(description: Any) -> Domain:
    """A built-in domain, which has no arrays."""
    if dict(entries_in(description)):
        raise ModelFileError("the domain is described with arrays, but built-in domains have none")
    domain = Rebuilder(lambda place: None, classes=(), writer="").build(description)
    if not isinstance(domain, Domain):
        raise ModelFileError(f"the domain is described as {quoted(description)}, which is not a domain")
    return domain


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_document(
    model: Operator,
    structure: Any,
    data: Samples | Records | Header | None,
    metrics: Mapping[str, float],
    provenance: Mapping[str, Any],
) -> str:
    """The JSON text that `read_document` reads."""
    normalization = {
        name: np.asarray(getattr(model.normalization, name), np.float64)
        for name in ("u_shift", "u_scale", "s_shift", "s_scale")
    }
    inputs, outputs = channels(model, data)
    domain = domain_of(model, data)
    document = Document(
        format=FORMAT,
        versions={name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        model=structure,
        parameters=count(model),
        domain=None if domain is None else describe(domain, "domain", {}),
        normalization={name: numbers(values, name) for name, values in normalization.items()},
        inputs=[Channel(**variable._asdict()) for variable in inputs],
        outputs=[Channel(**variable._asdict()) for variable in outputs],
        metrics={str(name): number(value, f"metrics[{name!r}]") for name, value in metrics.items()},
        provenance=plain(provenance, "provenance"),
    )
    # not `model_dump_json`, which spells numbers differently (1e-5 instead of 1e-05): equal models are equal files
    return strict_json.write(document.model_dump())


def channels(
    model: Operator, data: Samples | Records | Header | None
) -> tuple[tuple[Variable, ...], tuple[Variable, ...]]:
    """Names and units of the channels of u and s: those of the data or, without it, of the model."""
    if data is None:
        return model.inputs, model.outputs
    sizes = len(model.inputs), len(model.outputs)
    if (len(data.inputs), len(data.outputs)) != sizes:
        raise ModelFileError(
            f"the data has {len(data.inputs)} input and {len(data.outputs)} output channels but the model has "
            f"{sizes[0]} and {sizes[1]}; pass the data that the model was created for"
        )
    return data.inputs, data.outputs


def domain_of(model: Operator, data: Samples | Records | Header | None) -> Domain | None:
    """Y, from the data or else from the model, if it is a built-in domain without arrays: only the model has those."""
    match model:
        case _ if data is not None:
            domain = data.domain
        case Operator(domain=Domain() as domain):
            pass
        case LOCA(rule=part) | DeepONet(e=part):  # from a file of version 0.1, which does not store the domain
            domain = getattr(part, "domain", None)
        case _:
            return None
    if not isinstance(domain, Domain) or not builtin_class(name_of(type(domain))) or jax.tree.leaves(domain):
        return None
    return domain


def number(value: Any, name: str) -> float:
    """A finite number."""
    if not math.isfinite(value):
        raise ModelFileError(f"{name} is {value}, but a model file holds finite numbers only; leave it out")
    return float(value)


def numbers(values: np.ndarray, name: str) -> list[float]:
    """Finite numbers, one for each channel."""
    return [number(value, f"normalization.{name}") for value in values.reshape(-1).tolist()]


def plain(value: Any, name: str) -> Any:
    """A value as JSON can hold it."""
    match value:
        case None | bool() | str():
            return value
        case np.generic():
            return plain(value.item(), name)
        case int() if abs(value) < 2**63:
            return int(value)
        case float():
            return number(value, name)
        case Mapping():
            return {str(key): plain(item, f"{name}[{key!r}]") for key, item in value.items()}
        case list() | tuple():
            return [plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    raise ModelFileError(
        f"{name} is {value!r} of type {type(value).__name__}; give text, numbers, lists and dictionaries"
    )
