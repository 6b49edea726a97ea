"""What every quadrature rule is."""

import abc
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from loca.domains import Domain
from loca.parameters import Fixed


class Rule(Fixed):
    """∫_Y h(y) dy ≈ Σⱼ wⱼ h(zⱼ) on the domain that the rule owns.

    Nodes are made on the unit cube and carried into Y when the rule is created, so they cannot be left outside it.
    """

    domain: eqx.AbstractVar[Domain]

    follows_queries: ClassVar[bool] = False
    """Whether the nodes are the queries themselves, so that answers depend on what is asked together."""

    @abc.abstractmethod
    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "Q d_y"], Float[Array, " Q"]]:
        """Nodes z and weights w with which to answer the queries y."""


class FixedRule(Rule):
    """A rule whose nodes are the same whatever is asked."""

    z: eqx.AbstractVar[Float[Array, "Q d_y"]]
    w: eqx.AbstractVar[Float[Array, " Q"]]

    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "Q d_y"], Float[Array, " Q"]]:
        return self.z, self.w

    def integrate(self, values: Float[Array, "Q *d"]) -> Float[Array, "*d"]:
        """Σⱼ wⱼ hⱼ for values of h at the nodes."""
        return (self.w @ values.reshape(len(self.w), -1)).reshape(values.shape[1:])
