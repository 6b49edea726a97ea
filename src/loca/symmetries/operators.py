"""Operators that have symmetries: averages over a group, and homogeneous ones."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Indexed, Normalization, Queries, Shared
from loca.models import Halves, Operator, Uncertain, Wrapper
from loca.symmetries.scale import Scale
from loca.symmetries.symmetry import Symmetry
from loca.typing import Input, Key, PyTree


class Symmetric(Uncertain, Wrapper):
    """F(u)(y) = mean of g⁻¹(F₀(g u)(g y)) over a group: equivariant, whatever F₀ is.

    A query that g moves further outside the range of the data than it is, such as from the first row of a half-open
    grid beyond the last one, is left out of the mean for that g.

    σ is that of F₀, the root of its mean square over the group. If F₀ has none, it is the standard deviation of the
    predictions over the group, which is to be calibrated: `loca.calibrate`.

    **Arguments:**

    - `normalization`: that of the operator.
    - `operator`: F₀.
    - `group`: all elements, the identity first.
    """

    normalization: Normalization
    operator: Operator
    group: tuple[Symmetry, ...]

    def encode(self, u: Input) -> Float[Array, "G ..."]:
        return jax.vmap(self.operator.encode)(self._images(u))

    def respond(self, codes: Float[Array, "N G ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        found, _ = self._predictions(codes, queries)
        return self.normalization.at(queries).standardize(mean(found, self._weights(queries)))

    def spread(self, codes: Float[Array, "N G ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        found, sigma = self._predictions(codes, queries)
        weights = self._weights(queries)
        center = mean(found, weights)
        if sigma is not None:
            deviation = jnp.sqrt(mean(sigma**2, weights))
        else:
            several = jnp.sum(weights, axis=0)
            variance = mean((found - center) ** 2, weights) * several / jnp.maximum(several - 1.0, 1.0)
            typical = jnp.mean(variance, axis=-2, keepdims=True)  # where one element only counts
            deviation = jnp.sqrt(jnp.where(several > 1.0, variance, typical))
        return jnp.abs(jax.jvp(self.normalization.at(queries).standardize, (center,), (deviation,))[1])

    def radius(self, level: float, *, simultaneous: bool = False) -> Float[Array, " d_s"]:
        operator = self.operator if isinstance(self.operator, Uncertain) else super()
        return operator.radius(level, simultaneous=simultaneous)

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        """Draws of F₀, if it has any: they vary as much as σ says, which their averages would not."""
        return self.operator.draws(key, count) if isinstance(self.operator, Uncertain) else super().draws(key, count)

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        """Those of F₀ for all images of functions and of queries."""
        if not self.is_pointwise:
            return super().halves(y)
        inner = self.operator.halves(self._images_of(y).reshape(-1, y.shape[-1]))
        of_functions = eqx.Partial(self._functions_by, inner.of_functions)
        of_queries = eqx.Partial(self._queries_by, inner.of_queries)
        return Halves(of_functions, of_queries, eqx.Partial(self._together_by, inner.together), inner.block)

    def _images(self, u: Input) -> PyTree:
        """g u for every element."""
        return jax.tree.map(lambda *each: jnp.stack(each), *(g.input(u) for g in self.group))

    def _images_of(self, y: Float[Array, "*P d_y"]) -> Float[Array, "G *P d_y"]:
        return jnp.stack([g.locations(y) for g in self.group])

    def _weights(self, queries: Queries) -> Float[Array, "G *N P 1"]:
        """Whether the prediction of an element counts at each query."""
        counts = [g.counts(queries.y, g.locations(queries.y)) for g in self.group]
        found = jnp.stack(counts).astype(queries.y.dtype)
        if isinstance(queries, Indexed):
            found = found[:, queries.index]
        return found[..., None] if found.ndim == 3 else found[:, None, :, None]

    def _predictions(
        self, codes: Float[Array, "N G ..."], queries: Queries
    ) -> tuple[Float[Array, "G N P d_s"], Float[Array, "G N P d_s"] | None]:
        """g⁻¹(F₀(g u)(g y)) of every element with its σ, in the units of the data."""
        operator = self.operator

        def predict(codes: Array, y: Array) -> tuple[Array, Array | None]:
            moved = dataclasses.replace(queries, y=y)  # pyright: ignore[reportCallIssue]
            restore, found = operator.normalization.at(moved).restore, operator.respond(codes, moved)
            if not isinstance(operator, Uncertain):
                return restore(found), None
            return jax.jvp(restore, (found,), (operator.spread(codes, moved),))

        found, sigma = jax.vmap(predict, (1, 0))(codes, self._images_of(queries.y))
        return self._undone(found), None if sigma is None else jnp.abs(self._undone(sigma))

    def _undone(self, found: Float[Array, "G N P d_s"]) -> Float[Array, "G N P d_s"]:
        return jnp.stack([g.undo_output(each) for g, each in zip(self.group, found, strict=True)])

    def _functions_by(self, of_functions: PyTree, u: Input) -> Float[Array, "N G ..."]:
        return jax.vmap(of_functions, out_axes=1)(self._images(u))

    def _queries_by(self, of_queries: PyTree, y: Float[Array, "P d_y"]) -> tuple[PyTree, Float[Array, "G 1 P 1"]]:
        found = eqx.filter_vmap(of_queries, out_axes=eqx.if_array(0))(self._images_of(y))
        return found, self._weights(Shared(y))

    def _together_by(self, together: PyTree, rows: Float[Array, "N G ..."], of_queries: PyTree) -> Array:
        of_images, weights = of_queries
        found = eqx.filter_vmap(together, in_axes=(1, eqx.if_array(0)))(rows, of_images)
        return mean(self._undone(found), weights)


def mean(values: Float[Array, "G N P d_s"], weights: Float[Array, "G *N P 1"]) -> Float[Array, "N P d_s"]:
    """Σ w v / Σ w over the elements of a group."""
    return jnp.sum(weights * values, axis=0) / jnp.sum(weights, axis=0)


class Homogeneous(Wrapper):
    """F(u) = c^p F₀(u/c), where c(u) is the size of u: homogeneous of degree p, whatever F₀ is.

    **Arguments:**

    - `normalization`: of outputs without a shift, so that small ones are not rounded.
    - `operator`: F₀, for inputs of size 1.
    - `scale`: c and p.
    """

    normalization: Normalization
    operator: Operator
    scale: Scale

    def encode(self, u: Input) -> Float[Array, ...]:
        c = self.scale.size(u)
        return with_size(self.operator.encode(self.scale.divide(u, c)), c)

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        found = self.operator.respond(codes[..., :-1], queries)
        return self._scaled(codes, self.operator.normalization.at(queries).restore(found)) / self.normalization.s_scale

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        inner = self.operator.halves(y)
        of_functions = eqx.Partial(self._functions_by, inner.of_functions)
        return Halves(of_functions, inner.of_queries, eqx.Partial(self._together_by, inner.together), inner.block)

    def _scaled(self, codes: Float[Array, "N ..."], s: Float[Array, "N P d_s"]) -> Float[Array, "N P d_s"]:
        c = codes[(slice(None), *[0] * (codes.ndim - 2), slice(-1, None))]  # the same on all axes between
        return s * self.scale.factors(c)

    def _functions_by(self, of_functions: PyTree, u: Input) -> Float[Array, "N ..."]:
        c = jax.vmap(self.scale.size)(u)
        return jax.vmap(with_size)(of_functions(jax.vmap(self.scale.divide)(u, c)), c)

    def _together_by(self, together: PyTree, rows: Float[Array, "N ..."], of_queries: PyTree) -> Array:
        return self._scaled(rows, together(rows[..., :-1], of_queries))


class UncertainHomogeneous(Uncertain, Homogeneous):
    """A homogeneous operator with the error bars of F₀, which are multiplied by c^p as well."""

    normalization: Normalization
    operator: Uncertain
    scale: Scale

    def spread(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        inner, restore = codes[..., :-1], self.operator.normalization.at(queries).restore
        mean, sigma = self.operator.respond(inner, queries), self.operator.spread(inner, queries)
        return self._scaled(codes, jnp.abs(jax.jvp(restore, (mean,), (sigma,))[1])) / self.normalization.s_scale

    def radius(self, level: float, *, simultaneous: bool = False) -> Float[Array, " d_s"]:
        return self.operator.radius(level, simultaneous=simultaneous)

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        return tuple(homogeneous(each, self.scale) for each in self.operator.draws(key, count))


def homogeneous(operator: Operator, scale: Scale) -> Homogeneous:
    """The homogeneous operator, with error bars if the operator has them."""
    inner, cls = operator.normalization, UncertainHomogeneous if isinstance(operator, Uncertain) else Homogeneous
    normalization = dataclasses.replace(
        scale.normalization, u_shift=inner.u_shift, u_scale=inner.u_scale, u_transforms=inner.u_transforms
    )
    return cls(normalization, operator, scale, signature=operator.signature)  # pyright: ignore[reportArgumentType]


def with_size(code: Float[Array, "*n k"], c: Float[Array, ""]) -> Float[Array, "*n k_1"]:
    """A code with one more number on its last axis: c."""
    return jnp.concatenate([code, jnp.broadcast_to(c, (*code.shape[:-1], 1)).astype(code.dtype)], axis=-1)
