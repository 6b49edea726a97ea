"""Symmetries that are used: data with all images of its functions, and operators that have the symmetries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Free, Indexed, Queries, Records, Rows, Samples, Shared
from loca.models import Operator
from loca.symmetries.operators import Symmetric, homogeneous
from loca.symmetries.scale import Scale, scale
from loca.symmetries.symmetry import Frame, Symmetry, group, preimages, symmetry

if TYPE_CHECKING:
    import xarray

ROUNDING = 1e-6
"""Of an extent: images of locations closer than this are one location."""


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetries:
    """Symmetries that an operator is given: a group and a scale.

    Solve for, or train, an operator for `augment(data)`; `wrap` makes it the operator for the data itself.

    **Arguments:**

    - `names`: from which `of` makes the same symmetries.
    - `group`: all elements, the identity first; empty without symmetries.
    - `scale`: the homogeneity; None without one.
    """

    names: tuple[str, ...] = ()
    group: tuple[Symmetry, ...] = ()
    scale: Scale | None = None

    @classmethod
    def of(cls, names: str | Sequence[str], data: Samples) -> Symmetries:
        """The symmetries with these names, for some data; see `symmetry` and `scale`."""
        names = (names,) if isinstance(names, str) else tuple(names)
        scales = [name for name in names if name.split()[:1] == ["scale"]]
        if len(scales) > 1:
            raise ValueError(f"expected one scale at most, got {', '.join(map(repr, scales))}")
        frame, found = Frame.of(data), []
        for name in (name for name in names if name not in scales):
            try:
                found.append(symmetry(name, frame))
            except ValueError as error:
                raise ValueError(f"the symmetry {name!r} does not apply to this data: {error}") from None
        return cls(names, group(found, frame) if found else (), scale(scales[0], data) if scales else None)

    @overload
    def augment(self, data: Samples) -> Samples: ...
    @overload
    def augment(self, data: Records) -> Records: ...
    def augment(self, data: Samples | Records) -> Samples | Records:
        """All images of all functions, those of a function one after the other, brought to size 1 by the scale."""
        if isinstance(data, Records):
            return AugmentedRecords(data, self) if self.names else data
        data = self.standardize(data)
        return images(data, self.group) if len(self.group) > 1 else data

    def standardize(self, data: Samples) -> Samples:
        """The functions themselves, brought to size 1 by the scale."""
        return data if self.scale is None else self.scale.apply(data)

    def wrap(self, operator: Operator) -> Operator:
        """The operator with these symmetries, from one for data that `augment` returned."""
        if len(self.group) > 1:
            operator = Symmetric(operator.normalization, operator, self.group, signature=operator.signature)
        return operator if self.scale is None else homogeneous(operator, self.scale)


class AugmentedRecords(Records):
    """Records with all images of their functions, which are made when they are loaded."""

    def __init__(self, whole: Records, symmetries: Symmetries):
        self.whole, self.symmetries, self.source = whole, symmetries, whole.source
        self.inputs, self.outputs, self.domain = whole.inputs, whole.outputs, whole.domain
        self.times = max(1, len(symmetries.group))

    def __len__(self) -> int:
        return self.times * len(self.whole)

    def load(self, rows: Rows = slice(None)) -> Samples:
        numbers = np.arange(len(self))[rows]
        functions, places = np.unique(numbers // self.times, return_inverse=True)
        samples = self.symmetries.augment(self.whole.load(functions))
        return samples.take(jnp.asarray(places * self.times + numbers % self.times))

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        return self.whole.label(s, np.arange(len(self))[rows] // self.times)


# ---- images of functions ---------------------------------------------------------------------------------------------


def images(data: Samples, elements: Sequence[Symmetry]) -> Samples:
    """(g u, g s) for every element g of a group and all functions; those of a function one after the other.

    Labels keep the form of their queries: on a grid that is closed under the group they are permuted. On a grid that
    lacks a row, that of labels at all locations is extrapolated linearly from the next two rows; few labels of a
    function that would fall on it are replaced by other labels of the function. At other locations, labels are moved.
    """
    queries, labels = _moved_labels(data, elements)
    u = jax.tree.map(lambda *each: _joined(each), *(g.input(data.u) for g in elements))
    s = _joined([g.output(each) for g, each in zip(elements, labels, strict=True)])
    return dataclasses.replace(data, u=u, y=queries, s=s)


def _joined(parts: Sequence[Array]) -> Array:
    """Arrays with one row per function, the rows of each function one after the other."""
    return jnp.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])


def _moved_labels(data: Samples, elements: Sequence[Symmetry]) -> tuple[Queries, list[Array]]:
    """The queries of all images, and for each element the labels there."""
    if not any(g.moves for g in elements):
        rows = jnp.repeat(jnp.arange(len(data)), len(elements))
        return data.y.take(rows), [data.s] * len(elements)
    if isinstance(data.y, Free):
        y = data.y.y
        return Free(_joined([g.locations(y) for g in elements])), [data.s] * len(elements)
    y = np.asarray(data.y.points, np.float64)
    there = [preimages(y, _applied(g, y), g.periods) for g in elements]
    is_closed = all(order is not None for order, _ in there)
    if isinstance(data.y, Shared) and is_closed:
        return data.y, [_extrapolated(g, y, data.s) for g in elements]
    index = np.asarray(data.y.index) if isinstance(data.y, Indexed) else np.tile(np.arange(len(y)), (len(data), 1))
    if not is_closed:  # every image has locations of its own
        moved = np.concatenate([_applied(g, y) for g in elements])
        extent = np.maximum(np.ptp(moved, axis=0), 1e-30)
        _, first, places = np.unique(
            np.round(moved / (ROUNDING * extent)), axis=0, return_index=True, return_inverse=True
        )
        numbers = [jnp.asarray(part[index]) for part in np.split(places.ravel(), len(elements))]
        return Indexed(jnp.asarray(moved[first], data.y.y.dtype), _joined(numbers)), [data.s] * len(elements)
    numbers, labels = [], []
    for order, outside in there:
        assert order is not None
        fine = ~outside[index]  # other labels of the function take the place of those beyond the grid
        column = np.where(fine, np.arange(index.shape[1]), np.argmax(fine, axis=1)[:, None])
        numbers.append(jnp.asarray(order[np.take_along_axis(index, column, axis=1)]))
        labels.append(jnp.take_along_axis(data.s, jnp.asarray(column)[..., None], axis=1) if outside.any() else data.s)
    return Indexed(data.y.points, _joined(numbers)), labels


def _applied(g: Symmetry, y: Float[np.ndarray, "M d"]) -> Float[np.ndarray, "M d"]:
    """g y in double precision."""
    return y @ np.asarray(g.matrix, float).T + np.asarray(g.shift)


def _extrapolated(g: Symmetry, y: Float[np.ndarray, "P d"], s: Float[Array, "N P d_s"]) -> Float[Array, "N P d_s"]:
    """s(g⁻¹ y) at all locations of a grid; linear from the next two rows where g⁻¹ y is beyond the last."""
    z = (y - np.asarray(g.shift)) @ np.asarray(g.matrix, float)
    order, outside = preimages(y, z, g.periods)
    assert order is not None
    found = s[:, order]
    if not outside.any():
        return found
    inner, beyond = preimages(y, 2.0 * y[order] - z, g.periods)
    if inner is None:
        return found
    return found + jnp.where(jnp.asarray(outside & ~beyond)[:, None], found - s[:, inner], 0.0)
