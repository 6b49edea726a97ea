"""Coupling with the entire kernel matrix at once."""

from jaxtyping import Array, Float

from loca.attention.attention import Attention
from loca.attention.coupling import Channels, Nodes, Proposal, couple, coupling, inverse_root
from loca.kernels import Kernel


class Dense(Attention):
    """g̃ = κ(w g) as written: memory O(PQ + Q²). The reference for every other method."""

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        return Nodes(q_z, w, inverse_root(k.matrix(q_z, q_z) @ w), g(q_z))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Channels:
        return couple(coupling(k, q_y, nodes), nodes)
