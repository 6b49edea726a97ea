import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def derivatives():
    """For a function f of one array: (u, du, w) ↦ its slope along du at u, and the gradient of w·f at u."""

    def compiled(f):
        @jax.jit
        def both_modes(u, du, w):
            return jax.jvp(f, (u,), (du,))[1], jax.vjp(f, u)[1](w)[0]

        return both_modes

    return compiled


@pytest.fixture
def check_derivatives(derivatives):
    """Forward mode equals central differences, and reverse mode is the transpose of forward mode; in 64 bits."""

    def check(f, u, step=1e-5, tolerance=1e-6):
        rng = np.random.default_rng(0)
        f = jax.jit(f)
        du, w = jnp.asarray(rng.standard_normal(u.shape)), jnp.asarray(rng.standard_normal(f(u).shape))
        slope, gradient = derivatives(f)(u, du, w)
        np.testing.assert_allclose(
            slope, (f(u + step * du) - f(u - step * du)) / (2 * step), rtol=tolerance, atol=tolerance
        )
        np.testing.assert_allclose(jnp.vdot(gradient, du), jnp.vdot(w, slope), rtol=1e-10)

    return check
