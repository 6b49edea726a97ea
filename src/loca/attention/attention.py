"""What every way of evaluating the scores is."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from loca.attention.coupling import Channels, Proposal
from loca.kernels import Kernel
from loca.typing import PyTree


class Attention(eqx.Module):
    """g̃ in two steps: what the nodes contribute, once; then the scores of any queries.

    What lies between the steps is each way's own: all of the nodes as `Nodes`, or sums over them.
    """

    @abc.abstractmethod
    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> PyTree:
        """The node side, from lifted nodes and their weights: whatever `scores` needs of it."""

    @abc.abstractmethod
    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: PyTree) -> Channels:
        """g̃ at lifted queries."""
