"""The order of items that are each used once: days of a record, digits of a file."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Int

from loca.typing import Key


def shuffled(key: Key, rows: Sequence[int], count: int, source: str, items: str) -> Int[np.ndarray, " B"]:
    """The numbers of the items at these positions of a random order, in which each of `count` items occurs once.

    **Arguments:**

    - `key`: determines the order.
    - `rows`: the positions.
    - `count`: the number of items of the source.
    - `source`, `items`: their names in messages.
    """
    wanted = np.asarray(rows, int)
    if wanted.size and not (0 <= wanted.min() and wanted.max() < count):
        raise ValueError(
            f"numbers {wanted.min()} to {wanted.max()} do not exist: {source} has {count} {items}, each used once; "
            f"pass numbers from 0 to {count - 1}"
        )
    entropy = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return np.random.default_rng(entropy).permutation(count)[wanted]
