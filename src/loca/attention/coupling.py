"""κ, g̃ and E_φ[v]: the equations of kernel-coupled attention, each written once, the interface of all methods,
the methods without approximation, and the one that divides the nodes among devices.

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
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from loca.devices import NODES
from loca.kernels import Kernel
from loca.products import matmul, matmul_transposed
from loca.typing import PyTree

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
        fill = -len(q_z) % self._devices
        q_z = self._place(jnp.pad(q_z, ((0, fill), (0, 0))))
        w = self._place(jnp.pad(w, (0, fill)))

        def mass(part: tuple[Array], whole: tuple[Kernel, Array, Array]) -> Array:
            (q_b,), (k, q_z, w) = part, whole
            return k.matrix(q_b, q_z) @ w

        own = PartitionSpec(self.axis)
        return Nodes(q_z, w, inverse_root(self._on_each(mass, (q_z,), (k, q_z, w), own)), g(q_z))

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

    def _place(self, rows: Float[Array, "Q *d"]) -> Float[Array, "Q *d"]:
        """Place the rows on their devices, so that what depends on them, such as g, is computed there."""
        return rows if self._devices == 1 else jax.lax.with_sharding_constraint(rows, PartitionSpec(self.axis))

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
