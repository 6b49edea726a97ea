import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.domains import Box
from loca.encoders import Projection
from loca.typing import Measurements

BOX = Box((-1.0, 2.0), (3.0, 5.0))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def points(rng, count, domain=BOX):
    return jnp.asarray(rng.uniform(domain.low, domain.high, (count, domain.dimension)), dtype=float)


def noise(rng, *shape):
    return jnp.asarray(rng.standard_normal(shape), dtype=float)


def everywhere(x, u):
    return Measurements(u, x, jnp.ones(len(x), dtype=bool))


@eqx.filter_jit
def code(projection, u):
    return projection(u)


@eqx.filter_jit
def function(projection, c, x):
    """Σ_k c_k b_k(x)."""
    return projection.basis(x) @ c.reshape(projection.channels, -1).T


def random_function(rng, projection):
    """A function of the span, with its coefficients."""
    c = noise(rng, projection.channels, *projection.modes)
    return c, lambda x: function(projection, c, x)


def test_the_basis_is_orthonormal(x64):
    """Gauss–Legendre is exact to machine precision for these cosines."""
    z, w = np.polynomial.legendre.leggauss(40)
    t = jnp.asarray((z + 1) / 2)
    x = BOX.from_unit(jnp.stack(jnp.meshgrid(t, t, indexing="ij"), axis=-1).reshape(-1, 2))
    b = np.asarray(jax.jit(Projection.create(BOX, (4, 3)).basis)(x))
    gram = b.T @ (np.outer(w, w).reshape(-1, 1) / 4 * b)
    np.testing.assert_allclose(gram, np.eye(12), atol=1e-10)


def test_exact_on_its_span_with_other_sensors_for_every_function(rng):
    projection = Projection.create(BOX, (5, 4), channels=2)
    N, m = 8, 100
    x = points(rng, N * m).reshape(N, m, 2)
    c = noise(rng, N, 2, 5, 4)
    u = jax.vmap(lambda c, x: function(projection, c, x))(c, x)
    codes = jax.jit(jax.vmap(projection))(Measurements(u, x, jnp.ones((N, m), dtype=bool)))
    np.testing.assert_allclose(codes, c.reshape(N, -1), atol=2e-5)


def test_masked_rows_have_no_influence(rng):
    projection = Projection.create(BOX, 3)
    _, u = random_function(rng, projection)
    x = points(rng, 40)
    expected = code(projection, everywhere(x, u(x)))
    mask = jnp.arange(47) < 40

    @jax.jit
    def with_gradient(u, x):
        c, pullback = jax.vjp(lambda u, x: projection(Measurements(u, x, mask)), u, x)
        return c, *pullback(jnp.ones_like(c))

    for garbage in (1e6, jnp.nan):
        c, *gradients = with_gradient(*(jnp.pad(a, ((0, 7), (0, 0)), constant_values=garbage) for a in (u(x), x)))
        np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-6)
        for gradient in gradients:
            assert jnp.all(jnp.isfinite(gradient))
            assert jnp.all(gradient[40:] == 0)


def test_too_few_sensors_give_a_modest_function_through_the_data(rng):
    """Four sensors, sixteen modes: finite, no larger than the data ask for, and the data are met."""
    projection = Projection.create(Box.unit(1), 16)
    x = jnp.array([[0.1], [0.3], [0.6], [0.9]])
    u = noise(rng, 4, 1)
    c = code(projection, everywhere(x, u))
    b = np.asarray(jax.jit(lambda x: projection.basis(x))(x))
    np.testing.assert_allclose(b @ c, u[:, 0], atol=1e-4)
    smallest = np.linalg.lstsq(b, np.asarray(u[:, 0]))[0]
    np.testing.assert_allclose(c, smallest, atol=2e-3)
    nowhere = Measurements(u, x, jnp.zeros(4, dtype=bool))
    np.testing.assert_array_equal(code(projection, nowhere), 0)


def test_crowded_sensors_stay_finite_in_single_precision(rng):
    """All sensors in a hundredth of the interval: hopeless, but no NaN and no explosion."""
    projection = Projection.create(Box.unit(1), 64)
    x = 0.01 * points(rng, 300, Box.unit(1))
    c = code(projection, everywhere(x, jnp.ones((300, 1))))
    assert jnp.all(jnp.isfinite(c))
    assert jnp.linalg.norm(c) < 2


def test_gradients_are_derivatives_in_values_and_locations(x64, rng, check_derivatives):
    projection = Projection.create(BOX, (3, 2), channels=2)
    u_and_x = jnp.concatenate([noise(rng, 20, 2), points(rng, 20)], axis=1)
    check_derivatives(lambda u_x: projection(everywhere(u_x[:, 2:], u_x[:, :2])), u_and_x)


def test_what_cannot_be_encoded_is_refused(rng):
    projection = Projection.create(BOX, 3)
    x = points(rng, 5)
    with pytest.raises(ValueError, match=r"needs the locations of values, got values of shape \(5, 1\)"):
        projection(jnp.zeros((5, 1)))
    with pytest.raises(ValueError, match=r"u of shape \(m, 1\), got \(5, 2\)"):
        projection(everywhere(x, jnp.zeros((5, 2))))
