"""Attention whose cost is linear in the number of queries: landmarks among the nodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.attention.coupling import Attention, Channels, Proposal, inverse_root
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


class Landmarks(eqx.Module):
    """Sums over all nodes, as coefficients of the landmarks: all that a query depends on."""

    q_l: Float[Array, "r l"]  # lifted landmarks
    w_l: Float[Array, " r"]  # their weights in the rule
    mass: Float[Array, " r"]  # k_ll⁻¹ Σ_z k_lz w
    sums: Channels  # k_ll⁻¹ Σ_z k_lz w r_z g_z


class Nystrom(Attention):
    """k_yz ≈ k_yl k_ll⁻¹ k_lz with r landmarks l among the nodes z: time and memory O((P + Q)r), for every kernel.

    Exact where y or z is a landmark, so with all nodes as landmarks it is `Dense`. Landmarks are chosen greedily,
    see `landmarks`; the error falls like the eigenvalues of k beyond the r-th, for smooth kernels faster than any power
    of r. The approximation may have small negative values, but ∫k may not: since the landmarks' own part of it is
    exact and k is positive, that part is a lower bound of ∫k.

    With 64, 128, 256 and 512 landmarks for 2048 nodes the output of a Darcy model, trained for 2000 steps, changes by
    1.4, 0.30, 0.026 and 0.0007 %; that of a shallow-water model, in three dimensions and trained for 300 steps, by 11,
    3.5, 0.42 and 0.05 % (reproduction/studies/linear_attention.py).

    **Arguments:**

    - `landmarks`: r, their number; all nodes if there are fewer. Good values: 128 to 512; more in three dimensions than
        in one.
    """

    landmarks: int = eqx.field(static=True, default=256)

    def __check_init__(self):
        if self.landmarks < 1:
            raise ValueError(f"expected at least one landmark, got {self.landmarks}; good values are 128 to 512")

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Landmarks:
        chosen = landmarks(k, q_z, min(self.landmarks, len(q_z)))
        q_l, w_l = q_z[chosen], w[chosen]
        root, k_zl = cholesky(k.matrix(q_l, q_l)), k.matrix(q_z, q_l)
        mass = jsp.linalg.cho_solve((root, True), w @ k_zl)
        w_r = w * inverse_root(integral(k_zl, mass, w_l))
        sums = tuple(jsp.linalg.cho_solve((root, True), k_zl.T @ (w_r[:, None] * g_z)) for g_z in g(q_z))
        return Landmarks(q_l, w_l, mass, sums)

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Landmarks) -> Channels:
        k_yl = k.matrix(q_y, nodes.q_l)
        r_y = inverse_root(integral(k_yl, nodes.mass, nodes.w_l))
        return tuple(r_y[:, None] * (k_yl @ sums) for sums in nodes.sums)


def integral(k_yl: Float[Array, "P r"], mass: Float[Array, " r"], w_l: Float[Array, " r"]) -> Float[Array, " P"]:
    """∫k(q(y), ·) over all nodes, but at least that over the landmarks alone, where k is exact and positive."""
    return jnp.maximum(k_yl @ mass, k_yl @ w_l)


def cholesky(k_ll: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """The Cholesky factor of k_ll + δ, with δ at the round-off of k_ll, increased tenfold until the factor exists.

    Replacing k_ll⁻¹ by (k_ll + δ)⁻¹ changes no value of k between landmarks by more than δ.
    """
    fixed, identity = jax.lax.stop_gradient(k_ll), jnp.eye(len(k_ll), dtype=k_ll.dtype)
    start = len(k_ll) * jnp.finfo(k_ll.dtype).eps * jnp.max(jnp.diagonal(fixed))

    def fails(delta: Array) -> Array:
        return ~jnp.isfinite(jnp.linalg.cholesky(fixed + delta * identity)).all() & jnp.isfinite(fixed).all()

    delta = jax.lax.while_loop(fails, lambda delta: 10.0 * delta, start)
    return jnp.linalg.cholesky(k_ll + delta * identity)
