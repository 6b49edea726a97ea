"""The solver of Darcy flow with the paper's source and flux."""

import functools

import numpy as np

from loca.problems import DarcyFlow


@functools.cache
def flow(resolution: int) -> DarcyFlow:
    """The solver at a resolution, cached because assembling it takes time."""
    return DarcyFlow(
        resolution,
        f=lambda x1, x2: 5.0 * np.exp(-((x1 - 0.5) ** 2) - (x2 - 0.5) ** 2),
        g=lambda x1, x2: np.sin(5.0 * x1),
    )
