"""The scattering transforms: the definition, and invariance, stability and contraction (Mallat, 2012)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.encoders import Scattering1D, Scattering2D, morlet


def inside(rng, shape, count=1):
    """Noise in the middle third of each axis, where no border is felt."""
    u = np.zeros((count, *shape))
    middle = tuple(slice(n // 3, 2 * n // 3) for n in shape)
    u[:, *middle] = rng.standard_normal(u[:, *middle].shape)
    return jnp.asarray(u)


def transform(scattering):
    return jax.jit(lambda u: scattering.transform(u))


def small(dimension):
    if dimension == 1:
        return Scattering1D.create(64, scales=3, wavelets_per_octave=2)
    return Scattering2D.create((8, 8), scales=2, angles=2)


@pytest.mark.parametrize("dimension", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_gradients_are_derivatives(x64, check_derivatives, dimension):
    scattering = small(dimension)
    check_derivatives(transform(scattering), jnp.asarray(np.random.default_rng(4).standard_normal(scattering.shape)))


@pytest.mark.parametrize("dimension", [1, 2])
def test_gradients_vanish_at_zero(derivatives, dimension):
    """But for order zero, which is linear."""
    scattering = small(dimension)
    w = jnp.ones((scattering.paths, *scattering.reduced)).at[0].set(0)
    zero = jnp.zeros(scattering.shape)
    slope, gradient = derivatives(scattering.transform)(zero, zero + 1, w)
    np.testing.assert_array_equal(slope[1:], 0)
    np.testing.assert_array_equal(gradient, 0)


def test_more_scales_than_the_grid_has_are_refused():
    with pytest.raises(ValueError, match=r"2\^3 = 8 points but the grid is \(32, 6\); use .* scales=2"):
        Scattering2D.create((32, 6), scales=3)


def test_batches_of_any_shape_and_length_are_the_same_as_one_by_one():
    scatter = transform(Scattering2D.create((8, 8), scales=1, angles=2))
    u = jnp.asarray(np.random.default_rng(6).standard_normal((2, 3, 8, 8)), dtype=float)
    one_by_one = jnp.stack([jnp.stack([scatter(v) for v in row]) for row in u])
    np.testing.assert_allclose(scatter(u), one_by_one, atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(scatter))(u), one_by_one, atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.vmap(scatter), in_axes=1, out_axes=1))(u), one_by_one, atol=1e-5)


def test_wavelets_have_mean_zero_and_cover_all_frequencies_once():
    """Littlewood–Paley: |φ̂|² + ½Σ(|ψ̂(ω)|² + |ψ̂(−ω)|²) ≤ 1, and no gap up to the highest center."""
    for scales, per_octave in [(4, 8), (4, 1), (6, 1)]:
        psi = np.stack([morlet.morlet_1d(2048, r.center, r.width) for r in morlet.ladder(scales, per_octave)])
        np.testing.assert_allclose(psi[:, 0], 0, atol=1e-12)
        mirrored = np.roll(psi[:, ::-1], 1, axis=1)
        phi = morlet.morlet_1d(2048, 0.0, morlet.LOWEST_WIDTH / 2**scales)
        total = phi**2 + (psi**2 + mirrored**2).sum(axis=0) / 2
        assert total.max() <= 1 + 1e-12
        assert total[: int(0.35 * 2048)].min() > 0.15


def test_a_tone_excites_each_wavelet_by_its_response(x64):
    """u = cos ωt has |u ∗ ψ| = ½ψ̂(ω): times 2⁻ᵏ for paths thinned by 2ᵏ, as φ is sampled without weight."""
    frequency, scales = 0.18, 4
    scattering = Scattering1D.create(1000, scales=scales, wavelets_per_octave=8, order=1)
    s = transform(scattering)(jnp.cos(2 * jnp.pi * frequency * jnp.arange(1000)))
    grid = 50_000  # a grid that has this frequency, as ψ̂ is a function of it
    expected = [
        morlet.morlet_1d(grid, r.center, r.width)[round(frequency * grid)] / 2 / 2**r.step
        for r in morlet.ladder(scales, 8)
    ]
    np.testing.assert_allclose(s[1:, 31], expected, atol=2e-4)
    assert max(expected) > 0.2


def test_shifts_by_the_output_step_shift_the_coefficients_1d(x64):
    u = inside(np.random.default_rng(0), (512,))[0]
    scatter = transform(Scattering1D.create(512, scales=4))
    s, shifted = scatter(u), scatter(jnp.roll(u, 16))
    # The reflected copies beyond the ends move the other way; away from the ends they are not felt.
    np.testing.assert_allclose(shifted[:, 9:-7], s[:, 8:-8], atol=1e-12)


def test_coefficients_do_not_expand_distances_1d(x64):
    """‖S u − S v‖ ≤ ‖u − v‖, each output point standing for 2ᴶ of the input."""
    rng = np.random.default_rng(2)
    scatter = transform(Scattering1D.create(512, scales=4))
    u = inside(rng, (512,), 12)
    smooth = jnp.exp(-0.5 * ((jnp.arange(512) - 256) / 60) ** 2)
    difference = jnp.concatenate(
        [inside(rng, (512,), 4), 1e-3 * inside(rng, (512,), 4), smooth * rng.standard_normal((4, 1))]
    )
    gap = jnp.linalg.norm(scatter(u + difference) - scatter(u), axis=(1, 2)) * 2 ** (4 / 2)
    assert jnp.all(gap <= jnp.linalg.norm(difference, axis=1))


@pytest.mark.full
def test_lipschitz_under_dilations_where_the_fourier_modulus_is_not_1d(x64):
    """u(t) → u((1 + ε)t) moves a tone at ξ by εξ: far, for the Fourier modulus, when ξ is high; not for wavelets.

    S. Mallat, *Group invariant scattering* (2012), §1: |û| changes in proportion to εξ times the length of the atom,
    without bound in ξ, while ‖S u_ε − S u‖ ≤ C ε ‖S u‖ with the same C for all ξ.
    """
    t = jnp.arange(1024) - 512.0
    frequencies, eps = jnp.array([0.02, 0.04, 0.08, 0.16, 0.32]), 0.002

    def atoms(dilation):
        t_ = (1 + dilation) * t
        return jnp.exp(-0.5 * (t_ / 125) ** 2) * jnp.cos(2 * jnp.pi * frequencies[:, None] * t_)

    def sensitivity(features):
        before, after = features(atoms(0.0)), features(atoms(eps))
        axes = tuple(range(1, before.ndim))
        return jnp.sqrt(jnp.sum((after - before) ** 2, axes) / jnp.sum(before**2, axes)) / eps

    def slope(values):
        return np.polyfit(np.log(frequencies), np.log(values), 1)[0]

    fourier = sensitivity(lambda u: jnp.abs(jnp.fft.rfft(u)))
    scattering = sensitivity(transform(Scattering1D.create(1024, scales=6, wavelets_per_octave=1)))
    assert slope(fourier) > 0.9
    assert abs(slope(scattering)) < 0.15
    assert scattering.max() < 1.5
    assert fourier[-1] > 100 * scattering[-1]


@pytest.mark.parametrize(
    ("create", "shape", "options", "paths", "reduced"),
    [
        (Scattering1D.create, 500, {"scales": 4, "wavelets_per_octave": 8}, 50, (31,)),
        (Scattering2D.create, (28, 28), {"scales": 1, "angles": 16}, 17, (14, 14)),
        (Scattering2D.create, (32, 24), {"scales": 2, "angles": 8}, 81, (8, 6)),
    ],
)
def test_sizes_of_the_paper(create, shape, options, paths, reduced):
    scattering = create(shape, **options)
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


@pytest.mark.parametrize(("dimension", "mean", "tolerance"), [(1, 3.0, 1e-12), (2, 3.0 * morlet.ENVELOPE_GAIN, 1e-10)])
def test_constants_have_no_details(x64, dimension, mean, tolerance):
    scattering = small(dimension)
    s = transform(scattering)(jnp.full(scattering.shape, 3.0))
    np.testing.assert_allclose(s[0], mean, rtol=tolerance)
    np.testing.assert_allclose(s[1:], 0, atol=tolerance)


def test_shifts_by_the_output_step_shift_the_coefficients_2d(x64):
    u = inside(np.random.default_rng(1), (32, 32))[0]
    scatter = transform(Scattering2D.create((32, 32), scales=2, angles=4))
    s, shifted = scatter(u), scatter(jnp.roll(u, (4, -4), (0, 1)))
    np.testing.assert_allclose(shifted[:, 1:, :-1], s[:, :-1, 1:], atol=1e-12)


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
