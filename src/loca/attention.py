"""Kernel-coupled attention: the equations of κ, g̃ and E_φ[v], each written once, and methods to evaluate them.

    κ(y, z) = k(q(y), q(z)) / ( ∫k(q(y), ·) ∫k(q(z), ·) )^(1/2)
    g̃(y) = ∫ κ(y, z) g(z) dz
    F(u)(y) = Σᵢ φᵢ(y) ⊙ vᵢ(u),  φ = softmax(g̃)

A positive factor of k cancels in κ; a common factor of all weights divides κ and multiplies the integral, and so
cancels in g̃. Quantities that differ between output channels are tuples with one matrix per channel: every sum below
is then a plain matrix product, which runs faster than a product with a batch axis.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from loca.devices import NODES
from loca.kernels import Kernel
from loca.products import matmul, matmul_transposed
from loca.typing import PyTree

__all__ = ["Attention", "Blocked", "Dense", "Nystrom", "Sharded", "Uncoupled", "coupling"]

FLOOR = 1e-20
"""Lower bound of the integrals of k in denominators. The derivative of the inverse root, (∫k)^(−3/2), is then still
finite in single precision; a query so far from every node that k underflows gets κ = 0, which is the limit."""

Channels = tuple[Float[Array, "P n"], ...]
"""d_s matrices, one for each output channel: a row per location, a column per feature."""

Proposal = Callable[[Float[Array, "Q l"]], Channels]
"""g : ℝˡ → ℝⁿˣᵈˢ, the proposal scores at lifted locations."""


class Nodes(eqx.Module):
    """The contribution of the nodes to κ and g̃: independent of the queries and computed once for all of them."""

    q_z: Float[Array, "Q l"]  # lifted nodes
    w: Float[Array, " Q"]  # weights of the rule
    r_z: Float[Array, " Q"]  # (∫k(q(z), ·))^(−1/2)
    g_z: Channels  # proposal scores


def inverse_root(mass: Float[Array, " P"]) -> Float[Array, " P"]:
    """(∫k)^(−1/2), finite where k underflows."""
    return jax.lax.rsqrt(jnp.maximum(mass, FLOOR))


def coupling(k: Kernel, q_y: Float[Array, "P l"], nodes: Nodes) -> Float[Array, "P Q"]:
    """κ(yᵢ, zⱼ)."""
    k_yz = k.matrix(q_y, nodes.q_z)
    return inverse_root(k_yz @ nodes.w)[:, None] * k_yz * nodes.r_z


def couple(kappa: Float[Array, "P Q"], nodes: Nodes) -> Channels:
    """g̃(y) = Σⱼ wⱼ κ(y, zⱼ) g(zⱼ)."""
    return tuple(matmul(kappa, nodes.w[:, None] * g_z) for g_z in nodes.g_z)


def expectation(phi: Channels, v: Float[Array, "*N d_s n"]) -> Float[Array, "*N P d_s"]:
    """E_φ[v] = Σᵢ φᵢ(y) ⊙ vᵢ(u), for every query and every function."""
    return jnp.stack([matmul_transposed(v[..., s, :], phi_s) for s, phi_s in enumerate(phi)], axis=-1)


class Attention(eqx.Module):
    """g̃ in two steps: the contribution of the nodes, computed once; then the scores at any queries.

    Each method chooses what passes from the first step to the second: all nodes as `Nodes`, or sums over them.
    """

    @abc.abstractmethod
    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> PyTree:
        """The contribution of the nodes, from lifted nodes and their weights: whatever `scores` needs."""

    @abc.abstractmethod
    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: PyTree) -> Channels:
        """g̃ at lifted queries."""


class Dense(Attention):
    """g̃ = κ(w g) as written: memory O(PQ + Q²). The reference for every other method."""

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        return Nodes(q_z, w, inverse_root(k.matrix(q_z, q_z) @ w), g(q_z))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Channels:
        return couple(coupling(k, q_y, nodes), nodes)


class Blocked(Attention):
    """g̃ summed over blocks of nodes: memory O(P·block), forward and backward, instead of O(PQ + Q²).

    Since ∫k(q(y), ·) does not depend on the node, g̃(y) = (∫k(q(y), ·))^(−1/2) Σ_blocks k_yz (w r_z g_z): numerator
    and normalizer accumulate together in one pass, and no block is kept.

    **Arguments:**

    - `block`: the number of nodes at a time. Good values: 256 to 2048.
    """

    block: int = eqx.field(static=True, default=512)

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        @jax.checkpoint
        def add(mass: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            q_b, w_b = block
            return mass + k.matrix(q_z, q_b) @ w_b, None

        mass, _ = jax.lax.scan(add, jnp.zeros_like(w), (self._split(q_z), self._split(w)))
        return Nodes(q_z, w, inverse_root(mass), g(q_z))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Channels:
        @jax.checkpoint
        def add(sums: tuple[Channels, Array], block: Nodes) -> tuple[tuple[Channels, Array], None]:
            numerators, mass = sums
            k_yb, w_r = k.matrix(q_y, block.q_z), block.w * block.r_z
            numerators = tuple(h + k_yb @ (w_r[:, None] * g_b) for h, g_b in zip(numerators, block.g_z, strict=True))
            return (numerators, mass + k_yb @ block.w), None

        zeros = tuple(jnp.zeros((q_y.shape[0], g_z.shape[1]), q_y.dtype) for g_z in nodes.g_z)
        blocks = jax.tree.map(self._split, nodes)
        (numerators, mass), _ = jax.lax.scan(add, (zeros, jnp.zeros(q_y.shape[0], q_y.dtype)), blocks)
        return tuple(inverse_root(mass)[:, None] * h for h in numerators)

    def _split(self, rows: Float[Array, "Q *d"]) -> Float[Array, "blocks block *d"]:
        """Rows in blocks, the last one padded with zeros: nodes of weight zero."""
        padding = [(0, -len(rows) % self.block)] + [(0, 0)] * (rows.ndim - 1)
        return jnp.pad(rows, padding).reshape(-1, self.block, *rows.shape[1:])


class Uncoupled(Attention):
    """g̃(y) = g(q(y)): every location by itself. The kernel and the nodes are not used."""

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        return Nodes(q_z[:0], w[:0], w[:0], g(q_z[:0]))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Channels:
        return g(q_y)


class Sharded(Attention):
    """g̃(y) = (∫k(q(y), ·))^(−1/2) Σ_devices Σ_z k_yz (w r_z g_z): every device sums over its own nodes.

    Each of D devices has O(PQ/D + Q²/D) memory and work. They exchange q_z, once (Q × l numbers), and the partial
    integrals (P × n d_s and P numbers); the values are those of `Dense` up to the order of the sums. Nodes that do not
    divide evenly are padded with nodes of weight zero.

    The devices are those along the axis of this name in the current mesh: that of `jax.set_mesh`, of an enclosing
    `shard_map`, or the `mesh` of `fit`, `evaluate` and `loca.models.shard`, which replace `Dense` by this method
    themselves. Without such an axis it computes what `Dense` does.

    **Arguments:**

    - `axis`: the name of the axis of the mesh.
    """

    axis: str = eqx.field(static=True, default=NODES)

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        fill, own = -len(q_z) % self._devices, PartitionSpec(self.axis)
        q_z, w = jnp.pad(q_z, ((0, fill), (0, 0))), jnp.pad(w, (0, fill))
        if self._devices > 1:  # so that what depends on them, such as g, is computed on their devices
            q_z, w = jax.lax.with_sharding_constraint((q_z, w), own)

        def mass(q_b: Array, whole: tuple[Kernel, Array, Array]) -> Array:
            k, q_z, w = whole
            return k.matrix(q_b, q_z) @ w

        return Nodes(q_z, w, inverse_root(self._on_each(mass, q_z, (k, q_z, w), own)), g(q_z))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Channels:
        def partial_integrals(part: Nodes, whole: tuple[Kernel, Array]) -> tuple[Channels, Array]:
            k, q_y = whole
            k_yz, w_r = k.matrix(q_y, part.q_z), part.w * part.r_z
            sums = tuple(matmul(k_yz, w_r[:, None] * g_z) for g_z in part.g_z), k_yz @ part.w
            return sums if self._devices == 1 else jax.lax.psum(sums, self.axis)

        numerators, mass = self._on_each(partial_integrals, nodes, (k, q_y), PartitionSpec())
        return tuple(inverse_root(mass)[:, None] * h for h in numerators)

    @property
    def _devices(self) -> int:
        return dict(jax.sharding.get_abstract_mesh().shape).get(self.axis, 1)

    def _on_each(self, function: Callable[..., PyTree], part: PyTree, whole: PyTree, out: PartitionSpec) -> PyTree:
        """Call a function with a device's own rows of `part` and with `whole` in full."""
        if self._devices == 1:
            return function(part, whole)
        arrays, rest = eqx.partition(whole, eqx.is_array)
        return jax.shard_map(
            lambda part, arrays: function(part, eqx.combine(arrays, rest)),
            axis_names={self.axis},
            in_specs=(PartitionSpec(self.axis), PartitionSpec()),
            out_specs=out,
        )(part, arrays)


# ---- landmarks: cost linear in the number of queries -----------------------------------------------------------------

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
