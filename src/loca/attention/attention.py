"""What every method of evaluating the scores is."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from loca.attention.coupling import Channels, Proposal
from loca.kernels import Kernel
from loca.typing import PyTree


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
