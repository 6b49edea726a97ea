"""Kernel-coupled attention: the equations of κ, g̃ and φ, and methods to evaluate them."""

from loca.attention.coupling import Attention as Attention
from loca.attention.coupling import Blocked as Blocked
from loca.attention.coupling import Channels as Channels
from loca.attention.coupling import Dense as Dense
from loca.attention.coupling import Nodes as Nodes
from loca.attention.coupling import Proposal as Proposal
from loca.attention.coupling import Sharded as Sharded
from loca.attention.coupling import Uncoupled as Uncoupled
from loca.attention.coupling import couple as couple
from loca.attention.coupling import coupling as coupling
from loca.attention.coupling import expectation as expectation
from loca.attention.coupling import inverse_root as inverse_root
from loca.attention.linear import Nystrom as Nystrom

__all__ = ["Attention", "Blocked", "Dense", "Nystrom", "Sharded", "Uncoupled", "coupling"]
