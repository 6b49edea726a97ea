"""Errors, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Variable
from loca.domains import Sphere, area_weights
from loca.evaluation import Report
from loca.metrics import (
    max_absolute,
    relative_l2,
    relative_l2_squared,
    rmse,
    rmse_bands,
    skill,
    spectral,
)

SHAPE = (12, 30)
EVERY = {
    "relative_l2": relative_l2,
    "relative_l2_squared": relative_l2_squared,
    "rmse": rmse,
    "max_absolute": max_absolute,
    "spectral": lambda p, t: spectral(p, t, SHAPE),
    "low": lambda p, t: rmse_bands(p, t, SHAPE).low,
    "mid": lambda p, t: rmse_bands(p, t, SHAPE).mid,
    "high": lambda p, t: rmse_bands(p, t, SHAPE).high,
    "skill": lambda p, t: skill(p, t, 0.0 * t + t.mean(axis=0)),
}
IN_UNITS = {"rmse", "max_absolute", "low", "mid", "high"}


@pytest.fixture
def pair():
    random = np.random.default_rng(0)
    truth = random.normal(size=(5, SHAPE[0] * SHAPE[1], 2))
    return truth + 0.1 * random.normal(size=truth.shape), truth


def test_the_norm_is_that_of_a_vector_not_of_a_matrix():
    """A field error of rank two: its Euclidean norm is √(3² + 4²) = 5, its spectral norm as a matrix only 4."""
    error = np.diag([3.0, 4.0])
    truth = np.full((2, 2), 5.0)  # both norms are 10, since its rank is one
    fields = jnp.asarray(truth.reshape(1, 4, 1)), jnp.asarray((truth + error).reshape(1, 4, 1))
    assert float(relative_l2(fields[1], fields[0])[0, 0]) == pytest.approx(0.5)
    assert float(relative_l2_squared(fields[1], fields[0])[0, 0]) == pytest.approx(0.25)
    assert float(spectral(fields[1], fields[0], (2, 2))[0, 0]) == pytest.approx(0.4)


def test_errors_are_per_function_and_channel_and_relative_to_the_truth():
    truth = jnp.array([[[1.0, 10.0], [0.0, 0.0]], [[3.0, 1.0], [4.0, 0.0]]])
    prediction = truth + jnp.array([[[0.5, 0.0], [0.0, 5.0]], [[0.0, 1.0], [-10.0, 0.0]]])
    assert np.allclose(relative_l2(prediction, truth), [[0.5, 0.5], [2.0, 1.0]])
    assert np.allclose(rmse(prediction, truth), np.sqrt([[0.125, 12.5], [50.0, 0.5]]))
    assert np.allclose(max_absolute(prediction, truth), [[0.5, 5.0], [10.0, 1.0]])


def test_what_has_no_area_has_no_say(pair):
    prediction, truth = pair
    weights = np.append(np.zeros(10), np.ones(350))
    broken = np.concatenate([np.full((5, 10, 2), 1e9), prediction[:, 10:]], axis=1)
    for metric in (relative_l2, rmse):
        np.testing.assert_allclose(metric(broken, truth, weights), metric(prediction[:, 10:], truth[:, 10:]))


def test_area_weights_make_an_error_independent_of_the_grid():
    """e = sin(latitude), whose mean square over the sphere is 1/3, on two grids of different fineness."""
    for rows in (18, 90):
        step = 180.0 / rows
        latitude, longitude = np.arange(-90 + step / 2, 90, step), np.arange(0.0, 360.0, step)
        y = np.stack(np.meshgrid(latitude, longitude, indexing="ij"), axis=-1).reshape(-1, 2)
        error = np.sin(np.radians(y[:, :1]))[None]
        weighted = rmse(error, np.zeros_like(error), area_weights(Sphere(), y))
        # the midpoint rule in sin(latitude) errs by less than h²/12
        np.testing.assert_allclose(weighted, 3.0**-0.5, atol=np.radians(step) ** 2 / 12)
    assert rmse(error, np.zeros_like(error))[0, 0] > 0.7  # every point alike: too much of the poles


def test_a_truth_of_zero_is_said_to_have_no_relative_error():
    zero = np.zeros((1, 4, 1))
    assert relative_l2(zero + 1.0, zero) == np.inf
    assert np.isnan(relative_l2(zero, zero))


@pytest.mark.parametrize(
    ("k", "band"),
    [((0, 0), "low"), ((3, 0), "low"), ((-2, 4), "low"), ((3, 4), "mid"), ((0, 5), "mid"), ((9, 9), "mid"),
     ((5, 12), "high"), ((0, 13), "high"), ((16, 2), "high")],
)  # fmt: skip
def test_a_wave_lands_in_its_band_with_its_size(k, band):
    a, b = np.meshgrid(np.arange(32) / 32, np.arange(40) / 40, indexing="ij")
    wave = 0.3 * np.cos(2 * np.pi * (k[0] * a + k[1] * b))
    error = wave.reshape(1, -1, 1)
    found = rmse_bands(error, np.zeros_like(error), wave.shape)
    expected = {"low": 0.0, "mid": 0.0, "high": 0.0, band: np.sqrt(np.mean(wave**2))}
    for name, value in expected.items():
        assert getattr(found, name)[0, 0] == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize("shape", [(360,), (12, 30), (5, 8, 9), (1, 360)])
def test_squares_of_the_bands_add_up_to_that_of_the_whole(pair, shape):
    together = sum(band**2 for band in rmse_bands(*pair, shape)) ** 0.5
    np.testing.assert_allclose(together, rmse(*pair), rtol=1e-12)


@pytest.mark.parametrize("metric", [spectral, rmse_bands])
def test_a_shape_that_does_not_fit_is_refused(pair, metric):
    with pytest.raises(ValueError, match="360 values per function"):
        metric(*pair, (12, 31))


def test_skill_by_hand():
    random = np.random.default_rng(6)
    truth, climatology = 1000 + random.normal(size=(2, 20, 5, 2))
    weights = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
    halfway = 0.5 * (truth + climatology)
    moved = halfway + np.array([0, 0, 0, 0, 9.0])[:, None]  # what has no area has no say
    for each, expected in ((truth, 1.0), (climatology, 0.0), (halfway, 0.75), (moved, 0.75)):
        np.testing.assert_allclose(skill(each, truth, climatology, weights), expected)


def test_overall_skill_is_not_the_mean_of_skills():
    """Functions that depart 1 and 3 from the reference, both missed by 1: skills 0 and 8/9, together 1 − 2/10."""
    truth, reference = np.array([[[1.0]], [[3.0]]]), np.zeros((2, 1, 1))
    np.testing.assert_allclose(skill(truth + 1.0, truth, reference), [[0.0], [8 / 9]])
    report = Report((Variable("s"),), {"rmse": rmse(truth + 1.0, truth)}, {"rmse": rmse(reference, truth)})
    assert report.overall_skill() == pytest.approx(0.8)
