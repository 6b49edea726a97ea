"""The Gaussian operator: a Gaussian process over pairs (u, y), which is solved for instead of trained."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.attention import Channels
from loca.data import Indexed, Normalization, Queries, Shared
from loca.encoders import Encoder
from loca.gaussian.features import InputFeatures, LocationFeatures
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.labels import label_map, with_nugget
from loca.gaussian.system import Block, System
from loca.models import SeparableOperator, Uncertain, widened
from loca.parameters import Fixed
from loca.typing import Key, PyTree

DRAWS_TOLERANCE = 1e-4
"""Of the residual of posterior draws, whose own spread is far larger."""


def in_double(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function in double precision, whatever the precision of its arguments and result, also where JAX is tracing.

    Kernels with little noise amplify rounding errors of single precision up to ten thousandfold. Derivatives have the
    precision of the arguments: JAX transposes them where it may truncate double precision.
    """

    @eqx.filter_custom_jvp
    def computed(*arguments: Any) -> Array:
        with jax.enable_x64(True):
            return function(*jax.tree.map(widened, arguments)).astype(precision(arguments))

    @computed.def_jvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
        with jax.enable_x64(precision(primals) == jnp.float64):
            return computed(*primals), eqx.filter_jvp(function, primals, tangents)[1]

    return functools.wraps(function)(lambda *arguments: computed(*arguments))


def precision(tree: PyTree) -> jnp.dtype:
    """That of the arrays of a tree."""
    return jnp.result_type(*filter(eqx.is_inexact_array, jax.tree.leaves(tree)))


@in_double
def features_at(features: InputFeatures | LocationFeatures, points: Float[Array, "N d"]) -> Float[Array, "N r"]:
    """The features of codes, or of locations."""
    return features(points)


class Conditions(Fixed):
    """Codes of the training functions, and where they were labeled: what the posterior covariance depends on."""

    codes: Float[Array, "N d"]
    queries: Queries


