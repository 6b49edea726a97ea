"""Flow with pressure zero on the whole boundary, by five-point differences of fluxes."""

from __future__ import annotations

import numpy as np
import scipy.fft
from jaxtyping import Float

from loca.workers import one_thread

TOLERANCE, LIMIT = 1e-11, 1000
"""Of the residual, relative to the source, and iterations, at most."""


@one_thread()
def solve(u: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """s with −∇·(u ∇s) = 1 on the unit square and s = 0 on its boundary, u and s at the nodes of a grid.

    u between two nodes is their mean. Conjugate gradients are preconditioned with the same differences for u = 1, which
    sine transforms invert. Their number depends on the ratio of the largest and the smallest u, not on the grid.
    """
    if u.min() <= 0.0:
        raise ValueError(f"permeability must be positive, but its smallest value is {u.min():.3g}")
    n = len(u) - 1
    east = 0.5 * (u[1:, 1:-1] + u[:-1, 1:-1]) * n**2
    north = 0.5 * (u[1:-1, 1:] + u[1:-1, :-1]) * n**2
    own = east[1:] + east[:-1] + north[:, 1:] + north[:, :-1]
    waves = (2.0 * n * np.sin(0.5 * np.pi * np.arange(1, n) / n)) ** 2
    eigenvalues = waves[:, None] + waves

    def apply(s: np.ndarray) -> np.ndarray:
        found = own * s
        found[1:] -= east[1:-1] * s[:-1]
        found[:-1] -= east[1:-1] * s[1:]
        found[:, 1:] -= north[:, 1:-1] * s[:, :-1]
        found[:, :-1] -= north[:, 1:-1] * s[:, 1:]
        return found

    def precondition(r: np.ndarray) -> np.ndarray:
        return np.asarray(scipy.fft.idstn(np.asarray(scipy.fft.dstn(r, type=1)) / eigenvalues, type=1))

    s = np.zeros_like(own)
    r = np.ones_like(own)
    z = precondition(r)
    p, rho = z, float(np.vdot(r, z))
    for _ in range(LIMIT):
        Ap = apply(p)
        step = rho / float(np.vdot(p, Ap))
        s += step * p
        r -= step * Ap
        if np.linalg.norm(r) <= TOLERANCE * n:
            return np.pad(s, 1)
        z = precondition(r)
        rho, before = float(np.vdot(r, z)), rho
        p = z + (rho / before) * p
    raise ArithmeticError(
        f"the flow did not converge in {LIMIT} iterations: permeabilities are between {u.min():.3g} and {u.max():.3g}"
    )
