"""Weighted sums of different operators, and means with weights that are best on validation functions."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Chain, Log, Normalization, Queries, Samples, Transform
from loca.models.align import adapt
from loca.models.operator import Operator
from loca.models.predictor import BLOCK, Predictor, blocks
from loca.models.uncertain import Uncertain, standardized_errors
from loca.typing import Input

LEAST = 0.02
"""Members with smaller weights in all channels are left out: they would cost more than they give."""

SIZED, SIZED_LABELS = 100, 256
"""Validation functions and labels of each that determine the size of error bars, at most."""

NORMAL_QUANTILE = 1.6449
"""Of the absolute value of a standard normal variable: 90 % are below."""


Kind = TypeVar("Kind", bound="Sum")


class Sum(Operator):
    """F = Σ wₖ Fₖ for each channel: a weighted sum of operators, in the units of the data.

    `fit(..., around=...)` returns one of a map and a network.
    """

    normalization: Normalization  # of inputs as that of a member, of outputs without transforms
    operators: tuple[Operator, ...]  # the members
    names: tuple[str, ...] = eqx.field(static=True)
    weights: tuple[tuple[float, ...], ...] = eqx.field(static=True)  # w, one row per member, one number per channel
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # those of the encoded inputs of the members

    @classmethod
    def of(
        cls: type[Kind], operators: Mapping[str, Operator], weights: Float[np.ndarray, "K d_s"], data: Samples
    ) -> Kind:
        """The sum with given weights; scales are those of some data."""
        return cls(
            _normalization(list(operators.values()), data), tuple(operators.values()), tuple(operators),
            tuple(map(tuple, np.asarray(weights, np.float64).tolist())), _shapes(operators, data),
            signature=next(iter(operators.values())).signature,
        )  # fmt: skip

    def with_members(self: Kind, operators: Mapping[str, Operator], data: Samples) -> Kind:
        """The same sum of other operators, such as those that were fitted to more functions."""
        changed = {"operators": tuple(operators.values()), "shapes": _shapes(operators, data)}
        return dataclasses.replace(self, names=tuple(operators), **changed)

    @property
    def is_pointwise(self) -> bool:
        return all(operator.is_pointwise for operator in self.operators)

    def encode(self, u: Input) -> Float[Array, " d"]:
        return jnp.concatenate([operator.encode(u).ravel() for operator in self.operators])

    def respond(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        members = self._members(codes, queries)
        s = sum(w * restore(operator.respond(own, queries)) for operator, own, restore, w in members)
        return self.normalization.at(queries).standardize(jnp.asarray(s))

    def _members(self, codes: Float[Array, "N d"], queries: Queries) -> Iterator[tuple[Operator, Array, Any, Array]]:
        """Each member with its encoded inputs, the function that restores units, and its weights."""
        parts = jnp.split(codes, np.cumsum([math.prod(shape) for shape in self.shapes])[:-1].tolist(), axis=1)
        for operator, part, shape, w in zip(self.operators, parts, self.shapes, self.weights, strict=True):
            restore = operator.normalization.at(queries).restore
            yield operator, part.reshape(codes.shape[0], *shape), restore, jnp.asarray(w)


class UncertainSum(Sum, Uncertain):
    """A sum with the error bars of the members that have them, taken for independent: σ² = Σ (wₖ σₖ)²."""

    def spread(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        variance = jnp.zeros(())
        for operator, own, restore, w in self._members(codes, queries):
            if isinstance(operator, Uncertain):
                found = operator.respond(own, queries), operator.spread(own, queries)
                variance += (w * jax.jvp(restore, found[:1], found[1:])[1]) ** 2
        return jnp.sqrt(variance) / self.normalization.s_scale


class Combination(Sum, Uncertain):
    """F = Σ wₖ Fₖ with wₖ ≥ 0 and Σ wₖ = 1 for each channel: a weighted mean of operators.

    Its error has the variance a Σ wₖ ((Fₖ − F)² + σₖ²): members differ where they err, and σₖ is that of members which
    know it. `calibrate` gives it bands with a guarantee, as any operator.

    Build one with `combine`.
    """

    amplitude: Float[Array, " d_s"] | float = 1.0  # a for each channel

    def spread(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        mean = self.normalization.at(queries).restore(self.respond(codes, queries))
        variance = jnp.zeros_like(mean)
        for operator, own, restore, w in self._members(codes, queries):
            s = operator.respond(own, queries)
            sigma = operator.spread(own, queries) if isinstance(operator, Uncertain) else jnp.zeros_like(s)
            s, sigma = jax.jvp(restore, (s,), (sigma,))
            variance = variance + w * ((s - mean) ** 2 + sigma**2)
        return jnp.sqrt(self.amplitude * variance) / self.normalization.s_scale


class Combined(NamedTuple):
    """A combination, and its mean relative L2 error with weights that were chosen on other functions."""

    operator: Combination
    error: float


def combine(operators: Mapping[str, Operator], validation: Samples) -> Combined:
    """The combination of operators with the least mean relative L2 error on validation functions.

    Its error is that of cross-validation: with weights chosen on every second function for the others, and the other
    way round. So it can be compared with those of the members.

    **Arguments:**

    - `operators`: by name; none of them was fitted to the validation functions.
    - `validation`: at least two functions.
    """
    if len(operators) < 2 or len(validation) < 2:
        raise ValueError(
            f"a combination needs at least two operators and two functions, got {len(operators)} and {len(validation)}"
        )
    channels = _products(operators, validation)
    errors = [
        _errors(each[start::2], convex_weights(each[1 - start :: 2]))
        for each, start in itertools.product(channels, (0, 1))
    ]
    weights = np.stack(list(map(convex_weights, channels)), axis=1)
    kept = weights.max(axis=1) > 0.0
    chosen = {name: operator for (name, operator), keep in zip(operators.items(), kept, strict=True) if keep}
    operator = Combination.of(chosen, weights[kept], validation)
    few = validation.take(jnp.arange(min(SIZED, len(validation))))
    few = few.observe(jax.random.key(0), min(SIZED_LABELS, few.y.count))
    scores = standardized_errors(operator, few.u, few.y, few.s, 1e-9)
    amplitude = (jnp.quantile(scores, 0.9, axis=(0, 1)) / NORMAL_QUANTILE) ** 2
    return Combined(dataclasses.replace(operator, amplitude=amplitude), float(np.mean(np.concatenate(errors))))


def around(base: Operator, network: Operator, validation: Samples | None, data: Samples) -> Sum:
    """B + γ N, with the γ of each channel in [0, 1] that is best on validation functions; γ = 1 without them."""
    members, ones = {"map": base, type(network).__name__: network}, np.ones((2, data.output_size))
    kind = UncertainSum if any(isinstance(each, Uncertain) for each in members.values()) else Sum
    whole = kind.of(members, ones, data)
    if validation is None:
        return whole
    # B + γ N is the mean of B and B + N with the weights 1 − γ and γ
    products = _products({"map": base, "both": whole}, validation)
    return kind.of(members, np.stack([ones[0], [convex_weights(each)[1] for each in products]]), data)


def convex_weights(products: Float[np.ndarray, "N K K"]) -> Float[np.ndarray, " K"]:
    """w ≥ 0 with Σ w = 1 for which the mean of (wᵀ G w)^½ over matrices G is the least; small weights are zero."""
    from scipy.optimize import minimize

    count = products.shape[1]
    if not len(products):
        return np.full(count, 1.0 / count)
    scaled = products / max(min(np.mean(np.diagonal(products, axis1=1, axis2=2), axis=0)), 1e-300)

    def error(w: np.ndarray) -> tuple[Any, np.ndarray]:
        roots = np.maximum(_errors(scaled, w), 1e-12)
        return roots.mean(), np.einsum("nkl,l,n->k", scaled, w, 1.0 / roots) / len(roots)

    sum_is_one = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like}
    found = minimize(
        error, np.full(count, 1.0 / count), jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * count,
        constraints=sum_is_one, options={"maxiter": 200, "ftol": 1e-9},
    ).x  # fmt: skip
    found = np.where(found > LEAST, found, 0.0)
    tried = [*np.eye(count), found / found.sum()] if np.isfinite(found).all() and found.any() else list(np.eye(count))
    return min(tried, key=lambda w: _errors(scaled, w).mean())


def _errors(products: Float[np.ndarray, "N K K"], w: Float[np.ndarray, " K"]) -> Float[np.ndarray, " N"]:
    return np.sqrt(np.maximum(np.einsum("k,nkl,l->n", w, products, w), 0.0))


def _products(operators: Mapping[str, Operator], data: Samples) -> list[Float[np.ndarray, "_ K K"]]:
    """⟨eₖ, eₗ⟩/‖s‖² for the errors of all pairs of operators, for each channel on functions that are not zero."""
    found, counted = [], []
    adapted = [(operator, adapt(operator, data)) for operator in operators.values()]
    predict = [Predictor(operator, own.y, min(BLOCK, len(data))) for operator, own in adapted]
    for parts in zip(*(blocks(own, BLOCK) for _, own in adapted), strict=True):
        errors = [each(part.u, part.y) - part.s for each, part in zip(predict, parts, strict=True)]
        e, size = np.stack(errors, dtype=np.float64), np.sum(np.asarray(parts[0].s, np.float64) ** 2, axis=1)
        counted.append(size > 0.0)
        found.append(np.einsum("knpc,lnpc->nckl", e, e) / np.where(size > 0.0, size, 1.0)[:, :, None, None])
    products, counts = np.concatenate(found), np.concatenate(counted)
    return [products[counts[:, c], c] for c in range(counts.shape[1])]


def _shapes(operators: Mapping[str, Operator], data: Samples) -> tuple[tuple[int, ...], ...]:
    """Those of the encoded inputs of operators."""
    return tuple(
        jax.eval_shape(operator.encode, jax.tree.map(lambda a: a[0], adapt(operator, data.take(jnp.arange(1))).u)).shape
        for operator in operators.values()
    )


def _normalization(operators: list[Operator], data: Samples) -> Normalization:
    """Of each input channel that of the member with the strictest transform, which refuses what any member refuses."""
    plain = Normalization.fit(data)
    known = [operator.normalization for operator in operators if operator.normalization.u_transforms]
    if not known:
        return plain
    chosen = [max(known, key=lambda each, i=i: _strictness(each.u_transforms[i])) for i in range(len(plain.u_shift))]
    return dataclasses.replace(
        plain,
        u_shift=jnp.stack([each.u_shift[i] for i, each in enumerate(chosen)]),
        u_scale=jnp.stack([each.u_scale[i] for i, each in enumerate(chosen)]),
        u_transforms=tuple(each.u_transforms[i] for i, each in enumerate(chosen)),
    )


def _strictness(transform: Transform) -> int:
    parts = transform.parts if isinstance(transform, Chain) else (transform,)
    return 1 if any(isinstance(part, Log) for part in parts) else 0
