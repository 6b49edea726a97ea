import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.encoders import Scattering2D, morlet
from loca.encoders.scattering import in_chunks


def inside(rng, shape, count=1):
    """Noise in the middle third of each axis, where no border is felt."""
    u = np.zeros((count, *shape))
    a, b = ((n // 3, 2 * n // 3) for n in shape)
    u[:, slice(*a), slice(*b)] = rng.standard_normal((count, a[1] - a[0], b[1] - b[0]))
    return jnp.asarray(u)


def transform(scattering):
    return jax.jit(lambda u: scattering.transform(u))


@pytest.mark.parametrize(
    ("shape", "scales", "angles", "paths", "reduced"),
    [((28, 28), 1, 16, 17, (14, 14)), ((72, 72), 1, 8, 9, (36, 36)), ((32, 32), 1, 2, 3, (16, 16)),
     ((32, 24), 2, 8, 81, (8, 6))],
)  # fmt: skip
def test_sizes_of_the_paper(shape, scales, angles, paths, reduced):
    scattering = Scattering2D.create(shape, scales=scales, angles=angles)
    assert (scattering.paths, scattering.reduced) == (paths, reduced)
    assert jax.eval_shape(scattering.transform, jnp.zeros(shape)).shape == (paths, *reduced)


def convolution(u, filter_, step):
    """u ∗ ψ on a periodic grid, every step-th point: the definition, by NumPy's FFT."""
    return np.fft.ifft2(np.fft.fft2(u) * filter_)[::step, ::step]


def test_first_order_is_the_definition(x64):
    """|u ∗ ψ| ∗ φ with complex FFTs on a field that is zero near its borders."""
    shape, scales, angles = (32, 24), 2, 4
    u = inside(np.random.default_rng(0), shape)[0]
    s = Scattering2D.create(shape, scales=scales, angles=angles, order=1).transform(u)
    padded = np.pad(u, ((4, 4), (4, 4)))
    phi = np.outer(*(morlet.low_pass_factor(n, scales) for n in padded.shape))
    psi = morlet.bank_2d(padded.shape, scales, angles)
    np.testing.assert_allclose(s[0], convolution(padded, phi, 4).real[1:-1, 1:-1], atol=1e-12)
    # At scale 0 nothing is thinned before φ.
    for angle in range(angles):
        v = np.abs(convolution(padded, psi[0, angle], 1))
        np.testing.assert_allclose(s[1 + angle], convolution(v, phi, 4).real[1:-1, 1:-1], atol=1e-12)


def test_constants_have_no_details(x64):
    s = transform(Scattering2D.create((16, 16), scales=2, angles=4))(jnp.full((16, 16), 3.0))
    np.testing.assert_allclose(s[0], 3 * morlet.ENVELOPE_GAIN, rtol=1e-10)
    np.testing.assert_allclose(s[1:], 0, atol=1e-10)


def test_shifts_by_the_output_step_shift_the_coefficients(x64):
    u = inside(np.random.default_rng(1), (32, 32))[0]
    scatter = transform(Scattering2D.create((32, 32), scales=2, angles=4))
    s, shifted = scatter(u), scatter(jnp.roll(u, (4, -4), (0, 1)))
    np.testing.assert_allclose(shifted[:, 1:, :-1], s[:, :-1, 1:], atol=1e-12)


def test_shifts_by_less_hardly_change_the_coefficients(x64):
    u = inside(np.random.default_rng(2), (32, 32))[0]
    scatter = transform(Scattering2D.create((32, 32), scales=3, angles=4))
    s, shifted = scatter(u), scatter(jnp.roll(u, 1, 0))
    assert jnp.linalg.norm(shifted - s) / jnp.linalg.norm(s) < 0.2
    assert jnp.linalg.norm(jnp.roll(u, 1, 0) - u) / jnp.linalg.norm(u) > 1.2


def test_transposing_the_field_reflects_the_angles(x64):
    """The wavelet at angle θ becomes the one at π/2 − θ, exactly; angles run down from (L/2 − 1)π/L."""
    L = 4
    u = jnp.asarray(np.random.default_rng(3).standard_normal((16, 16)))
    scatter = transform(Scattering2D.create((16, 16), scales=2, angles=L))
    s, t = scatter(u), jnp.swapaxes(scatter(u.T), 1, 2)
    turned = (L // 2 - 2 - np.arange(L)) % L
    np.testing.assert_allclose(t[0], s[0], atol=1e-12)
    np.testing.assert_allclose(
        t[1 : 1 + 2 * L].reshape(2, L, 4, 4), s[1 : 1 + 2 * L].reshape(2, L, 4, 4)[:, turned], atol=1e-12
    )
    second = s[1 + 2 * L :].reshape(L, L, 4, 4)
    np.testing.assert_allclose(t[1 + 2 * L :].reshape(L, L, 4, 4), second[turned][:, turned], atol=1e-12)


def test_coefficients_do_not_expand_distances(x64):
    """‖S u − S v‖ ≤ ‖u − v‖, each output point standing for 4ᴶ of the input; tight for constants."""
    rng = np.random.default_rng(4)
    scatter = transform(Scattering2D.create((32, 32), scales=2, angles=8))
    u = inside(rng, (32, 32), 6)
    difference = jnp.concatenate([inside(rng, (32, 32), 2), 1e-3 * inside(rng, (32, 32), 2), jnp.ones((2, 32, 32))])
    gap = jnp.linalg.norm((scatter(u + difference) - scatter(u)).reshape(6, -1), axis=1) * 2**2
    # Filters carry the gain 1.00003 of `morlet.ENVELOPE_GAIN`, at most two after φ.
    assert jnp.all(gap <= morlet.ENVELOPE_GAIN**3 * jnp.linalg.norm(difference.reshape(6, -1), axis=1))


@pytest.mark.slow
def test_lipschitz_under_dilations_where_the_fourier_modulus_is_not(x64):
    """As in one dimension: dilating a wave of frequency ξ by 1 + ε costs the Fourier modulus ∝ ξ, wavelets the same."""
    n, eps = 64, 0.005
    x = jnp.arange(n) - n / 2
    frequencies = jnp.array([0.045, 0.09, 0.18, 0.36])

    def atoms(dilation):
        x_, y_ = (1 + dilation) * x[:, None], (1 + dilation) * x[None, :]
        envelope = jnp.exp(-0.5 * (x_**2 + y_**2) / 9**2)
        return envelope * jnp.cos(2 * jnp.pi * frequencies[:, None, None] * x_)

    def sensitivity(features):
        before, after = features(atoms(0.0)), features(atoms(eps))
        axes = tuple(range(1, before.ndim))
        return jnp.sqrt(jnp.sum((after - before) ** 2, axes) / jnp.sum(before**2, axes)) / eps

    fourier = sensitivity(lambda u: jnp.abs(jnp.fft.fft2(u)))
    scattering = sensitivity(transform(Scattering2D.create((n, n), scales=4, angles=4, order=1)))
    assert fourier[-1] / fourier[0] > 5
    assert scattering.max() / scattering.min() < 2
    assert fourier[-1] > 5 * scattering[-1]


@pytest.mark.slow
def test_gradients_are_derivatives(x64, check_derivatives):
    scattering = Scattering2D.create((8, 8), scales=2, angles=2)
    check_derivatives(transform(scattering), jnp.asarray(np.random.default_rng(5).standard_normal((8, 8))))


def test_gradients_vanish_at_zero(derivatives):
    """But for order zero, which is linear."""
    scattering = Scattering2D.create((8, 8), scales=2, angles=2)
    w = jnp.ones((scattering.paths, *scattering.reduced)).at[0].set(0)
    slope, gradient = derivatives(scattering.transform)(jnp.zeros((8, 8)), jnp.ones((8, 8)), w)
    np.testing.assert_array_equal(slope[1:], 0)
    np.testing.assert_array_equal(gradient, 0)


def test_batches_of_any_shape_and_length_are_the_same_as_one_by_one():
    scatter = transform(Scattering2D.create((8, 8), scales=1, angles=2))
    u = jnp.asarray(np.random.default_rng(6).standard_normal((2, 3, 8, 8)), dtype=float)
    one_by_one = jnp.stack([jnp.stack([scatter(v) for v in row]) for row in u])
    np.testing.assert_allclose(scatter(u), one_by_one, atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(scatter))(u), one_by_one, atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.vmap(scatter), in_axes=1, out_axes=1))(u), one_by_one, atol=1e-5)


