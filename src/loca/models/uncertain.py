"""Operators that know how wrong they may be, and error bars of their predictions."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Shared
from loca.models.operator import Halves, InputValues, Operator, Wrapper, unchanged
from loca.typing import Input, Key, Numbers

LEVEL = 0.9
"""The level of bands, unless given."""

BLOCK = 2048
"""Queries at a time."""


class Bands(NamedTuple):
    """The lower and the upper end of bands around predictions, in the units of the data."""

    lower: Float[Array, "*N P d_s"]
    upper: Float[Array, "*N P d_s"]


class ErrorBars(NamedTuple):
    """Predictions with their standard deviations and bands, in the units of the data."""

    mean: Float[Array, "*N P d_s"]
    std: Float[Array, "*N P d_s"]
    lower: Float[Array, "*N P d_s"]
    upper: Float[Array, "*N P d_s"]


class Uncertain(Operator):
    """An operator that knows σ(u)(y), the standard deviation of its error.

    The operator itself is the mean. `std`, `bands` and `draws` describe its error, for every model in the same way. To
    give them to a model of your own, implement `spread`; the error at a query is then taken for normal.
    """

    @abc.abstractmethod
    def spread(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        """σ of encoded functions at their queries, in standardized units as `respond`."""

    def radius(self, level: float, *, simultaneous: bool = False) -> Float[Array, " d_s"]:
        """Half the width of a band in units of σ, for each channel; unless overridden, that of a normal distribution.

        **Arguments:**

        - `level`: the probability with which a band contains the truth.
        - `simultaneous`: whether it contains the truth at all queries together, or at each of them.
        """
        if simultaneous:
            raise ValueError(
                f"{type(self).__name__} knows its error at single queries; for simultaneous bands calibrate it on "
                "held-out functions: loca.calibrate(operator, held)"
            )
        return jnp.full(len(self.outputs), ndtri(0.5 * (1.0 + level)))

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        """Operators, each of which may be the truth: what differs between them is not known.

        Unless overridden F + ε σ with a normal ε for each draw and channel: errors at different queries are fully
        correlated.
        """
        epsilons = jax.random.normal(key, (count, len(self.outputs)))
        return tuple(Offset(self.normalization, self, each, signature=self.signature) for each in epsilons)

    def std(self, u: InputValues, y: Numbers) -> Float[Array, "P d_s"]:
        """σ(u)(y), the standard deviation of the error of F(u)(y), in the units of the data.

        Where outputs are transformed, such as by a logarithm, it is that of the linearized transform.
        """
        return self._error_bars(u, y, jnp.zeros(len(self.outputs))).std

    def bands(self, u: InputValues, y: Numbers, level: float = LEVEL, *, simultaneous: bool = False) -> Bands:
        """The ends of bands around F(u)(y), in the units of the data.

        Bands are symmetric in standardized units. So those of a variable with a logarithmic transform are positive.

        **Arguments:**

        - `u`, `y`: as in a call of the operator.
        - `level`: the probability with which a band contains the truth.
        - `simultaneous`: whether it contains the truth at all queries together, or at each of them.
        """
        found = self._error_bars(u, y, self.radius(check_level(level), simultaneous=simultaneous))
        return Bands(found.lower, found.upper)

    def predict_error_bars(
        self, u: InputValues, queries: Queries | Numbers, level: float = LEVEL, *, simultaneous: bool = False
    ) -> ErrorBars:
        """F(uᵢ)(yᵢ) with σ and bands for many functions, in the units of the data.

        **Arguments:**

        - `u`, `queries`: as for `predict`.
        - `level`, `simultaneous`: as for `bands`.
        """
        radius = self.radius(check_level(level), simultaneous=simultaneous)
        u, queries = self._checked(u, queries, many=True)
        return self.error_bars(self._encode_many(u), queries, radius)

    def error_bars(self, codes: Float[Array, "N ..."], queries: Queries, radius: Float[Array, " d_s"]) -> ErrorBars:
        """Predictions for encoded functions with σ and the bands of a radius, in the units of the data."""
        mean, sigma = self.respond(codes, queries), self.spread(codes, queries)
        restore = self.normalization.at(queries).restore
        s, change = jax.jvp(restore, (mean,), (sigma,))
        ends = restore(mean - radius * sigma), restore(mean + radius * sigma)  # a transform may reverse the order
        return ErrorBars(s, jnp.abs(change), jnp.minimum(*ends), jnp.maximum(*ends))

    def halves_with_bands(self, radius: Float[Array, " d_s"]) -> Halves:
        """The halves of predictions whose channels are followed by those of σ and both ends of bands."""
        return Halves(self._encode_many, unchanged, eqx.Partial(self._bars_together, radius), BLOCK)

    def _bars_together(
        self, radius: Float[Array, " d_s"], codes: Float[Array, "N ..."], y: Float[Array, "P d_y"]
    ) -> Float[Array, "N P four_d_s"]:
        return jnp.concatenate(self.error_bars(codes, Shared(y), radius), axis=-1)

    def _error_bars(self, u: InputValues, y: Numbers, radius: Float[Array, " d_s"]) -> ErrorBars:
        u, queries = self._checked(u, y)
        return ErrorBars(*(each[0] for each in self.error_bars(self.encode(u)[None], queries, radius)))


class Offset(Wrapper):
    """F + ε σ in standardized units: a draw of an operator that knows its error at single queries."""

    normalization: Normalization
    operator: Uncertain
    epsilon: Float[Array, " d_s"]

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return self.operator.respond(codes, queries) + self.epsilon * self.operator.spread(codes, queries)


def check_level(level: float) -> float:
    """The level, or an error unless it is a probability."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"expected a level between 0 and 1, such as 0.9, got {level}")
    return level


@eqx.filter_jit
def predict_error_bars(operator: Uncertain, u: Input, queries: Queries, radius: Float[Array, " d_s"]) -> ErrorBars:
    """F(uᵢ)(yᵢ) with σ and the bands of a radius, in the units of the data."""
    return operator.error_bars(jax.vmap(operator.encode)(u), queries, radius)


@eqx.filter_jit
def standardized_errors(
    operator: Operator, u: Input, queries: Queries, s: Float[Array, "N P d_s"], least: float = 0.0
) -> Float[Array, "N P d_s"]:
    """|s̃ − F̃(u)(y)| / σ̃(u)(y) in standardized units, with σ̃ ≥ `least`; σ̃ = 1 for operators that do not know it."""
    codes = jax.vmap(operator.encode)(u)
    error = jnp.abs(operator.normalization.at(queries).standardize(s) - operator.respond(codes, queries))
    if not isinstance(operator, Uncertain):
        return error
    return error / jnp.maximum(operator.spread(codes, queries), least)
