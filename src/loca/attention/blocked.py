"""Coupling with a few nodes at a time."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.attention.attention import Attention
from loca.attention.coupling import Nodes, Proposal, inverse_root
from loca.kernels import Kernel


class Blocked(Attention):
    """g̃ summed over blocks of nodes: memory O(P·block), forward and backward, instead of O(PQ + Q²).

    Since ∫k(q(y), ·) does not depend on the node, g̃(y) = (∫k(q(y), ·))^(−1/2) Σ_blocks k_yz (w r_z g_z): numerator
    and normalizer grow side by side in one pass, and no block is kept.

    **Arguments:**

    - `block`: nodes at a time. Good values: 256 to 2048.
    """

    block: int = eqx.field(static=True, default=512)

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        @jax.checkpoint
        def add(mass: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            q_b, w_b = block
            return mass + k.matrix(q_z, q_b) @ w_b, None

        mass, _ = jax.lax.scan(add, jnp.zeros_like(w), (self._split(q_z), self._split(w)))
        return Nodes(q_z, w, inverse_root(mass), g(q_z))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Float[Array, "d_s P n"]:
        h_z = (nodes.w * nodes.r_z)[:, None] * nodes.g_z

        @jax.checkpoint
        def add(sums: tuple[Array, Array], block: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
            (numerator, mass), (q_b, w_b, h_b) = sums, block
            k_yb = k.matrix(q_y, q_b)
            return (numerator + jnp.einsum("pq,qsn->spn", k_yb, h_b), mass + k_yb @ w_b), None

        d_s, _, n = h_z.shape
        zeros = jnp.zeros((d_s, len(q_y), n), q_y.dtype), jnp.zeros(len(q_y), q_y.dtype)
        blocks = self._split(nodes.q_z), self._split(nodes.w), self._split(jnp.moveaxis(h_z, 1, 0))
        (numerator, mass), _ = jax.lax.scan(add, zeros, blocks)
        return inverse_root(mass)[:, None] * numerator

    def _split(self, rows: Float[Array, "Q *d"]) -> Float[Array, "blocks block *d"]:
        """Rows in blocks, the last filled up with zeros: nodes of weight zero."""
        padding = [(0, -len(rows) % self.block)] + [(0, 0)] * (rows.ndim - 1)
        return jnp.pad(rows, padding).reshape(-1, self.block, *rows.shape[1:])
