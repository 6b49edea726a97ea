"""Sensitivities: training with derivatives from a solver, and Sobol indices of the inputs.

Derivatives themselves are methods of every operator: `jvp`, `vjp`, `gradient` and `dy`.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from loca.data import Identity, Normalization, Queries, Records, Samples, Shared, Variable, as_input, as_numbers
from loca.domains import warn_outside
from loca.losses import mean_squared
from loca.models import Adaptation, Operator, Predictor, Recipe, Signature, Wrapper
from loca.parameters import count
from loca.rules import sobol_points
from loca.typing import Input, Key, MultiInput, Numbers, has_own_sensors, values_of, with_values

__all__ = ["SobolIndices", "Tangent", "sobol", "tangents"]


class Tangent(Wrapper):
    """(u, du₁ … du_K) ↦ (F(u), DF(u)du₁ … DF(u)du_K): an operator F together with its derivatives in K directions.

    It is an operator as any other: its inputs are u and the directions, its outputs s and the derivatives. So `fit`
    trains F on values and derivatives, with every option it has. Derivatives are those of F in the units of the data.

    Build it with `tangents`; after training, `operator` is the model.

    **Arguments:**

    - `normalization`: of values and derivatives.
    - `operator`: F.
    - `directions`: K.
    - `is_several`: whether u is a `MultiInput`.
    """

    normalization: Normalization
    operator: Operator
    directions: int = eqx.field(static=True)
    is_several: bool = eqx.field(static=True)

    @property
    def recipe(self) -> Recipe:
        return self.operator.recipe._replace(loss=mean_squared)

    def encode(self, u: Input) -> Float[Array, "copies ..."]:
        """The code of u, and its derivatives in all directions."""
        parts = self._separate(u)
        first, *others = map(values_of, parts)
        z, linear = jax.linearize(lambda values: self.operator.encode(with_values(parts[0], values)), first)
        changes = jax.vmap(linear)(jax.tree.map(lambda *each: jnp.stack(each), *others))
        return jnp.concatenate([z[None], changes])

    def respond(self, codes: Float[Array, "N copies ..."], queries: Queries) -> Float[Array, "N P d"]:
        restore = self.operator.normalization.at(queries).restore

        def values(z: Float[Array, "N ..."]) -> tuple[Array, Array]:
            standardized = self.operator.respond(z, queries)
            return restore(standardized), standardized

        def along(change: Float[Array, "N ..."]) -> tuple[Array, Array]:
            _, ds, standardized = jax.jvp(values, (codes[:, 0],), (change,), has_aux=True)
            return ds, standardized

        with jax.default_matmul_precision("highest"):  # rounded products have no forward derivative
            ds, s = jax.vmap(along, in_axes=1, out_axes=(2, None))(codes[:, 1:])
        ds = ds.reshape(*s.shape[:2], -1)
        return jnp.concatenate([s, ds / self.normalization.s_scale[s.shape[-1] :]], axis=-1)

    def _separate(self, u: Input) -> list[Input]:
        """u and the directions, each in the form of an input of F."""
        assert isinstance(u, MultiInput)
        copies = 1 + self.directions
        if not self.is_several:
            return list(u.fields)
        size = len(u.fields) // copies
        scalars = [None] * copies if u.scalars is None else jnp.split(u.scalars, copies, axis=-1)
        return [MultiInput(u.fields[i * size : (i + 1) * size], scalars[i]) for i in range(copies)]


def tangents(
    operator: Operator, data: Samples, du: Numbers | MultiInput, ds: Numbers, *, weight: float = 1.0
) -> tuple[Tangent, Samples]:
    """An operator and data for training on values and on derivatives, which a solver with tangents or adjoints gives.

    ```python
    tangent, pairs = loca.sensitivity.tangents(model, train, du, ds)
    tangent, history = loca.fit(tangent, pairs)
    model = tangent.operator
    ```

    With the loss `mean_squared` training minimizes, up to the factor 1/(1 + K),

        mean (s̃ − F̃)² + weight · mean (ds − DF(u)du)²/(mean ds²),

    where s̃ are standardized values and every mean is one for each output channel: errors of the derivatives are
    relative to their root mean square.

    **Arguments:**

    - `operator`: a model to train, such as from `LOCA.create(data, key=key)`.
    - `data`: N pairs (u, s).
    - `du`: K directions for each function, shape (N, K, m, d_u), or (N, K, m) for one channel; with several inputs a
      `MultiInput` of such arrays, whose scalars have shape (N, K, k). Draws from the distribution of the inputs minus
      their mean are good directions.
    - `ds`: the derivatives at the labels of the data, shape (N, K, P, d_s), or (N, K, P) for one channel.
    - `weight`: of the derivatives.
    """
    if isinstance(data, Records):
        raise TypeError(f"expected training data in memory, got {data!r}; load the pairs: `records.load()`")
    if type(operator).objective is not Operator.objective:
        raise ValueError(
            f"{type(operator).__name__} has an objective of its own, which knows no derivatives; pass a single network"
        )
    if not count(operator):
        raise ValueError(f"{type(operator).__name__} has no parameters that training changes; pass a network")
    if not 0.0 < weight < math.inf:
        raise ValueError(f"expected a positive weight of the derivatives, got {weight}")
    changes = directions_of(du, data.u)
    K = changes[0].shape[1]
    slopes = as_numbers(ds, "ds", "(N, K, P, d_s)", "(N, K, P)")
    N, P, d_s = data.s.shape
    if slopes.shape != (N, K, P, d_s):
        raise ValueError(
            f"ds has shape {slopes.shape}, but the data has {N} functions with {P} labels of {d_s} channels, and du "
            f"has {K} directions; pass derivatives of shape ({N}, {K}, {P}, {d_s})"
        )
    adaptation = Adaptation.of(operator, data)
    copies = [
        dataclasses.replace(data, u=with_values(data.u, [each[:, k] for each in changes]), s=slopes[:, k])
        for k in range(K)
    ]
    adapted = [adaptation.apply(each) for each in (data, *copies)]
    operator.normalization.check_input(adapted[0].u, operator.inputs)
    pairs, is_several = joined(adapted), isinstance(adapted[0].u, MultiInput)
    normalization = normalization_of(operator, pairs, K, weight)
    return Tangent(normalization, operator, K, is_several, signature=Signature.of(pairs)), pairs


def directions_of(du: Numbers | MultiInput, u: Input) -> tuple[Float[Array, "N K ..."], ...]:
    """The values of directions in the order of `values_of`; raises unless there is one for each value of u."""
    if has_own_sensors(du):
        raise ValueError("expected du as an array of changes of the measured values, got Measurements; pass du.u")
    fields = du.fields if isinstance(du, MultiInput) else (du,)
    values = [as_numbers(field, "du", "(N, K, m, d_u)", "(N, K, m)") for field in fields]  # pyright: ignore[reportArgumentType]
    if isinstance(du, MultiInput) and du.scalars is not None:
        values.append(as_numbers(du.scalars, "the scalars of du", "(N, K, k)"))
    expected, K = values_of(u), values[0].shape[1]
    if [each.shape for each in values] != [(len(each), K, *each.shape[1:]) for each in expected] or K == 0:
        given, wanted = (", ".join(str(each.shape) for each in part) for part in (values, expected))
        raise ValueError(
            f"du has shape {given}, but u has {wanted}; pass K directions for each function, with one value for each "
            "value of u: (N, K, m, d_u)"
        )
    return tuple(each.astype(like.dtype) for each, like in zip(values, expected, strict=True))


def joined(copies: list[Samples]) -> Samples:
    """Data of the tangent operator, from that of F and one with directions and derivatives for each direction."""
    first = copies[0]
    fields, places = zip(*itertools.chain.from_iterable(each.fields for each in copies), strict=True)
    scalars = None
    if isinstance(first.u, MultiInput) and first.u.scalars is not None:
        scalars = jnp.concatenate([values_of(each.u)[-1] for each in copies], axis=-1)
    end = first.input_size - (0 if scalars is None else scalars.shape[-1] // len(copies))

    def renamed(variables: Sequence[Variable], what: str) -> list[Variable]:
        tails = ["", *(f"_{what}{k}" for k in range(1, len(copies)))]
        return [variable._replace(name=variable.name + tail) for tail in tails for variable in variables]

    return Samples(
        MultiInput(fields, scalars),
        first.y,
        jnp.concatenate([each.s for each in copies], axis=-1),
        x=places,
        domain=first.domain,
        inputs=[*renamed(first.inputs[:end], "direction"), *renamed(first.inputs[end:], "direction")],  # scalars last
        outputs=renamed(first.outputs, "derivative"),
        sensor_coordinates=first.sensor_coordinates * len(copies),
        query_coordinates=first.query_coordinates,
    )


def normalization_of(operator: Operator, pairs: Samples, directions: int, weight: float) -> Normalization:
    """That of the tangent operator: F's own for s, the root mean square for derivatives, none for inputs of F."""
    own, d_s = operator.normalization, len(operator.outputs)
    slopes = pairs.s[..., d_s:].reshape(*pairs.s.shape[:2], directions, d_s)
    size = jnp.sqrt(jnp.mean(slopes**2, axis=(0, 1, 2)))
    size = jnp.tile(jnp.where(size > 0.0, size, 1.0) * math.sqrt(directions / weight), directions)
    return dataclasses.replace(
        Normalization.identity(pairs.input_size, pairs.output_size),
        s_shift=jnp.concatenate([own.s_shift, jnp.zeros_like(size)]),
        s_scale=jnp.concatenate([own.s_scale, size]),
        s_transforms=own.s_transforms and own.s_transforms + (Identity(),) * len(size),
    )


