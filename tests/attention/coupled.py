"""Lifted queries and nodes with scores at them, for tests of the coupling."""

import equinox as eqx
import jax
import jax.numpy as jnp

from loca.kernels import RBF, Laplacian, Matern, RationalQuadratic
from loca.nets import MLP

KERNELS = [RBF(0.5), Matern(0.5), Matern(1.5), Matern(2.5), Laplacian(0.3), RationalQuadratic(), RBF() + 2.0 * Matern()]
P, Q, L, N, D_S = 7, 11, 3, 4, 2


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


def scores(way, k, g, q_y, q_z, w):
    """g̃ of all channels as one array (d_s, P, n)."""
    return jnp.stack(way.scores(k, g, q_y, way.nodes(k, g, q_z, w)))