def test_chunks_are_invisible():
    u = jnp.arange(33.0).reshape(11, 3)
    for size in (1, 4, 11, 20):
        np.testing.assert_array_equal(in_chunks(lambda v: 2 * v, u, size), 2 * u)


def test_an_ensemble_of_encoders_can_be_mapped():
    """Stacked filters are mapped like any array."""
    one = Scattering2D.create((8, 8), scales=1, angles=2)
    half = jax.tree.map(lambda a: a / 2, one)
    stacked = jax.tree.map(lambda a, b: jnp.stack([a, b]), one, half)
    u = jnp.asarray(np.random.default_rng(7).standard_normal((8, 8)), dtype=float)
    s = eqx.filter_jit(eqx.filter_vmap(lambda e: e.transform(u)))(stacked)
    np.testing.assert_allclose(s[0], one.transform(u), atol=1e-6)
    np.testing.assert_allclose(s[1], half.transform(u), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (32, 6), "scales": 3}, r"2\^3 = 8 points but the grid is \(32, 6\); use at most scales=2"),
        ({"shape": (8, 8), "scales": 1, "angles": 0}, "`angles` must be at least 1, got 0"),
        ({"shape": (8, 8), "scales": 1, "order": 0}, "`order` must be 1 or 2, got 0"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Scattering2D.create(**arguments)


def test_fields_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"the grid \(8, 8\), got an array of shape"):
        Scattering2D.create((8, 8), scales=1).transform(jnp.zeros((8, 9)))
