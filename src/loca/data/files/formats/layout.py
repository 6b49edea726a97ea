"""What a reader of a format hands over, and what it may be asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import xarray


@dataclasses.dataclass(frozen=True)
class Layout:
    """A labeled data set that is still in its file, and the roles its format gives to the variables.

    **Arguments:**

    - `dataset`: the variables, read when indexed.
    - `sample`: the dimension that counts the pairs (u, s); None if the format does not say.
    - `inputs`, `outputs`: names of the variables that make up u and s.
    - `time`: the dimension along which the variables are trajectories: u is their start, s what follows.
    - `parameters`: scalars per sample, inputs as well where they differ between samples.
    - `periods`: the length after which a coordinate repeats, for those that do.
    - `parts`: for arrays of the file that became several variables, which these are.
    """

    dataset: xarray.Dataset
    sample: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    time: str | None = None
    parameters: tuple[str, ...] = ()
    periods: Mapping[str, float] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def named(self, names: Iterable[str]) -> tuple[str, ...]:
        """The variables with these names, and for the name of a vector all its components."""
        return tuple(part for name in names for part in self.parts.get(name, (name,)))


@dataclasses.dataclass(frozen=True)
class Names:
    """Names a user gave for arrays in files that carry no labels of their own."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    sensors: str | None = None
    queries: str | None = None


def numbered(name: str, field: xarray.Variable, dim: str = "channel") -> dict[str, xarray.Variable]:
    """The channels of an array as variables: `name` if there is one, or else `name_1`, `name_2`, …."""
    if dim not in field.dims:
        return {name: field}
    count = field.sizes[dim]
    return {name if count == 1 else f"{name}_{i + 1}": field.isel({dim: i}) for i in range(count)}
