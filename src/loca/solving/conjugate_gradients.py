"""Conjugate gradients for symmetric positive definite systems with many right-hand sides."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Unknowns = Float[Array, "S r_u r_y"]


class Solution(NamedTuple):
    """What the iteration ended with.

    **Arguments:**

    - `x`: the unknowns.
    - `iterations`: how many were done.
    - `residual`: ‖b − A x‖/‖b‖ of each right-hand side.
    """

    x: Unknowns
    iterations: Int[Array, ""]
    residual: Float[Array, " S"]


def conjugate_gradients(
    apply: Callable[[Unknowns], Unknowns],
    b: Unknowns,
    preconditioner: Float[Array, "r_u r_y"],
    tolerance: float,
    limit: int,
) -> Solution:
    """Solve A x = b for every right-hand side at once, until all residuals are below the tolerance.

    **Arguments:**

    - `apply`: A.
    - `b`: the right-hand sides.
    - `preconditioner`: an approximation of the inverse of A, which is multiplied elementwise.
    - `tolerance`: of ‖b − A x‖/‖b‖.
    - `limit`: of the number of iterations.
    """

    def dot(a: Unknowns, b: Unknowns) -> Float[Array, " S"]:
        return jnp.sum(a * b, axis=(1, 2))

    size = jnp.sqrt(dot(b, b))
    size = jnp.where(size > 0.0, size, 1.0)

    def residual(r: Unknowns) -> Float[Array, " S"]:
        return jnp.sqrt(dot(r, r)) / size

    def unfinished(state: tuple) -> Array:
        _, r, _, _, count = state
        return (count < limit) & jnp.any(residual(r) > tolerance)

    def step(state: tuple) -> tuple:
        x, r, p, rz, count = state
        product = apply(p)
        curvature = dot(p, product)
        # a right-hand side that is solved exactly has a direction of length zero
        alpha = jnp.where(curvature > 0.0, rz / jnp.where(curvature > 0.0, curvature, 1.0), 0.0)[:, None, None]
        x, r = x + alpha * p, r - alpha * product
        z = preconditioner * r
        next_rz = dot(r, z)
        beta = jnp.where(rz > 0.0, next_rz / jnp.where(rz > 0.0, rz, 1.0), 0.0)[:, None, None]
        return x, r, z + beta * p, next_rz, count + 1

    z = preconditioner * b
    start = jnp.zeros_like(b), b, z, dot(b, z), jnp.asarray(0)
    x, r, _, _, count = jax.lax.while_loop(unfinished, step, start)
    return Solution(x, count, residual(r))
