"""Functions on grids, in the form in which checks of their shape read them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Samples, Shared, grid_shape
from loca.domains import Domain
from loca.typing import Measurements

EVEN = 1e-3
"""Spacings that differ by less than this part are even: coordinates in single precision do."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis of a grid: spacing of its points, and the gap from the last over the edge to the first, if it closes."""

    label: str
    spacing: float | None
    closing: float | None


@dataclasses.dataclass(frozen=True)
class Field:
    """One channel of all functions on a grid."""

    name: str
    values: Float[np.ndarray, "N ..."]
    axes: tuple[Axis, ...]

    def lines(self, axis: int) -> Float[np.ndarray, "N lines k"]:
        """The values along one axis, line by line."""
        moved = np.moveaxis(self.values, axis + 1, -1)
        return moved.reshape(len(moved), -1, moved.shape[-1])


def input_fields(samples: Samples) -> Iterator[Field]:
    """The channels of u, if all sensors form one grid."""
    if isinstance(samples.u, Measurements) or samples.x is None:
        return
    x = np.asarray(samples.x)
    domain = samples.domain if samples.domain.dimension == x.shape[1] else None
    names = [f"input `{variable.name}`" for variable in samples.inputs]
    yield from fields(names, x, np.asarray(samples.u), domain, "x")


def output_fields(samples: Samples) -> Iterator[Field]:
    """The channels of s, if all queries form one grid."""
    if isinstance(samples.y, Shared):
        names = [f"output `{variable.name}`" for variable in samples.outputs]
        yield from fields(names, np.asarray(samples.y.y), np.asarray(samples.s), samples.domain, "y")


def fields(
    names: list[str],
    points: Float[np.ndarray, "P d"],
    values: Float[np.ndarray, "N P c"],
    domain: Domain | None,
    letter: str,
) -> Iterator[Field]:
    """One for each channel, without the functions that hold NaN or Inf."""
    shape = grid_shape(jnp.asarray(points))
    if shape is None:
        return
    grid = points.astype(np.float64).reshape(*shape, len(shape))
    periods = (None,) * len(shape) if domain is None else domain.periods
    axes = []
    for i in range(len(shape)):
        along = grid[(0,) * i + (slice(None),) + (0,) * (len(shape) - 1 - i) + (i,)]
        label = letter if len(shape) == 1 else f"{letter}{i + 1}"
        axes.append(axis_of(along, periods[i], label))
    for c, name in enumerate(names):
        kept = values[np.isfinite(values[..., c]).all(axis=1), :, c]
        if len(kept):
            yield Field(name, kept.astype(np.float64).reshape(len(kept), *shape), tuple(axes))


def axis_of(along: Float[np.ndarray, " k"], period: float | None, label: str) -> Axis:
    """What is to be known of an axis with these points."""
    steps = np.abs(np.diff(along))
    even = len(steps) > 0 and np.ptp(steps) <= EVEN * steps.mean()
    spacing = float(steps.mean()) if even else None
    if period is None or spacing is None:
        return Axis(label, spacing, None)
    gap = period - float(np.ptp(along))
    # A gap of several spacings means that the points cover a part of the period only: there is no edge to close.
    return Axis(label, spacing, max(gap, 0.0) if gap < 1.5 * spacing else None)
