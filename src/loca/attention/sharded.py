"""Coupling with the nodes divided among devices."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from loca.attention.coupling import Attention, Channels, Nodes, Proposal, inverse_root
from loca.devices import NODES
from loca.kernels import Kernel
from loca.products import matmul
from loca.typing import PyTree


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
