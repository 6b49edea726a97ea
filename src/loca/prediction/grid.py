"""Evenly spaced queries over a domain, written down as axes and never as points."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from loca.domains import Domain

Tile = tuple[slice, ...]
"""A rectangle of a grid: where it begins and ends along every axis."""


@dataclasses.dataclass(frozen=True, eq=False)
class QueryGrid:
    """All locations whose coordinates come from given axes; row-major, the last coordinate running fastest.

    **Arguments:**

    - `dims`: names of the coordinates.
    - `axes`: their values.
    - `attributes`: what is to be known of each, such as its unit.
    """

    dims: tuple[str, ...]
    axes: tuple[Float[np.ndarray, " _"], ...]
    attributes: tuple[dict[str, str], ...]

    @classmethod
    def even(cls, domain: Domain, counts: Sequence[int]) -> QueryGrid:
        """So many evenly spaced values of each coordinate, from one end of the domain to the other.

        A coordinate that is periodic begins at its low end and stops one step before the high one, which is the same
        place. On the sphere latitudes run from pole to pole: (721, 1440) is the globe in steps of a quarter degree.
        """
        if len(counts) != domain.dimension or min(counts) < 2:
            raise ValueError(
                f"a grid over {domain} needs {domain.dimension} numbers of at least 2, one for each coordinate; "
                f"got {'x'.join(map(str, counts))}"
            )
        ranges = zip(domain.bounds, domain.periods, counts, strict=True)
        axes = tuple(np.linspace(*bounds, count, endpoint=period is None) for bounds, period, count in ranges)
        units = tuple({"units": unit} if unit else {} for unit in domain.coordinate_units)
        return cls(domain.coordinate_names, axes, units)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each coordinate has."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def count(self) -> int:
        """How many locations there are."""
        return math.prod(self.shape)

    def points(self, tile: Tile) -> Float[np.ndarray, "P d_y"]:
        """The locations in a rectangle, in single precision."""
        parts = [axis[along].astype(np.float32) for axis, along in zip(self.axes, tile, strict=True)]
        return np.stack([c.ravel() for c in np.meshgrid(*parts, indexing="ij")], axis=-1)

    def present(self, tile: Tile) -> None:
        """Nothing is missing from a grid."""

    def coordinates(self) -> dict[str, Any]:
        """The axes as coordinates of labeled arrays."""
        named = zip(self.dims, self.axes, self.attributes, strict=True)
        return {name: (name, axis, attributes) for name, axis, attributes in named}
