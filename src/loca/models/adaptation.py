"""Data in the form that an operator was made for: the same sensors in the same order, and channels matched by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Queries, Records, Rows, Samples, Shared
from loca.domains import warn_outside
from loca.models.input_adaptation import InputAdaptation, reordered, taken
from loca.models.matching import (
    LONGITUDE_PERIOD,
    Order,
    canonical_name,
    channel_order,
    column_order,
    listed,
    transposed_grid,
)
from loca.models.operator import Operator, Signature

if TYPE_CHECKING:
    import xarray


@overload
def adapt(model: Operator, data: Samples, *, regrid: bool = False) -> Samples: ...
@overload
def adapt(model: Operator, data: Records, *, regrid: bool = False) -> Records: ...
@overload
def adapt(model: Operator, data: Samples | Records, *, regrid: bool = False) -> Samples | Records: ...
def adapt(model: Operator, data: Samples | Records, *, regrid: bool = False) -> Samples | Records:
    """Data as an operator expects it: with its sensors, channels and coordinates, in its order.

    `fit`, `evaluate`, `predict_to` and the figures call this function. Data that has this form already is returned
    unchanged. Otherwise

    - sensors at the same locations in another order (an axis reversed, a grid transposed, points permuted), and
      channels and coordinates of the same names in another order, are reordered;
    - inputs at other sensors are interpolated linearly, but only if `regrid`;
    - anything else raises `ValueError` with a description of the data and of the operator.

    Equal locations may differ by round-off, and longitudes and other periodic coordinates by their period. What is not
    known is not compared: operators from files of version 0.1 know no locations, and data from arrays has no names.
    Queries outside the domain of the operator cause an `OutsideDomainWarning`.

    **Arguments:**

    - `model`: the operator.
    - `data`: pairs in memory or in files; those in files stay there.
    - `regrid`: whether to interpolate inputs at other sensors.
    """
    return Adaptation.of(model, data, regrid=regrid).apply(data)


@dataclasses.dataclass(frozen=True, eq=False)
class Adaptation:
    """The changes that `adapt` makes; those that are None or False are not needed.

    **Arguments:**

    - `model`: the operator.
    - `inputs`, `outputs`: orders of the channels of u and s.
    - `fields`: how the fields and numbers of u come from the data.
    - `query_columns`: the order of the coordinates of y.
    - `queries`: the order of queries on a grid whose coordinates are reordered, with which they stay a grid.
    - `turns_longitude`: whether longitudes of queries are turned by 360 degrees, into the region of the operator.
    - `is_unsolved`: whether the data has no outputs.
    - `notes`: what is done to the data, in words.
    """

    model: Operator
    inputs: Order | None = None
    outputs: Order | None = None
    fields: InputAdaptation = dataclasses.field(default_factory=InputAdaptation)
    query_columns: Order | None = None
    queries: Order | None = None
    turns_longitude: bool = False
    is_unsolved: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: Operator, data: Samples | Records, *, regrid: bool = False) -> Adaptation:
        """The changes that some data needs; see `adapt`."""
        first = data if isinstance(data, Samples) else data.load([0])
        is_unsolved, known = not first.y.count, model.signature
        inputs = channel_order(first.inputs, model.inputs, "inputs", "u")
        outputs = None if is_unsolved else channel_order(first.outputs, model.outputs, "outputs", "s")
        named = {"inputs": inputs, "outputs": outputs}
        notes = [f"the {name} are reordered by name" for name, order in named.items() if order is not None]
        self = cls(model, inputs, outputs, is_unsolved=is_unsolved)
        if known is not None:
            self = dataclasses.replace(self, fields=InputAdaptation.of(first, known, inputs, regrid))
            notes += self.fields.notes
        if known is not None and not is_unsolved:
            check_dimension(first, known)
            expected = known.query_coordinates if known.query_coordinate_names else ()
            columns = column_order(first.query_coordinates, expected, "queries")
            self = dataclasses.replace(
                self,
                query_columns=columns,
                queries=transposed_grid(first.y, columns),
                turns_longitude=needs_turn(known, reordered(data.domain.bounds, columns)),
            )
            warn_outside(known.domain, self.relocate(first.y).points, known.query_coordinate_names)
        return dataclasses.replace(self, notes=tuple(notes))

    @property
    def is_identity(self) -> bool:
        """Whether the data needs no change."""
        orders = self.inputs, self.outputs, self.query_columns, self.queries
        is_same = all(order is None for order in orders) and self.fields.is_identity
        return is_same and not self.turns_longitude and not self.is_unsolved

    @overload
    def apply(self, data: Samples) -> Samples: ...
    @overload
    def apply(self, data: Records) -> Records: ...
    @overload
    def apply(self, data: Samples | Records) -> Samples | Records: ...
    def apply(self, data: Samples | Records) -> Samples | Records:
        """The data as the operator expects it."""
        if self.is_identity:
            return data
        return self.change(data) if isinstance(data, Samples) else AdaptedRecords(data, self)

    def change(self, samples: Samples) -> Samples:
        """Samples as the operator expects them."""
        known = self.model.signature
        u, x, sensor_coordinates = self.fields(samples)
        y, s, domain = samples.y, samples.s, samples.domain
        if self.is_unsolved:
            domain = domain if known is None else known.domain
            y, s = Shared(jnp.zeros((0, domain.dimension))), jnp.zeros((len(samples), 0, len(self.model.outputs)))
        else:
            y, s = self.relocate(y), s if self.outputs is None else s[..., self.outputs]
        if self.queries is not None:
            y, s = Shared(y.points[self.queries]), s[:, self.queries]
        if known is not None and (self.query_columns is not None or self.turns_longitude):
            domain = known.domain
        return Samples(
            u,
            y,
            s,
            x=x,
            domain=domain,
            inputs=reordered(samples.inputs, self.inputs),
            outputs=self.model.outputs if self.is_unsolved else reordered(samples.outputs, self.outputs),
            sensor_coordinates=sensor_coordinates,
            query_coordinates=reordered(samples.query_coordinates, self.query_columns),
        )

    def relocate(self, queries: Queries) -> Queries:
        """Queries with the coordinates of the operator, in the order of the data."""
        if self.query_columns is None and not self.turns_longitude:
            return queries
        y = taken(queries.y, self.query_columns)  # pyright: ignore[reportAttributeAccessIssue]
        known = self.model.signature
        if self.turns_longitude and known is not None:
            column = longitude_column(known)
            low, high = known.domain.bounds[column]
            start = 0.5 * (low + high - LONGITUDE_PERIOD)
            degrees = y[..., column]
            turned = start + jnp.mod(degrees - start, LONGITUDE_PERIOD)
            y = y.at[..., column].set(jnp.where((degrees < low) | (degrees > high), turned, degrees))
        return dataclasses.replace(queries, y=y)  # pyright: ignore[reportCallIssue]

    def weights(self, weights: Float[Array | np.ndarray, " M"] | None) -> Float[Array | np.ndarray, " M"] | None:
        """One weight per query of the data, in the order of the operator."""
        return weights if weights is None or self.queries is None else weights[self.queries]

    def outcome(self, s: Float[Array | np.ndarray, "*N P d_s"]) -> Float[Array | np.ndarray, "*N P d_s"]:
        """Values at the queries of the data, in the operator's order of queries and channels."""
        s = s if self.queries is None else s[..., self.queries, :]
        return s if self.outputs is None else s[..., self.outputs]


