"""No coupling: the ablation in the paper's first table."""

from jaxtyping import Array, Float

from loca.attention.attention import Attention
from loca.attention.coupling import Channels, Nodes, Proposal
from loca.kernels import Kernel


class Uncoupled(Attention):
    """g̃(y) = g(q(y)): every location by itself. The kernel and the nodes are not used."""

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        return Nodes(q_z[:0], w[:0], w[:0], g(q_z[:0]))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Channels:
        return g(q_y)
