import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.encoders import Scattering1D, morlet


def inside(rng, length, count=1):
    """Noise in the middle third of an interval, where no border is felt."""
    u = np.zeros((count, length))
    u[:, length // 3 : 2 * length // 3] = rng.standard_normal((count, 2 * length // 3 - length // 3))
    return jnp.asarray(u)


def transform(scattering):
    return jax.jit(lambda u: scattering.transform(u))


@pytest.mark.parametrize(
    ("length", "scales", "paths", "points"), [(500, 4, 50, 31), (1000, 4, 50, 63), (300, 1, 8, 150)]
)
def test_sizes_of_the_paper(length, scales, paths, points):
    scattering = Scattering1D.create(length, scales=scales, wavelets_per_octave=8)
    assert (scattering.paths, scattering.reduced) == (paths, (points,))
    assert scattering.size == paths * points


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


def test_constants_have_no_details(x64):
    s = transform(Scattering1D.create(256, scales=4))(jnp.full(256, 3.0))
    np.testing.assert_allclose(s[0], 3, rtol=1e-12)
    np.testing.assert_allclose(s[1:], 0, atol=1e-12)


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


def test_shifts_by_the_output_step_shift_the_coefficients(x64):
    u = inside(np.random.default_rng(0), 512)[0]
    scatter = transform(Scattering1D.create(512, scales=4))
    s, shifted = scatter(u), scatter(jnp.roll(u, 16))
    # The reflected copies beyond the ends move the other way; away from the ends they are not felt.
    np.testing.assert_allclose(shifted[:, 9:-7], s[:, 8:-8], atol=1e-12)


@pytest.mark.full
def test_larger_scales_are_more_invariant_to_shifts(x64):
    """‖S T_c u − S u‖ ≤ C 2⁻ᴶ |c| ‖u‖: doubling the scale halves the effect of a shift by one point."""
    u = inside(np.random.default_rng(1), 4096)[0]
    effect = []
    for scales in (3, 4, 5):
        scatter = transform(Scattering1D.create(4096, scales=scales, wavelets_per_octave=1, order=1))
        effect.append(2 ** (scales / 2) * jnp.linalg.norm(scatter(jnp.roll(u, 1)) - scatter(u)) / jnp.linalg.norm(u))
    assert np.polyfit([3, 4, 5], np.log2(effect), 1)[0] < -0.9
    assert effect[-1] < 0.005
    assert jnp.linalg.norm(jnp.roll(u, 1) - u) / jnp.linalg.norm(u) > 1


def test_coefficients_do_not_expand_distances(x64):
    """‖S u − S v‖ ≤ ‖u − v‖, each output point standing for 2ᴶ of the input."""
    rng = np.random.default_rng(2)
    scatter = transform(Scattering1D.create(512, scales=4))
    u = inside(rng, 512, 12)
    smooth = jnp.exp(-0.5 * ((jnp.arange(512) - 256) / 60) ** 2)
    difference = jnp.concatenate(
        [inside(rng, 512, 4), 1e-3 * inside(rng, 512, 4), smooth * rng.standard_normal((4, 1))]
    )
    gap = jnp.linalg.norm(scatter(u + difference) - scatter(u), axis=(1, 2)) * 2 ** (4 / 2)
    assert jnp.all(gap <= jnp.linalg.norm(difference, axis=1))


def test_sign_does_not_matter_beyond_order_zero_and_size_factors_out(x64):
    u = jnp.asarray(np.random.default_rng(3).standard_normal(256))
    scatter = transform(Scattering1D.create(256, scales=3, wavelets_per_octave=2))
    s, scaled = scatter(u), scatter(-2.5 * u)
    np.testing.assert_allclose(scaled[0], -2.5 * s[0], rtol=1e-10)
    np.testing.assert_allclose(scaled[1:], 2.5 * s[1:], rtol=1e-9)


@pytest.mark.slow
def test_lipschitz_under_dilations_where_the_fourier_modulus_is_not(x64):
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


def test_gradients_are_derivatives(x64, check_derivatives):
    scattering = Scattering1D.create(64, scales=3, wavelets_per_octave=2)
    check_derivatives(transform(scattering), jnp.asarray(np.random.default_rng(4).standard_normal(64)))


def test_gradients_vanish_at_zero(derivatives):
    """But for order zero, which is linear."""
    scattering = Scattering1D.create(64, scales=3, wavelets_per_octave=2)
    w = jnp.ones((scattering.paths, *scattering.reduced)).at[0].set(0)
    slope, gradient = derivatives(scattering.transform)(jnp.zeros(64), jnp.ones(64), w)
    np.testing.assert_array_equal(slope[1:], 0)
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 8, "scales": 4}, r"2\^4 = 16 points but the signal has 8; use at most scales=3"),
        ({"length": 64, "scales": 0}, "`scales` must be at least 1, got 0"),
        ({"length": 64, "scales": 2, "order": 3}, "`order` must be 1 or 2, got 3"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Scattering1D.create(**arguments)


def test_signals_of_another_length_are_refused():
    with pytest.raises(ValueError, match="signals of length 64, got an array of shape"):
        Scattering1D.create(64, scales=2).transform(jnp.zeros((3, 65)))