class AdaptedRecords(Records):
    """Records that are changed when they are loaded, as an operator expects them; labels are those of the records.

    **Arguments:**

    - `whole`: the records.
    - `adaptation`: the changes.
    """

    def __init__(self, whole: Records, adaptation: Adaptation):
        self.whole, self.adaptation, self.source = whole, adaptation, whole.source
        first = adaptation.change(whole.load([0]))
        self.inputs, self.outputs, self.domain = first.inputs, first.outputs, first.domain

    def __len__(self) -> int:
        return len(self.whole)

    def load(self, rows: Rows = slice(None)) -> Samples:
        return self.adaptation.change(self.whole.load(rows))

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        s = np.asarray(s)
        if self.adaptation.is_unsolved:
            return self.whole.label(s[..., :0], rows)
        if self.adaptation.queries is not None:
            s = s[:, np.argsort(self.adaptation.queries)]
        if self.adaptation.outputs is not None:
            s = s[..., np.argsort(self.adaptation.outputs)]
        return self.whole.label(s, rows)


def longitude_column(known: Signature) -> int:
    """The number of the query coordinate that is a longitude; −1 if there is none."""
    names = [canonical_name(name) for name in known.query_coordinate_names]
    return names.index("longitude") if "longitude" in names else -1


def needs_turn(known: Signature, bounds: Sequence[tuple[float, float]]) -> bool:
    """Whether the operator is for a region of the globe and queries within these bounds are outside of it."""
    column = longitude_column(known)
    if column < 0 or known.domain.periods[column] is not None:
        return False
    low, high = known.domain.bounds[column]
    return bounds[column][0] < low or bounds[column][1] > high


def check_dimension(first: Samples, known: Signature) -> None:
    """Raise unless the queries have as many coordinates as the domain of the operator."""
    if first.domain.dimension != known.domain.dimension:
        raise ValueError(
            f"the queries have {first.domain.dimension} coordinates, {listed(first.query_coordinates)}, but the model "
            f"was made for {known.domain.dimension}, {listed(known.query_coordinates)}; pass data of this dimension"
        )