BLOCK = 256  # functions at a time


class SobolIndices(NamedTuple):
    """Shares of the variance of F(u)(y) at every query, for each component of the input.

    **Arguments:**

    - `first`: S_k = Var E[F | ξ_k]/Var F, what component k explains alone.
    - `total`: T_k = E Var[F | all but ξ_k]/Var F, what would remain unexplained without it, interactions included.
    - `variance`: Var F, in the units of the data. Where it is 0, so are the indices.
    """

    first: Float[np.ndarray, "k P d_s"]
    total: Float[np.ndarray, "k P d_s"]
    variance: Float[np.ndarray, "P d_s"]

    def overall(
        self, weights: Float[Array | np.ndarray, " P"] | None = None
    ) -> tuple[Float[np.ndarray, "k d_s"], Float[np.ndarray, "k d_s"]]:
        """First-order and total indices of the output function: shares of the variance integrated over y.

        **Arguments:**

        - `weights`: of the queries, such as `loca.domains.area_weights(domain, y)`; equal unless given.
        """
        w = np.ones(len(self.variance)) if weights is None else np.asarray(weights, np.float64)
        share = w[:, None] * self.variance
        total = share.sum(axis=0)
        share = share / np.where(total > 0.0, total, 1.0)
        return np.sum(share * self.first, axis=1), np.sum(share * self.total, axis=1)


