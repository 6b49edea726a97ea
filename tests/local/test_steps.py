"""Steps that are solved for: closed forms, ends of a grid, means, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Trajectories
from loca.domains import Box, Torus, grid
from loca.local.patches import Axis, Patch
from loca.local.patches import Torus as Extended
from loca.local.steps import solve_steps


def smooth(rng, count, shape, modes=4):
    """Random periodic fields of the lowest frequencies, of size 1."""
    h = np.fft.rfftn(rng.normal(size=(count, *shape)), axes=range(1, len(shape) + 1))
    for axis, n in enumerate(shape, 1):
        k = np.abs(np.fft.fftfreq(n, 1 / n))[: h.shape[axis]]
        h = h * np.reshape(k <= modes, [-1 if i == axis else 1 for i in range(h.ndim)])
    u = np.fft.irfftn(h, s=shape, axes=range(1, len(shape) + 1))
    return u / u.std()


def rolled(step, u, steps):
    frames = [u]
    for _ in range(steps):
        frames.append(step(frames[-1]))
    return np.stack(frames, axis=1)


def on_torus(frames, shape):
    d = len(shape)
    domain = Torus((0.0,) * d, (1.0,) * d)
    return Trajectories(
        frames.reshape(*frames.shape[:2], -1, 1), grid(*(np.arange(n) / n for n in shape)), domain=domain
    )


EXTENDED = [
    Extended((Axis(9, "periodic"),)),
    Extended((Axis(6, "face", (1,)), Axis(8, "periodic"))),
    Extended((Axis(5, "point", (0,)), Axis(6, "face"))),
]


@pytest.mark.parametrize("torus", EXTENDED)
@pytest.mark.parametrize(
    "reaches", [(3.0, 2.0, 1.0), *(pytest.param(r, marks=pytest.mark.full) for r in ((9.0, 1.0), (1.0,), (2.0, -1.0)))]
)
def test_a_polynomial_is_the_sum_of_its_monomials(torus, reaches, monkeypatch):
    monkeypatch.setattr("loca.local.patches.DIRECT", 20)
    patch, rng = Patch(reaches, 3, (2,)), np.random.default_rng(0)
    u = torus.extend(jnp.asarray(rng.normal(size=(2, 3, int(np.prod(torus.shape)))), jnp.float32))
    weights = jnp.asarray(rng.normal(size=(patch.count(torus), 2)), jnp.float32)
    expected = jnp.einsum("bmk,ko->bom", patch.features(torus, u), weights)
    np.testing.assert_allclose(patch(torus, u, weights), expected, atol=2e-5 * float(jnp.abs(expected).max()))
    degrees, radii = patch.radii(torus)
    assert len(degrees) == len(radii) == patch.count(torus)


def test_fields_go_on_even_and_odd_beyond_the_ends():
    torus = Extended((Axis(3, "face", (1,)),))
    found = torus.extend(jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]))
    np.testing.assert_array_equal(found, [[1, 2, 3, 3, 2, 1], [1, 2, 3, -3, -2, -1]])
    np.testing.assert_array_equal(torus.extend(jnp.array([[1.0, 2.0, 3.0]]), 1), [[1, 2, 3, -3, -2, -1]])
    torus = Extended((Axis(3, "point"),))
    np.testing.assert_array_equal(torus.extend(jnp.array([[1.0, 2.0, 3.0]])), [[1, 2, 3, 2]])
    np.testing.assert_allclose(torus.field(torus.spectrum(jnp.array([[1.0, 2.0, 3.0]]))), [[1, 2, 3]], atol=1e-6)


@pytest.fixture
def _few_trials(monkeypatch):
    monkeypatch.setattr("loca.local.steps.NOISES", (0.0, 1e-3))
    monkeypatch.setattr("loca.local.steps.STRENGTHS", (1e-10, 1e-8))


@pytest.mark.slow
@pytest.mark.usefixtures("_few_trials")
def test_an_advection_step_is_found_to_single_precision(monkeypatch):
    monkeypatch.setattr("loca.local.steps.REACHES", {1: (16.0, 3.0, 1.0)})
    rng, n = np.random.default_rng(0), 32
    shift = np.exp(-2j * np.pi * np.fft.rfftfreq(n, 1 / n) * 0.37 / n * 3)
    data = on_torus(rolled(lambda u: np.fft.irfft(np.fft.rfft(u) * shift, n), smooth(rng, 14, (n,)), 20), (n,))
    train, test = data.take(range(12)), data.take(range(12, 14))
    stepper, report = solve_steps(train)
    frames = stepper.rollout(test.s[:, :1], 20)
    assert report.is_stable
    assert report.noise == 0.0
    assert np.abs(frames - test.s[:, 1:]).max() < 2e-5
    assert stepper.about.conserved == (True,)
    means = frames.mean(axis=2)
    np.testing.assert_allclose(means, np.broadcast_to(test.s[:, :1].mean(axis=2), means.shape), atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("_few_trials")
def test_a_polynomial_rule_with_walls_is_found_exactly(monkeypatch):
    """Heat that flows faster where it is warm, between walls that none passes; values at the middle of cells."""
    monkeypatch.setattr("loca.local.steps.REACHES", {2: (1.0, 1.0, -1.0)})
    rng, shape = np.random.default_rng(1), (10, 8)

    def step(u):
        out = u.copy()
        for axis in (1, 2):
            flow = np.diff(u + 0.1 * u**2, axis=axis) * 0.1
            widths = [(0, 0)] * 3
            widths[axis] = (1, 1)
            out += np.diff(np.pad(flow, widths), axis=axis)
        return out

    frames = rolled(step, smooth(rng, 30, shape, 2), 12)
    places = grid(*((np.arange(n) + 0.5) / n for n in shape))
    data = Trajectories(frames.reshape(30, 13, -1, 1), places, domain=Box.unit(2))
    stepper, report = solve_steps(data.take(range(25)))
    assert [axis.kind for axis in stepper.operator.torus.axes] == ["face", "face"]
    found = stepper.rollout(data.s[25:, :1], 12)
    assert np.abs(found - data.s[25:, 1:]).max() < 1e-4
    assert report.error < 1e-4 < report.persistence
    assert stepper.about.conserved == (True,)
    draws = stepper.rollout(data.s[25:, :1], 3, draws=4, key=jax.random.key(0))
    spread = draws[:, :, 0].std(axis=1).mean()
    assert 0.0 < spread < 10.0 * np.abs(found[:, 0] - data.s[25:, 1]).mean() + 1e-5


def test_steps_off_grids_are_refused():
    y = np.random.default_rng(0).uniform(size=(30, 2))
    data = Trajectories(np.zeros((6, 3, 30, 1)), y, domain=Box.unit(2))
    with pytest.raises(ValueError, match="grid with at least 4 points"):
        solve_steps(data)
