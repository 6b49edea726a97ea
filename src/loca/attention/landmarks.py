"""Which few nodes stand for all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.kernels import Kernel

CANDIDATES = 8
"""Nodes looked at for each one chosen: the choice then costs O(r³), however many nodes there are."""


def landmarks(k: Kernel, q_z: Float[Array, "Q l"], count: int) -> Int[Array, " r"]:
    """The pivots of a greedy Cholesky factorization of k: each is the node that those before it explain worst.

    With K̂ the part of K that the pivots so far explain, each step takes the largest diagonal element of K − K̂, so
    that pivots keep apart where k is narrow and lie thin where it is flat. A choice has no derivative.

    **Arguments:**

    - `k`: says how alike two nodes are.
    - `q_z`: lifted nodes. Of more than `CANDIDATES` for each pivot, a fixed random subset is looked at.
    - `count`: r, at most Q.
    """
    considered = min(len(q_z), CANDIDATES * count)
    subset = np.sort(np.random.default_rng(0).permutation(len(q_z))[:considered])
    arrays, rest = eqx.partition((k, q_z[subset]), eqx.is_array)
    k, q = eqx.combine(jax.lax.stop_gradient(arrays), rest)
    diagonal = jax.vmap(k)(q, q)
    smallest = jnp.finfo(q.dtype).eps * jnp.max(diagonal)

    def choose(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        pivots, factor, left = state
        pivot = jnp.argmax(left)
        row = k.matrix(q[pivot][None], q)[0] - factor[:, pivot] @ factor
        row = row * jax.lax.rsqrt(jnp.maximum(left[pivot], smallest))
        # a pivot is explained, whatever round-off says: none is chosen twice
        left = jnp.where(left < 0.0, -1.0, jnp.maximum(left - row**2, 0.0)).at[pivot].set(-1.0)
        return pivots.at[i].set(pivot), factor.at[i].set(row), left

    start = jnp.zeros(count, int), jnp.zeros((count, considered), q.dtype), diagonal
    pivots, _, _ = jax.lax.fori_loop(0, count, choose, start)
    return jnp.asarray(subset)[pivots]