def sobol(
    operator: Operator,
    inputs: Callable[[Float[Array, " k"]], Input],
    y: Numbers,
    *,
    distributions: Sequence[Any] | None = None,
    count: int = 1024,
    key: Key,
) -> SobolIndices:
    """Sobol indices of F(u(ξ))(y) for independent components ξ of the input.

    S by the estimator of Saltelli et al. (2010), T by that of Jansen (1999), with a scrambled Sobol sequence. Their
    errors fall somewhat faster than 1/√count; compare two keys. Estimates of small indices may be negative. Indices are
    those of the operator: where it is wrong, so are they.

    **Arguments:**

    - `operator`: any.
    - `inputs`: ξ ↦ u, a `loca.inversion.Prior`, such as that of principal components of the training inputs, or a
      function of your own that JAX can map, from k numbers to an input.
    - `y`: queries (P, d_y), or (P,) for one coordinate.
    - `distributions`: of each component, with a method `ppf` for quantiles, such as `scipy.stats.uniform(0, 1)`;
      standard normal unless given, for as many components as `inputs.size`.
    - `count`: n, a power of two. The operator is evaluated for n (k + 2) functions.
    - `key`: of the random numbers.
    """
    if distributions is None:
        if not isinstance(size := getattr(inputs, "size", None), int):
            raise ValueError("expected a distribution for each component; pass distributions=[scipy.stats.norm(), …]")
        distributions = [scipy.stats.norm()] * size
    k = len(distributions)
    uniform = sobol_points(2 * k, count, key, least=2)
    xi = np.stack([distributions[i % k].ppf(uniform[:, i]) for i in range(2 * k)], axis=1)
    a, b = xi[:, :k], xi[:, k:]
    queries = Shared(as_numbers(y, "y", "(P, d_y)", "(P,)"))
    if operator.signature is not None:
        warn_outside(operator.signature.domain, queries.y, operator.signature.query_coordinate_names)
    predictor, inputs_of = Predictor(operator, queries, min(count, BLOCK)), eqx.filter_jit(eqx.filter_vmap(inputs))

    def outputs(xi: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n P d_s"]:
        blocks = [xi[i : i + BLOCK] for i in range(0, count, BLOCK)]
        found = [predictor(as_input(inputs_of(jnp.asarray(x, float)), many=True), queries) for x in blocks]
        return np.concatenate(found, dtype=np.float64)

    f_a, f_b = outputs(a), outputs(b)
    mean = 0.5 * (f_a + f_b).mean(axis=0)
    f_a, f_b = f_a - mean, f_b - mean
    variance = 0.5 * np.mean(f_a**2 + f_b**2, axis=0)
    first, total = [], []
    for i in range(k):
        changed = a.copy()
        changed[:, i] = b[:, i]
        f_ab = outputs(changed) - mean
        first.append(np.mean(f_b * (f_ab - f_a), axis=0))
        total.append(0.5 * np.mean((f_ab - f_a) ** 2, axis=0))
    scale = np.where(variance > 0.0, variance, 1.0)
    return SobolIndices(np.stack(first) / scale, np.stack(total) / scale, variance)
