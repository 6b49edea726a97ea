"""Files as tables: what `loca inspect` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from loca.exporting import Artifact
    from loca.saving import Header


def header_table(header: Header) -> Table:
    """The header of a model file as a table."""
    values = f"none trained; {num_values(header):,} values"
    return as_table(
        {
            "model": header.model,
            "parameters": f"{header.parameters:,}" if header.parameters else values,
            "inputs": listed(header.inputs),
            "outputs": listed(header.outputs),
            "domain": header.described_domain,
            **transforms(header.transforms),
            **{name: f"{value:.4g}" for name, value in header.metrics.items()},
            "made with": ", ".join(f"{name} {version}" for name, version in header.versions.items()),
            "from": "\n".join(provenance_lines(header.provenance)),
            "size": f"{header.size:,} bytes",
            "sha256": header.digest,
        }
    )


def artifact_table(artifact: Artifact) -> Table:
    """The facts about an exported program as a table."""
    about, model = artifact.about, artifact.about.model
    sensors = [f"{len(x)} at known locations" for name, x in artifact.arrays.items() if name.startswith("sensors")]
    fixed = artifact.arrays.get("queries")
    return as_table(
        {
            "program": f"{about.kind} for {', '.join(about.platforms)}{', with gradients' if about.gradients else ''}",
            "takes": ", ".join(map(str, artifact.inputs)),
            "returns": ", ".join(map(str, artifact.outputs)),
            "inputs": listed(about.input_variables),
            "outputs": listed(about.output_variables),
            "sensors": ", ".join(sensors) or "unknown, or different for every function",
            "queries": f"{'any' if fixed is None else f'{len(fixed)} fixed'}: {listed(about.query_coordinates)}",
            "domain": about.domain.description,
            **transforms(about.transforms),
            **({} if about.level is None else {"bands": f"level {about.level:g}"}),
            "model": f"{model.name}, {model.parameters:,} parameters",
            "model file": model.sha256 or "none: it was exported from memory",
            **{name: f"{value:.4g}" for name, value in model.metrics.items()},
            "made with": ", ".join(f"{name} {version}" for name, version in about.versions.items()),
            "from": "\n".join(provenance_lines(model.provenance)),
            "size": f"{artifact.size:,} bytes",
            "sha256": artifact.digest,
        }
    )


def as_table(rows: Mapping[str, str]) -> Table:
    """Names and values in two columns."""
    from rich.table import Column, Table

    table = Table("name", Column("value", overflow="fold"), show_header=False, box=None)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def listed(variables: Sequence[Any]) -> str:
    """Names and units of variables or coordinates."""
    return ", ".join(f"{v.name} ({v.unit})" if v.unit else v.name for v in variables)


def transforms(found: Mapping[str, str]) -> dict[str, str]:
    """A row with the transforms of variables, if there are any."""
    return {"transforms": ", ".join(f"{v}={t}" for v, t in found.items())} if found else {}


def num_values(header: Header) -> int:
    """The number of values in all arrays of a model."""
    import math

    return sum(math.prod(entry.shape) for entry in header.arrays.values())


def provenance_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each table of a model's provenance, without the fields that are None."""
    import json

    plain = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            if inner := " ".join(provenance_lines(value)):
                yield f"{name}: {inner}"
        elif value is not None:
            plain[name] = value
    if plain:
        yield ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in plain.items())
