"""Lifted queries and nodes with scores at them, for tests of the coupling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from loca.kernels import RBF, Matern
from loca.nets import MLP

# a smooth kernel, and a combination with one that has a kink where points coincide
KERNELS = [RBF(0.5), RBF() + 2.0 * Matern(0.5)]
MORE_KERNELS = [Matern(0.5), Matern(1.5), Matern(2.5)]
P, Q, L, N, D_S = 7, 11, 3, 4, 2

each_kernel = pytest.mark.parametrize(
    "k",
    [*KERNELS, *(pytest.param(k, marks=pytest.mark.full) for k in MORE_KERNELS)],
    ids=lambda k: type(k).__name__,
)


class Scores(eqx.Module):
    """g, as a model holds it."""

    net: MLP

    def __call__(self, q_z):
        return tuple(jnp.split(self.net(q_z), D_S, axis=-1))


def example(key, scale=1.0):
    """g, lifted queries, lifted nodes and their weights."""
    y_key, z_key, w_key, g_key = jax.random.split(key, 4)
    q_y, q_z = scale * jax.random.normal(y_key, (P, L)), scale * jax.random.normal(z_key, (Q, L))
    w = jax.random.uniform(w_key, (Q,), minval=0.1)
    return Scores(MLP((L, 5, D_S * N), key=g_key)), q_y, q_z, w


def scores(method, k, g, q_y, q_z, w):
    """g̃ of all channels as one array (d_s, P, n)."""
    return jnp.stack(method.scores(k, g, q_y, method.nodes(k, g, q_z, w)))
