"""Kernel-coupled attention: the paper's propositions, and methods of evaluation compared with the dense one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coupled import L, each_kernel, example, scores
from hypothesis import given, settings
from hypothesis import strategies as st

from loca.attention import Blocked, Dense, Nystrom, coupling
from loca.domains import Box
from loca.kernels import RBF
from loca.rules import GaussLegendre


@each_kernel
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.01, 5.0))
def test_kappa_is_symmetric_and_positive_semidefinite(k, seed, scale):
    """Proposition 4.2, for queries that are nodes."""
    with jax.enable_x64(True):
        g, _, q_z, w = example(jax.random.key(seed), scale)
        kappa = coupling(k, q_z, Dense().nodes(k, g, q_z, w))
        assert np.allclose(kappa, kappa.T, rtol=1e-9)
        assert np.linalg.eigvalsh(kappa).min() > -1e-9 * kappa.max()


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize(("method", "rtol"), [(Dense(), 1e-12), (Nystrom(5), 1e-9)], ids=["dense", "nystrom"])
def test_amplitude_and_a_common_factor_of_the_weights_cancel(k, method, rtol, getkey):
    with jax.enable_x64(True):
        g, q_y, q_z, w = example(getkey())
        expected = scores(method, k, g, q_y, q_z, w)
        assert jnp.allclose(scores(method, 37.0 * k, g, q_y, q_z, w), expected, rtol=rtol)
        assert jnp.allclose(scores(method, k, g, q_y, q_z, 37.0 * w), expected, rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "atol"), [(Dense(), 1e-9), (Nystrom(1), 1e-6)], ids=["dense", "nystrom"])
def test_a_flat_kernel_averages_the_proposals(method, atol):
    """Closed form: k → 1 gives κ = 1/∫1, so g̃ is the average of g over the domain; one landmark is then enough."""
    with jax.enable_x64(True):
        rule = GaussLegendre(Box((0.0, 1.0), (2.0, 4.0)), 4)
        g_tilde = scores(method, RBF(1e-14), lambda z: (z, z**2), rule.z[:3], rule.z, rule.w)
        assert jnp.allclose(g_tilde[0], jnp.array([1.0, 2.5]), atol=atol)
        assert jnp.allclose(g_tilde[1], jnp.array([4.0 / 3.0, 7.0]), atol=atol)


def test_a_local_kernel_leaves_the_proposals_alone(getkey):
    """As k concentrates on single nodes, κ becomes 1/w on the diagonal and coupling the identity."""
    with jax.enable_x64(True):
        g, _, q_z, w = example(getkey())
        k, method = RBF(1e6), Dense()
        assert jnp.allclose(scores(method, k, g, q_z, q_z, w), jnp.stack(g(q_z)), rtol=1e-9)


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize("block", [4, *(pytest.param(block, marks=pytest.mark.full) for block in (11, 64))])
def test_blocked_equals_dense(k, block, getkey):
    """Values and gradients, whether or not the blocks divide the nodes."""
    with jax.enable_x64(True):
        g, q_y, q_z, w = example(getkey())

        def total(parts, method):
            k, g, q_y, q_z = parts
            return jnp.sum(jnp.sin(scores(method, k, g, q_y, q_z, w)))

        value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(total))((k, g, q_y, q_z), Dense())
        value_, gradient_ = eqx.filter_jit(eqx.filter_value_and_grad(total))((k, g, q_y, q_z), Blocked(block))
        assert float(value) == pytest.approx(float(value_), rel=1e-12)
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(gradient_), strict=True):
            assert jnp.allclose(a, b, atol=1e-11)


def test_a_query_out_of_reach_is_finite_with_finite_gradient():
    """k underflows to zero in single precision: κ = 0 is the limit, not 0/0."""
    k, method = RBF(1.0), Dense()
    g, _, q_z, w = example(jax.random.key(0))
    far = jnp.full((1, L), 1e3)
    value, gradient = jax.jit(jax.value_and_grad(lambda q: jnp.sum(scores(method, k, g, q, q_z, w))))(far)
    assert value == 0.0
    assert jnp.isfinite(gradient).all()
