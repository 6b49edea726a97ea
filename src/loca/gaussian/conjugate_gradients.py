"""Preconditioned conjugate gradients with many right-hand sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Unknowns = Float[Array, "S r_u r_y"]
Report = Callable[[int, float], object]
"""Called after every iteration with its number and the largest residual; its result is ignored."""


class Solution(NamedTuple):
    """What the iteration ended with.

    **Arguments:**

    - `x`: the unknowns.
    - `iterations`: the number of iterations.
    - `residual`: the largest ‖b − A x‖/‖b‖ of all right-hand sides, in the norm of the preconditioner.
    """

    x: Unknowns
    iterations: int
    residual: float


class State(NamedTuple):
    """Unknowns, residuals, directions, and the product of residuals with preconditioned residuals."""

    x: Unknowns
    r: Unknowns
    p: Unknowns
    rz: Float[Array, " S"]


def conjugate_gradients(
    apply: Callable[[Unknowns], Unknowns],
    b: Unknowns,
    preconditioner: Float[Array, "r_u r_y"],
    tolerance: float,
    limit: int,
    report: Report | None = None,
) -> Solution:
    """Solve A x = b for every right-hand side at once, until all residuals are below the tolerance.

    **Arguments:**

    - `apply`: A, symmetric and positive definite.
    - `b`: the right-hand sides.
    - `preconditioner`: an approximation of the inverse of A, which is multiplied elementwise.
    - `tolerance`: of ‖b − A x‖/‖b‖, with ‖r‖² = r·M r for the preconditioner M: all features count alike.
    - `limit`: of the number of iterations.
    - `report`: called after every iteration.
    """
    z = preconditioner * b
    state, count = State(jnp.zeros_like(b), b, z, dot(b, z)), 0
    size = jnp.where(state.rz > 0.0, state.rz, 1.0)
    residual = 1.0 if b.any() else 0.0
    while count < limit and residual > tolerance:
        state, worst = update(state, apply(state.p), preconditioner, size)
        residual, count = float(worst), count + 1
        if report is not None:
            report(count, residual)
    return Solution(state.x, count, residual)


@jax.jit
def update(
    state: State, product: Unknowns, preconditioner: Float[Array, "r_u r_y"], size: Float[Array, " S"]
) -> tuple[State, Float[Array, ""]]:
    """One iteration, given A p; also the largest residual."""
    x, r, p, rz = state
    alpha = ratio(rz, dot(p, product))
    x, r = x + alpha * p, r - alpha * product
    z = preconditioner * r
    next_rz = dot(r, z)
    return State(x, r, z + ratio(next_rz, rz) * p, next_rz), jnp.sqrt(jnp.max(next_rz / size))


def dot(a: Unknowns, b: Unknowns) -> Float[Array, " S"]:
    """The inner product for each right-hand side."""
    return jnp.sum(a * b, axis=(1, 2))


def ratio(a: Float[Array, " S"], b: Float[Array, " S"]) -> Float[Array, "S 1 1"]:
    """a/b, and 0 for a right-hand side that is solved exactly."""
    return jnp.where(b > 0.0, a / jnp.where(b > 0.0, b, 1.0), 0.0)[:, None, None]
