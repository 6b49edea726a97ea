"""The trivial answer: the same field for every input."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from loca.data import Indexed, Records, Samples, Shared
from loca.evaluation.blocks import BLOCK, blocks


def mean_field(data: Samples | Records, batch_size: int = BLOCK) -> Float[np.ndarray, "M d_s"]:
    """s̄(y) = mean of sᵢ(y) over the functions that are labeled at y: what to answer without looking at u.

    **Arguments:**

    - `data`: training data whose functions share their locations, whether all are labeled there or each at some.
    - `batch_size`: functions in memory at once.
    """
    total, count = np.zeros((1, 1)), np.zeros((1, 1))
    for samples in blocks(data, min(batch_size, len(data))):
        s = np.asarray(samples.s, np.float64)
        match samples.y:
            case Shared():
                total, count = total + s.sum(axis=0), count + np.full((s.shape[1], 1), float(len(s)))
            case Indexed(y, index):
                here, labels = np.zeros((len(y), s.shape[2])), np.zeros((len(y), 1))
                np.add.at(here, np.asarray(index), s)
                np.add.at(labels, np.asarray(index), 1.0)
                total, count = total + here, count + labels
            case _:
                raise ValueError(
                    "these functions have locations of their own, so there is no mean field; "
                    "evaluate without a reference, or interpolate to common locations first"
                )
    if not np.all(count > 0):
        raise ValueError(
            f"{np.sum(count == 0)} of {len(count)} locations have no label in any function; "
            "take the mean field of data with more labels"
        )
    return total / count
