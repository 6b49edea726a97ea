import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.encoders import Fourier

SHAPES = [((16,), (5,)), ((8, 9), (3, 4)), ((6, 7, 5), (2, 3, 2))]


def grid(shape):
    """Points of a periodic grid on the unit cube, shape (m, d)."""
    axes = np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij")
    return np.stack([a.reshape(-1) for a in axes], axis=1)


def band_limited(rng, modes):
    """A random real function with frequencies |kᵢ| < Kᵢ, and its complex coefficients by frequency."""
    ks = np.stack([a.reshape(-1) for a in np.meshgrid(*(np.arange(1 - K, K) for K in modes), indexing="ij")], axis=1)
    c = rng.standard_normal(len(ks)) + 1j * rng.standard_normal(len(ks))
    c = (c + np.conj(c[::-1])) / 2  # the grid of frequencies is symmetric, so reversing it is k → −k
    coefficients = {tuple(int(i) for i in k): value for k, value in zip(ks, c, strict=True)}
    return lambda x: np.real(np.exp(2j * np.pi * x @ ks.T) @ c), coefficients


@pytest.mark.parametrize(("shape", "modes"), SHAPES)
def test_coefficients_are_recovered_exactly(x64, shape, modes):
    u, coefficients = band_limited(np.random.default_rng(0), modes)
    encoder = Fourier.create(shape, modes)
    code = encoder(jnp.asarray(u(grid(shape))[:, None]))
    expected = np.array([coefficients[tuple(k)] for k in encoder.frequencies.tolist()])
    half = len(expected)
    np.testing.assert_allclose(code[0], expected[0].real, atol=1e-12)
    np.testing.assert_allclose(code[1:half], np.sqrt(2) * expected[1:].real, atol=1e-12)
    np.testing.assert_allclose(code[half:], np.sqrt(2) * expected[1:].imag, atol=1e-12)


@pytest.mark.parametrize(("shape", "modes"), SHAPES)
def test_nothing_is_stored_twice(x64, shape, modes):
    """The rows of the linear map are orthonormal in the mean square: Πᵢ(2Kᵢ − 1) independent numbers, an isometry."""
    encoder = Fourier.create(shape, modes)
    m = int(np.prod(shape))
    matrix = jax.jit(jax.jacobian(encoder))(jnp.zeros((m, 1)))[:, :, 0]
    assert len(matrix) == encoder.size == np.prod([2 * K - 1 for K in modes])
    np.testing.assert_allclose(m * matrix @ matrix.T, np.eye(encoder.size), atol=1e-12)


def test_too_many_modes_are_refused():
    with pytest.raises(ValueError, match=r"resolves at most \(4, 5\) modes from 0 up, got modes=\(5, 5\)"):
        Fourier.create((8, 9), 5)
