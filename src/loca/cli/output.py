"""What commands print: tables of model files and exports."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from loca.exporting import Artifact
    from loca.saving import Header


def header_table(header: Header) -> Table:
    """The header of a model file as a table."""
    values = sum(math.prod(entry.shape) for entry in header.arrays.values())
    return _table(
        {
            "model": header.model,
            "members": _members(header.structure),
            "parameters": f"{header.parameters:,}" if header.parameters else f"none trained; {values:,} values",
            "inputs": _listed(header.inputs),
            "outputs": _listed(header.outputs),
            "domain": header.described_domain,
            "transforms": _pairs(header.transforms, "="),
            "symmetries": ", ".join(header.symmetries),
        },
        header,
        header.versions,
        header,
    )


def _members(structure: Any) -> str:
    """The members of a combination with their weights, one for each output; empty for other models."""
    match structure:
        case {"fields": {"names": list(names), "weights": list(rows)}}:
            each = (f"{name} {', '.join(f'{w:.3g}' for w in row)}" for name, row in zip(names, rows, strict=True))
            return "; ".join(each)
        case {"fields": {"operator": inside}}:
            return _members(inside)
    return ""


def artifact_table(artifact: Artifact) -> Table:
    """The facts about an exported program as a table."""
    about, model = artifact.about, artifact.about.model
    sensors = [f"{len(x)} at known locations" for name, x in artifact.arrays.items() if name.startswith("sensors")]
    fixed = artifact.arrays.get("queries")
    return _table(
        {
            "program": f"{about.kind} for {', '.join(about.platforms)}{', with gradients' if about.gradients else ''}",
            "takes": ", ".join(map(str, artifact.about.inputs)),
            "returns": ", ".join(map(str, artifact.about.outputs)),
            "inputs": _listed(about.input_variables),
            "outputs": _listed(about.output_variables),
            "sensors": ", ".join(sensors) or "unknown, or different for every function",
            "queries": f"{'any' if fixed is None else f'{len(fixed)} fixed'}: {_listed(about.query_coordinates)}",
            "domain": about.domain.description,
            "transforms": _pairs(about.transforms, "="),
            "bands": "" if about.level is None else f"level {about.level:g}",
            "model": f"{model.name}, {model.parameters:,} parameters",
            "model file": model.sha256 or "none: it was exported from memory",
        },
        model,
        about.versions,
        artifact,
    )


def _table(rows: Mapping[str, str], model: Any, versions: Mapping[str, str], file: Any) -> Table:
    """Rows of facts that are known, then those of every file about the errors and the origin of its model."""
    from rich.table import Column, Table

    rows = {name: value for name, value in rows.items() if value}
    rows |= {name: f"{value:.4g}" for name, value in model.metrics.items()}
    rows |= {"made with": _pairs(versions, " "), "from": "\n".join(provenance_lines(model.provenance))}
    rows |= {"size": f"{file.size:,} bytes", "sha256": file.digest}
    table = Table("name", Column("value", overflow="fold"), show_header=False, box=None)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _listed(variables: Sequence[Any]) -> str:
    return ", ".join(f"{v.name} ({v.unit})" if v.unit else v.name for v in variables)


def _pairs(values: Mapping[str, str], sign: str) -> str:
    return ", ".join(f"{name}{sign}{value}" for name, value in values.items())


def provenance_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each table of a model's provenance, without the fields that are None."""
    plain = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            if inner := " ".join(provenance_lines(value)):
                yield f"{name}: {inner}"
        elif value is not None:
            plain[name] = value
    if plain:
        yield ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in plain.items())
