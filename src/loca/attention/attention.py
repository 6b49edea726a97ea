"""What every way of evaluating the scores is."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from loca.attention.coupling import Channels, Nodes, Proposal
from loca.kernels import Kernel


class Attention(eqx.Module):
    """g̃ in two steps: what the nodes contribute, once; then the scores of any queries."""

    @abc.abstractmethod
    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Nodes:
        """The node side, from lifted nodes and their weights."""

    @abc.abstractmethod
    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Nodes) -> Channels:
        """g̃ at lifted queries."""
