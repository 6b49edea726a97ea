"""Locations outside a domain, where an operator extrapolates."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Float

from loca.domains.domain import Domain

TOLERANCE = 1e-4
"""How far outside a location may lie before a warning, in units of the extent of a coordinate."""


class OutsideDomainWarning(UserWarning):
    """Queries lie outside the domain that an operator was trained on."""


def warn_outside(domain: Domain, y: Float[Array | np.ndarray, "P d_y"], names: Sequence[str] = ()) -> None:
    """Warn if queries lie outside the domain of an operator: how many, and how far along which coordinate.

    **Arguments:**

    - `domain`: Y.
    - `y`: the queries.
    - `names`: of the coordinates; those of the domain unless given.
    """
    y = np.asarray(y, np.float64)
    outside = ~np.asarray(domain.contains(y, TOLERANCE))
    if not outside.any():
        return
    low, high = (np.array(side) for side in zip(*domain.bounds, strict=True))
    beyond = np.maximum(np.maximum(low - y, y - high), 0.0)[outside].max(axis=0)
    beyond[[period is not None for period in domain.periods]] = 0.0
    column = int(np.argmax(beyond / (high - low)))
    name = (names or domain.coordinate_names)[column]
    where = f"up to {beyond[column]:.3g} beyond {name} from {low[column]:g} to {high[column]:g}"
    if not beyond[column]:
        where = "within its bounds"  # in a hole
    warnings.warn(
        f"{outside.sum()} of {len(y)} queries lie outside the domain of the model, {where}; predictions there are "
        "extrapolated",
        OutsideDomainWarning,
        stacklevel=3,
    )
