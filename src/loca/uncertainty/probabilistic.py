"""Networks that predict the mean and the standard deviation of their output."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Samples, TransformNames
from loca.losses import mean_squared
from loca.models import Loss, Operator, Recipe, Signature, Uncertain, Wrapper
from loca.typing import Key

Values = Float[Array, "N P d_s"]


class Probabilistic(Uncertain, Wrapper):
    """(F, log σ)(u)(y) = two halves of the channels of one network, trained by the continuous ranked probability score.

    σ is what remains unexplained on the training functions: noise of labels, and what u does not determine. A network
    that interpolates its training data underestimates the error on others; calibrate it with `loca.calibrate`.

    Build one with `create`, for any kind of network.

    **Arguments:**

    - `normalization`: of the outputs themselves.
    - `operator`: one with twice as many channels as there are outputs.
    """

    normalization: Normalization
    operator: Operator

    @classmethod
    def create(
        cls,
        create: Callable[..., Operator],
        data: Samples,
        *,
        key: Key,
        transforms: TransformNames = None,
        **sizes: Any,
    ) -> "Probabilistic":
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
    def recipe(self) -> Recipe:
        return self.operator.recipe._replace(loss=mean_squared)

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return self._halves(codes, queries)[0]

    def spread(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return jnp.exp(self._halves(codes, queries)[1])

    def objective(
        self, loss: Loss, codes: Float[Array, "N ..."], queries: Queries, s: Float[Array, "N P d_s"], *weights: Array
    ) -> Float[Array, ""]:
        """The mean CRPS, which takes the place of the default loss; other losses do not depend on σ."""
        if loss is not mean_squared:
            raise ValueError(
                "a probabilistic operator is trained by the continuous ranked probability score, since other losses do "
                "not determine σ; call `fit` without a loss"
            )
        mean, log_std = self._halves(codes, queries)
        return mean_crps(mean, jnp.exp(log_std), s, *weights)

    def _halves(self, codes: Float[Array, "N ..."], queries: Queries) -> tuple[Array, Array]:
        mean, log_std = jnp.split(self.operator.respond(codes, queries), 2, axis=-1)
        return mean, log_std


def mean_crps(
    mean: Values, std: Values, truth: Values, weights: Float[Array, " P"] | Float[Array, "N P"] | None = None
) -> Float[Array, ""]:
    """The mean of the continuous ranked probability score, see `loca.metrics.crps`, over functions and channels.

    Its expectation is least for the mean and the standard deviation of the truth (Gneiting & Raftery 2007).
    """
    z = (truth - mean) / std
    scores = std * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / math.sqrt(math.pi))
    w = None if weights is None else jnp.broadcast_to(weights[..., None], scores.shape)
    return jnp.average(scores, weights=w)
