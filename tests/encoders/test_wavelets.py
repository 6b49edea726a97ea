import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.encoders import Wavelet
from loca.encoders.wavelet import daubechies

ORTHONORMAL = [((16,), 3, 1), ((32,), 2, 4), ((8,), 2, 10), ((8, 4), 2, 2)]


def matrix(encoder, m):
    return jax.jit(jax.jacobian(encoder))(jnp.zeros((m, 1)))[:, :, 0]


def test_one_moment_is_haar():
    np.testing.assert_allclose(daubechies(1), np.array([1, 1]) / np.sqrt(2), rtol=1e-15)


def test_two_moments_are_daubechies_closed_form():
    r = np.sqrt(3)
    np.testing.assert_allclose(daubechies(2), np.array([1 + r, 3 + r, 3 - r, 1 - r]) / (4 * np.sqrt(2)), rtol=1e-14)


@pytest.mark.parametrize("moments", range(1, 11))
def test_filters_are_orthonormal_to_their_even_shifts_and_see_no_polynomials(moments):
    h = daubechies(moments)
    assert len(h) == 2 * moments
    for shift in range(moments):
        np.testing.assert_allclose(h[2 * shift :] @ h[: len(h) - 2 * shift], shift == 0, atol=1e-9)
    k = np.arange(2 * moments)
    g = (-1.0) ** k * h[::-1]
    for degree in range(moments):
        np.testing.assert_allclose(g @ (k / (2 * moments)) ** degree, 0, atol=1e-8)


@pytest.mark.parametrize(("shape", "levels", "moments"), ORTHONORMAL)
def test_the_transform_is_a_rotation(x64, shape, levels, moments):
    """W Wᵀ = I: Parseval, and the transpose reconstructs. Also where filters are longer than the grid."""
    m = int(np.prod(shape))
    encoder = Wavelet.create(shape, levels=levels, moments=moments)
    W = matrix(encoder, m)
    assert encoder.size == m
    np.testing.assert_allclose(W @ W.T, np.eye(m), atol=1e-9)
    u = jnp.asarray(np.random.default_rng(0).standard_normal((m, 1)))
    (back,) = jax.jit(lambda u: jax.linear_transpose(encoder, u)(encoder(u)))(u)
    np.testing.assert_allclose(back, u, atol=1e-9)


def test_haar_means_and_differences(x64):
    u = jnp.array([1.0, 3.0, 2.0, 8.0])
    code = Wavelet.create((4,), levels=2, moments=1)(u[:, None])
    np.testing.assert_allclose(code, [7, -3, -np.sqrt(2), -3 * np.sqrt(2)], atol=1e-12)


def test_polynomials_have_no_details_away_from_the_seam(x64):
    """A cubic, four vanishing moments: details are zero except where the filter wraps around the end."""
    t = jnp.arange(64) / 64
    _, coarse, fine = jax.jit(lambda u: Wavelet.create((64,), levels=2, moments=4).transform(u))(t**3 - t)
    np.testing.assert_allclose(fine[:28], 0, atol=1e-12)
    np.testing.assert_allclose(coarse[:10], 0, atol=1e-12)
    assert jnp.abs(fine).max() > 1e-3


def test_details_along_one_axis_of_an_image(x64):
    """A field that varies along x only has details along x only."""
    u = jnp.asarray(np.random.default_rng(1).standard_normal((16, 1)) * np.ones((1, 16)))
    _, along_y, along_x, both = Wavelet.create((16, 16), levels=1, moments=2).transform(u)
    np.testing.assert_allclose(along_y, 0, atol=1e-9)
    np.testing.assert_allclose(both, 0, atol=1e-9)
    assert jnp.abs(along_x).max() > 0.1


@pytest.mark.parametrize("shape", [(32,), (16, 8)])
def test_keeping_coarse_levels_keeps_the_head_of_the_code(shape):
    u = jnp.asarray(np.random.default_rng(2).standard_normal((int(np.prod(shape)), 1)), dtype=float)
    whole = eqx.filter_jit(Wavelet.create(shape, levels=2, moments=2))(u)
    for keep in (0, 1):
        kept = Wavelet.create(shape, levels=2, moments=2, keep=keep)
        assert kept.size == len(whole) // 2 ** ((2 - keep) * len(shape))
        np.testing.assert_allclose(eqx.filter_jit(kept)(u), whole[: kept.size], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (12,), "levels": 3}, r"must be a multiple of 8, got \(12,\); use fewer levels"),
        ({"shape": (8, 8, 8), "levels": 1}, "one or two dimensions"),
        ({"shape": (8,), "levels": 1, "moments": 11}, "`moments` must be from 1 to 10, got 11"),
        ({"shape": (8,), "levels": 1, "keep": 2}, "`keep` must be from 0 to levels=1, got 2"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Wavelet.create(**arguments)
