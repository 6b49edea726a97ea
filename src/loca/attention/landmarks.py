"""A few nodes that represent all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.kernels import Kernel

CANDIDATES = 8
"""Candidates considered per landmark: the choice then costs O(r³), independent of the number of nodes."""


def landmarks(k: Kernel, q_z: Float[Array, "Q l"], count: int) -> Int[Array, " r"]:
    """The pivots of a greedy Cholesky factorization of k: each is the node that those before it explain worst.

    With K̂ the part of K that the pivots so far explain, each step takes the largest diagonal element of K − K̂, so
    that pivots keep a distance where k is narrow and are sparse where it is flat. The choice is not differentiated.

    **Arguments:**

    - `k`: the similarity of two nodes.
    - `q_z`: lifted nodes. If there are more than `CANDIDATES` per pivot, a fixed random subset is considered.
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
        # a pivot is explained exactly, despite round-off: none is chosen twice
        left = jnp.where(left < 0.0, -1.0, jnp.maximum(left - row**2, 0.0)).at[pivot].set(-1.0)
        return pivots.at[i].set(pivot), factor.at[i].set(row), left

    start = jnp.zeros(count, int), jnp.zeros((count, considered), q.dtype), diagonal
    pivots, _, _ = jax.lax.fori_loop(0, count, choose, start)
    return jnp.asarray(subset)[pivots]