class GaussianOperator(SeparableOperator, Uncertain, Fixed):
    """F(u)(y) = Σ_ab f_a(u) C_ab h_b(y): the posterior mean of a Gaussian process over pairs (u, y).

    Its covariance is k_U(u, u′)·k_Y(y, y′).

    f are features of a kernel on encoded inputs, h features of a kernel on locations. `loca.solve` finds C, one matrix
    for each output channel, and chooses the kernels.

    **Arguments:**

    - `normalization`, `encoder`: as for every separable operator.
    - `f`, `h`: the features.
    - `coefficients`: C.
    - `noise`: λ, the variance of the noise of labels relative to the prior variance.
    - `variance`: σ², the prior variance of each channel in standardized units; k_U·k_Y is in units of it.
    - `power`: Σ f_a(u)² h_b(y)² over all labels: how well each coefficient is determined.
    - `conditions`: what `draws` needs; None for operators without it, such as the draws themselves.
    - `nugget`: the variance of the error that each function has of its own, for example because its input is noisy,
      relative to the prior variance. It is correlated over locations by k_Y.
    - `numbers`, `transforms`: the hyperparameters that it was solved for with; without them it does not know.
    """

    normalization: Normalization
    encoder: Encoder
    f: InputFeatures
    h: LocationFeatures
    coefficients: Float[Array, "d_s r_u r_y"]
    noise: Float[Array, ""]
    variance: Float[Array, " d_s"]
    power: Float[Array, "r_u r_y"]
    conditions: Conditions | None = None
    nugget: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros(()))
    numbers: dict[str, Array] | None = None
    transforms: tuple[tuple[str, str], ...] = eqx.field(static=True, default=())

    @property
    def hyperparameters(self) -> Hyperparameters:
        """What the operator was solved for with, for example to solve for it again with more functions."""
        if self.numbers is None:
            raise ValueError("this operator does not know its hyperparameters; those of its report do as well")
        return Hyperparameters.of(
            {name: each.tolist() for name, each in self.numbers.items()} | {"transforms": self.transforms}
        )

    def basis(self, y: Float[Array, "P d_y"], nodes: PyTree) -> Channels:
        return (features_at(self.h, y),) * len(self.coefficients)

    def read(self, codes: Float[Array, "*N d"]) -> Float[Array, "*N d_s n"]:
        z = codes.reshape(-1, codes.shape[-1])
        v = jnp.einsum("na,sab->nsb", features_at(self.f, z), self.coefficients)
        return v.reshape(*codes.shape[:-1], *v.shape[1:])

    def spread(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        """The standard deviation given the training data, in standardized units, with the nugget, but without noise.

        Exact if all functions are labeled at the same locations. Otherwise the labels of a function count as if they
        were spread evenly over all its locations; compare with the spread of `draws` where that is in doubt.
        """
        match queries:
            case Shared(y):
                return self._spread(codes, y)
            case Indexed(y, index):
                return jnp.take_along_axis(self._spread(codes, y), index[:, :, None], axis=1)
            case _:
                y = queries.locations(codes.shape[0])
                return jax.vmap(lambda z, y: self._spread(z[None], y)[0])(codes, y)

    def _spread(self, z: Float[Array, "N d"], y: Float[Array, "P d_y"]) -> Float[Array, "N P d_s"]:
        return jnp.sqrt(self.variance * (self._variance(z, y) + self.nugget)[:, :, None])

    @in_double
    def _variance(self, z: Float[Array, "N d"], y: Float[Array, "P d_y"]) -> Float[Array, "N P"]:
        """Var F(u)(y) given the training data, relative to the prior variance: inside and outside of the features."""
        f2, h2 = self.f(z) ** 2, self.h(y) ** 2
        inside = f2 @ (self.noise / (self.power + self.noise)) @ h2.T
        outside = self.f.kernel.diagonal(z)[:, None] - jnp.sum(f2, axis=1)[:, None] * jnp.sum(h2, axis=1)
        return inside + jnp.maximum(outside, 0.0)

    @in_double
    def location_covariance(self, codes: Float[Array, "N d"], y: Float[Array, "P d_y"]) -> Float[Array, "P P"]:
        """Cov(F(u)(y), F(u)(y′)) given the training data, relative to the prior variance; the mean over functions.

        It is as exact as `spread`. What lies outside the features of locations is independent between them.
        """
        f, h, prior = self.f(codes), self.h(y), jnp.mean(self.f.kernel.diagonal(codes)) + self.nugget
        inside = jnp.mean(f**2, axis=0) @ (self.noise / (self.power + self.noise))
        outside = jnp.maximum(prior - jnp.mean(jnp.sum(f**2, axis=1)), 0.0)
        return (h * (inside + outside)) @ h.T + jnp.diag(prior * jnp.maximum(1.0 - jnp.sum(h**2, axis=1), 0.0))

    @in_double
    def input_covariance(
        self, codes: Float[Array, "N d"], y: Float[Array, "P d_y"], weights: Float[Array, " P"]
    ) -> Float[Array, "N N"]:
        """∫ Cov(F(u)(y), F(u′)(y)) dy given the training data, relative to the prior variance, for all pairs.

        The integral is by the quadrature rule (y, weights). It is as exact as `spread`, and without the nugget, which
        no other function tells anything about.
        """
        f, squares = self.f(codes), weights @ self.h(y) ** 2
        inside = (self.noise / (self.power + self.noise)) @ squares
        return (f * (inside - jnp.sum(squares))) @ f.T + jnp.sum(weights) * self.f.kernel.matrix(codes, codes)

    def draws(self, key: Key, count: int) -> tuple[GaussianOperator, ...]:
        """Independent draws from the posterior, each an operator of its own.

        A draw from the prior is conditioned on the labels by one more solve, all draws together (Wilson et al. 2020).
        What lies outside the features is not drawn, and neither is the nugget; `std` accounts for both.
        """
        if self.conditions is None:
            raise ValueError(
                "this operator does not know where its training functions were labeled, which draws depend on; "
                "call `draws` of the operator that `loca.solve` returns for data in memory"
            )
        queries = self.conditions.queries
        labels = label_map(self.f(self.conditions.codes), self.h, queries)
        if self.nugget > 0.0:
            labels = with_nugget(labels, self.nugget / self.noise)
        shape = (count * len(self.coefficients), *self.coefficients.shape[1:])
        prior = jax.random.normal(key, shape)
        values = labels(prior)
        values = values + jnp.sqrt(self.noise) * jax.random.normal(jax.random.fold_in(key, 1), values.shape)
        found = System([Block(labels, values)], float(self.noise)).solve(DRAWS_TOLERANCE, 1000)
        deviations = (prior - found.x).reshape(count, *self.coefficients.shape)
        deviations = deviations * jnp.sqrt(self.variance)[:, None, None]
        return tuple(
            dataclasses.replace(self, coefficients=self.coefficients + each, conditions=None) for each in deviations
        )
