"""Values that are not finite: which functions and channels hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jax.core import Tracer

from loca.data.samples import Samples, Variable
from loca.typing import Array, Measurements, values_of

LISTED = 4
"""The number of channels of functions that a message lists."""


def check_finite(samples: Samples, what: str = "the data") -> None:
    """Raise `ValueError` with functions and channels if a value is NaN or infinite."""
    if found := not_finite(samples):
        raise ValueError(f"{what} has values that are not finite: {found}; fill them, or leave these functions out")


def not_finite(samples: Samples, numbers: Sequence[int] | np.ndarray | None = None) -> str:
    """The first functions and channels with NaN or infinite values, in words; empty if there are none.

    **Arguments:**

    - `samples`: the functions. Values that are not known while JAX traces a program are not checked.
    - `numbers`: the numbers of these functions in messages; from 0 on unless given.
    """
    inputs = [
        ("input", *values_of(part.u), part.inputs, part.u.mask if isinstance(part.u, Measurements) else None)
        for part in samples.parts
    ]
    listed = [
        (int(row if numbers is None else numbers[row]), text)
        for role, values, variables, mask in (*inputs, ("output", samples.s, samples.outputs, None))
        for row, text in wrong_channels(role, values, variables, mask)
    ]
    texts = [f"function {number}, {text}" for number, text in sorted(listed)[:LISTED]]
    if len(listed) > LISTED:
        texts.append(f"and {len(listed) - LISTED} more")
    return "; ".join(texts)


def wrong_channels(
    role: str, values: Array, variables: Sequence[Variable], mask: Array | None
) -> Iterator[tuple[int, str]]:
    """Every function with a channel that is not finite everywhere, and what is wrong with the channel."""
    if isinstance(values, Tracer):
        return
    wrong = ~np.isfinite(np.asarray(values))
    if mask is not None:
        wrong &= np.asarray(mask)[..., None]
    if not wrong.any():
        return
    for row, channel in zip(*np.nonzero(wrong.any(axis=1)), strict=True):
        count = int(wrong[row, :, channel].sum())
        nan = bool(np.isnan(np.asarray(values[row, :, channel])[wrong[row, :, channel]]).any())
        kind = "NaN" if nan else "infinite"
        yield int(row), f"{role} {variables[channel].name!r}: {count} of {wrong.shape[1]} values {kind}"
