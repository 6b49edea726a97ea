"""Kernels: closed forms, symmetry, positive definiteness, limits, gradients."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca.kernels import RBF, Matern

KERNELS = {
    "rbf": RBF(0.7),
    "matern-1/2": Matern(0.5, 0.6),
    "matern-3/2": Matern(1.5, 0.6),
    "matern-5/2": Matern(2.5, 0.6),
    "sum": RBF(0.5) + 0.3 * Matern(1.5),
    "product": RBF(0.2) * Matern(2.5, 0.3),
}


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e2))
def test_symmetric_positive_semidefinite_and_positive(name, seed, scale):
    z = scale * jax.random.normal(jax.random.key(seed), (12, 3))
    k_zz = KERNELS[name].matrix(z, z)
    assert np.allclose(k_zz, k_zz.T, atol=1e-6)
    assert np.linalg.eigvalsh(np.asarray(k_zz, float)).min() > -1e-5 * k_zz.max()
    assert (k_zz >= 0).all()


def test_closed_forms():
    a, b = jnp.array([1.0, 2.0]), jnp.array([1.5, 0.0])
    r2 = 4.25
    r = math.sqrt(r2)
    assert RBF(0.3)(a, b) == pytest.approx(math.exp(-0.3 * r2), rel=1e-5)
    assert Matern(0.5, 0.3)(a, b) == pytest.approx(math.exp(-0.3 * r), rel=1e-5)
    t = math.sqrt(3) * 0.3 * r
    assert Matern(1.5, 0.3)(a, b) == pytest.approx((1 + t) * math.exp(-t), rel=1e-5)
    t = math.sqrt(5) * 0.3 * r
    assert Matern(2.5, 0.3)(a, b) == pytest.approx((1 + t + t * t / 3) * math.exp(-t), rel=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_finite_where_points_coincide(name, getkey):
    z = jax.random.normal(getkey(), (4, 3)).at[1].set(0.5).at[2].set(0.5)
    total = lambda k, z: jnp.sum(jnp.sin(k.matrix(z, z)))  # noqa: E731
    gradients = eqx.filter_jit(eqx.filter_grad(lambda kz: total(*kz)))((KERNELS[name], z))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


def test_distances_survive_a_far_origin():
    """‖a‖² + ‖b‖² − 2a·b loses all digits far from the origin unless the points are centered first."""
    z = np.random.default_rng(0).uniform(1000.0, 1001.0, (8, 2)).astype(np.float32)  # round ones have exact squares
    r2 = np.sum((z[:, None].astype(np.float64) - z) ** 2, axis=-1)
    np.testing.assert_allclose(RBF(1.0).matrix(jnp.asarray(z), jnp.asarray(z)), np.exp(-r2), rtol=1e-4)
