"""Networks that predict the mean and the standard deviation of their output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Samples, TransformNames
from loca.losses import crps, mean_squared
from loca.models import Operator, Signature, Uncertain, normal_radius
from loca.typing import Input, Key


class Probabilistic(Uncertain):
    """(F, log σ)(u)(y) = two halves of the channels of one network, trained by the continuous ranked probability score.

    σ is what remains unexplained on the training functions: noise of labels, and what u does not determine. A network
    that interpolates its training data underestimates the error on others; calibrate it with `loca.calibrate`.

    Build one with `create`, for any kind of network.

    **Arguments:**

    - `normalization`: of the outputs themselves.
    - `network`: an operator with twice as many channels as there are outputs.
    """

    normalization: Normalization
    network: Operator

    @classmethod
    def create(
        cls,
        create: Callable[..., Operator],
        data: Samples,
        *,
        key: Key,
        transforms: TransformNames = None,
        **sizes: Any,
    ) -> Probabilistic:
        """An untrained model: `Probabilistic.create(LOCA.create, data, key=key)`.

        **Arguments:**

        - `create`: makes the network from data, `key` and the other arguments.
        - `data`: training samples.
        - `key`: random key for the initial weights.
        - `transforms`: of variables, as for the network.
        """
        logs = [variable._replace(name=f"log_std_{variable.name}", unit="") for variable in data.outputs]
        doubled = dataclasses.replace(data, s=jnp.concatenate([data.s, data.s], -1), outputs=[*data.outputs, *logs])
        network = create(doubled, key=key, transforms=transforms, **sizes)
        return cls(Normalization.fit(data, transforms), network, signature=Signature.of(data))

    @property
    def is_pointwise(self) -> bool:
        return self.network.is_pointwise

    def encode(self, u: Input) -> Float[Array, ...]:
        return self.network.encode(u)

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return self._halves(codes, queries)[0]

    def spread(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return jnp.exp(self._halves(codes, queries)[1])

    def radius(self, level: float, *, simultaneous: bool = False) -> Float[Array, " d_s"]:
        if simultaneous:
            raise ValueError(
                "a probabilistic operator knows its error at single queries; for simultaneous bands calibrate it on "
                "held-out functions: loca.calibrate(operator, held)"
            )
        return normal_radius(level, len(self.outputs))

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        """F + ε σ with a normal ε for each draw and channel: errors at different queries are fully correlated."""
        epsilons = jax.random.normal(key, (count, len(self.outputs)))
        return tuple(Offset(self.normalization, self, each, signature=self.signature) for each in epsilons)

    def objective(
        self,
        loss: Callable[..., Float[Array, ""]],
        codes: Float[Array, "N ..."],
        queries: Queries,
        s: Float[Array, "N P d_s"],
        *weights: Array,
    ) -> Float[Array, ""]:
        """`loca.losses.crps`, which takes the place of the default loss; other losses do not depend on σ."""
        if loss is not mean_squared:
            raise ValueError(
                "a probabilistic operator is trained by `loca.losses.crps`, since other losses do not determine σ; "
                "call `fit` without a loss"
            )
        return crps(*self._halves(codes, queries), s, *weights)

    def _halves(self, codes: Float[Array, "N ..."], queries: Queries) -> tuple[Array, Array]:
        mean, log_std = jnp.split(self.network.respond(codes, queries), 2, axis=-1)
        return mean, log_std


class Offset(Operator):
    """F + ε σ in standardized units: a draw of an operator that knows its error at single queries.

    **Arguments:**

    - `normalization`: that of the operator.
    - `operator`: knows F and σ.
    - `epsilon`: one number for each channel.
    """

    normalization: Normalization
    operator: Uncertain
    epsilon: Float[Array, " d_s"]

    def encode(self, u: Input) -> Float[Array, ...]:
        return self.operator.encode(u)

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return self.operator.respond(codes, queries) + self.epsilon * self.operator.spread(codes, queries)
