"""Derivative-informed training: operators that are trained on values and on directional derivatives."""

from __future__ import annotations

import dataclasses
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Identity, Normalization, Queries, Records, Samples, Variable, as_numbers
from loca.models import Adaptation, Operator, Signature
from loca.parameters import count
from loca.typing import Input, Measurements, MultiInput, Numbers, values_of, with_values


class Tangent(Operator):
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
    def is_pointwise(self) -> bool:
        return self.operator.is_pointwise

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
      their mean are good directions; one or two for each function suffice, if they differ between functions.
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
    fields = du.fields if isinstance(du, MultiInput) else (du,)
    if any(isinstance(field, Measurements) for field in fields):
        raise ValueError("expected du as an array of changes of the measured values, got Measurements; pass du.u")
    values = [as_numbers(field, "du", "(N, K, m, d_u)", "(N, K, m)") for field in fields]  # pyright: ignore[reportArgumentType]
    if isinstance(du, MultiInput) and du.scalars is not None:
        values.append(as_numbers(du.scalars, "the scalars of du", "(N, K, k)"))
    expected = values_of(u)
    shapes = [(each.shape[0], *each.shape[2:]) for each in values]
    numbers = {each.shape[1] for each in values}
    if shapes != [each.shape for each in expected] or len(numbers) != 1 or 0 in numbers:
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
    return Samples(
        MultiInput(fields, scalars),
        first.y,
        jnp.concatenate([each.s for each in copies], axis=-1),
        x=places,
        domain=first.domain,
        inputs=[
            renamed(variable, k, "direction")
            for variables in (first.inputs[:end], first.inputs[end:])  # of fields, of scalars
            for k in range(len(copies))
            for variable in variables
        ],
        outputs=[renamed(variable, k, "derivative") for k in range(len(copies)) for variable in first.outputs],
        sensor_coordinates=first.sensor_coordinates * len(copies),
        query_coordinates=first.query_coordinates,
    )


def renamed(variable: Variable, number: int, what: str) -> Variable:
    """The name of a direction or derivative; number 0 is the variable itself."""
    return variable._replace(name=f"{variable.name}_{what}{number}") if number else variable


def normalization_of(operator: Operator, pairs: Samples, directions: int, weight: float) -> Normalization:
    """That of the tangent operator: F's own for s, the root mean square for derivatives, none for inputs of F."""
    own = operator.normalization
    d_s = len(own.s_shift)
    slopes = pairs.s[..., d_s:].reshape(*pairs.s.shape[:2], directions, d_s)
    size = jnp.sqrt(jnp.mean(slopes**2, axis=(0, 1, 2)))
    size = jnp.where(size > 0.0, size, 1.0) * math.sqrt(directions / weight)
    rest = jnp.zeros(directions * d_s)
    identities = (Identity(),) * (directions * d_s)
    inputs = pairs.input_size
    return Normalization(
        jnp.zeros(inputs),
        jnp.ones(inputs),
        jnp.concatenate([own.s_shift, rest]),
        jnp.concatenate([own.s_scale, jnp.tile(size, directions)]),
        (),
        own.s_transforms and own.s_transforms + identities,
    )
