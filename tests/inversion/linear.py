"""A linear operator, and the posterior of its input in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization, Samples, Shared
from loca.domains import Box
from loca.models import Operator, Signature
from loca.problems import Antiderivative

SENSORS = 41
PROBLEM = Antiderivative(length=0.5, sensors=SENSORS, queries=21)


class Integrals(Operator):
    """F(u)(y) = (∫₀ʸ u, 2 ∫₀ʸ u − ∫₀¹ u) by the trapezoid rule: exact for u that is linear between its sensors."""

    normalization: Normalization
    x: Float[Array, " m"]

    def encode(self, u):
        return u[:, 0]

    def respond(self, codes, queries):
        y = queries.locations(len(codes))[..., 0]
        first = jax.vmap(lambda u, y: weights(self.x, y) @ u)(codes, y)
        total = codes @ weights(self.x, jnp.ones(1))[0]
        return jnp.stack([first, 2.0 * first - total[:, None]], axis=-1)[..., : self.normalization.s_shift.shape[0]]


def weights(x, y):
    """The weights of the values at the sensors x in ∫₀ʸ u, for many y."""
    step = x[1] - x[0]
    part = jnp.clip((y[:, None] - x[:-1]) / step, 0.0, 1.0)  # of each interval
    right = 0.5 * part**2 * step
    left = part * step - right
    return jnp.pad(left, ((0, 0), (0, 1))) + jnp.pad(right, ((0, 0), (1, 0)))


def operator(train, channels=1):
    outputs = train.outputs * channels if channels == 1 else [train.outputs[0], train.outputs[0]._replace(name="other")]
    data = Samples(train.u, train.y, jnp.repeat(train.s, channels, axis=-1), x=train.x, outputs=outputs,
                   inputs=train.inputs, domain=Box.unit(1))  # fmt: skip
    normalization = Normalization.identity(1, channels)
    return Integrals(normalization, jnp.linspace(0.0, 1.0, SENSORS), signature=Signature.of(data))


def matrix(model, y):
    """A with F(u)(y) = A u, all channels of each location in turn."""
    units = jnp.eye(SENSORS)[..., None]
    return np.asarray(model.predict(units, Shared(jnp.asarray(y))), np.float64).reshape(SENSORS, -1).T


def closed_form(model, y, s, covariance, u):
    """Mean and standard deviation of u given s = A u + noise, if u is normal with the moments of given functions."""
    u = np.asarray(u, np.float64)[..., 0]
    mean, prior, A = u.mean(axis=0), np.cov(u.T), matrix(model, y)
    gain = prior @ A.T @ np.linalg.inv(A @ prior @ A.T + covariance)
    posterior = prior - gain @ A @ prior
    return mean + gain @ (np.ravel(s) - A @ mean), np.sqrt(np.diag(posterior))
