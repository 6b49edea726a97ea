"""Attention without approximation: all pairs at once, in blocks of bounded memory, or without coupling."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.attention.coupling import Attention, Channels, Nodes, Proposal, couple, coupling, inverse_root
from loca.kernels import Kernel


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

        zeros = tuple(jnp.zeros((len(q_y), g_z.shape[1]), q_y.dtype) for g_z in nodes.g_z)
        blocks = jax.tree.map(self._split, nodes)
        (numerators, mass), _ = jax.lax.scan(add, (zeros, jnp.zeros(len(q_y), q_y.dtype)), blocks)
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
