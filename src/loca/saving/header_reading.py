"""What a model file says of its model, from JSON that anybody may have written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from loca.data import Variable
from loca.domains import Domain
from loca.saving import document
from loca.saving.entries import Entry
from loca.saving.errors import ModelFileError, shown
from loca.saving.header import FORMAT, Header
from loca.saving.rebuilding import Rebuilder, entries_in

VERSION = re.compile(r"[0-9][0-9A-Za-z.+!]{0,30}")
"""What the version of a package looks like: it becomes part of a command that a message proposes."""


def read_document(text: str, entries: Mapping[str, Entry], digest: str, size: int) -> Header:
    """The header of a file with these arrays."""
    said = document.parse(text)
    check_version(said)
    match said:
        case {
            "format": int(),
            "versions": dict(versions),
            "model": {"class": str(name), "fields": dict()} as structure,
            "parameters": int(parameters),
            "domain": None | dict() as domain,
            "normalization": dict(normalization),
            "inputs": list(inputs),
            "outputs": list(outputs),
            "metrics": dict(metrics),
            "provenance": dict(provenance),
            **others,
        } if not others and parameters >= 0 and texts(versions) and reals(metrics):
            pass
        case _:
            raise ModelFileError("the header lacks something, has something unknown, or of the wrong type")
    described = dict(entries_in(structure))
    if described != dict(entries):
        wrong = sorted(place for place in described.keys() | entries if described.get(place) != entries.get(place))
        raise ModelFileError(f"the model and the list of arrays disagree about {shown(wrong)}")
    return Header(
        format=said["format"],
        model=name.rpartition(".")[2],
        structure=structure,
        arrays=dict(entries),
        parameters=parameters,
        domain=None if domain is None else read_domain(domain),
        normalization={name: read_numbers(values) for name, values in normalization.items()},
        inputs=tuple(map(read_variable, inputs)),
        outputs=tuple(map(read_variable, outputs)),
        provenance=provenance,
        metrics={name: float(value) for name, value in metrics.items()},
        versions=versions,
        digest=digest,
        size=size,
    )


def check_version(said: Any) -> None:
    """Raise unless this version of the package reads this version of the format."""
    match said:
        case {"format": int(found)} if found == FORMAT and type(found) is int:
            return
        case {"format": int(found), "versions": {"loca-jax": str(writer)}} if VERSION.fullmatch(writer):
            way_out = f"it was written by loca-jax {writer}: pip install 'loca-jax>={writer}'"
        case {"format": int(found)}:
            way_out = "pip install --upgrade loca-jax"
        case _:
            raise ModelFileError("the header does not tell the version of its format; this is no model file of loca")
    raise ModelFileError(f"the file has format {found}, and this version of loca reads format {FORMAT}; {way_out}")


def read_domain(description: Any) -> Domain:
    """A domain of ours; it has no arrays."""
    if dict(entries_in(description)):
        raise ModelFileError("the domain is described with arrays, and none of ours has any")
    domain = Rebuilder(lambda place: None, extra=(), writer="").build(description)
    if not isinstance(domain, Domain):
        raise ModelFileError(f"the domain is described as {shown(description)}, which is none")
    return domain


def read_variable(described: Any) -> Variable:
    """The name and unit of a channel."""
    match described:
        case {"name": str(name), "unit": str(unit)} if len(described) == 2:
            return Variable(name, unit)
    raise ModelFileError(f"a channel is described as {shown(described)}, not by its name and unit")


def read_numbers(values: Any) -> tuple[float, ...]:
    """Numbers of a list."""
    if not isinstance(values, list) or not reals(dict(enumerate(values))):
        raise ModelFileError(f"expected a list of numbers in the normalization, got {shown(values)}")
    return tuple(map(float, values))


def texts(values: Mapping[Any, Any]) -> bool:
    """Whether all are text."""
    return all(isinstance(value, str) for value in values.values())


def reals(values: Mapping[Any, Any]) -> bool:
    """Whether all are numbers."""
    return all(type(value) in (int, float) for value in values.values())
