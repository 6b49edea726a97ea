"""Errors at each lead time against closed forms, and forecasts whose spread is that of their errors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Normalization, Trajectories
from loca.domains import Torus
from loca.evaluation import LeadTimes
from loca.models import Noise, Operator, Stepper

TAU = 2.0 * np.pi
Y = np.linspace(0.0, TAU, 16, endpoint=False)
RANDOM = np.random.default_rng(0)


class Decay(Operator):
    """s(t + 1) = a s(t)."""

    normalization: Normalization
    factor: float

    def encode(self, u):
        return u

    def respond(self, codes, queries):
        return self.normalization.at(queries).standardize((self.factor - 1.0) * codes)


def noisy_decay(count, frames=40, factor=0.9, size=0.3):
    """Independent first-order autoregressions at all points, in equilibrium."""
    s = np.zeros((count, frames, len(Y)))
    s[:, 0] = RANDOM.normal(size=(count, len(Y))) * size / np.sqrt(1 - factor**2)
    for t in range(1, frames):
        s[:, t] = factor * s[:, t - 1] + size * RANDOM.normal(size=(count, len(Y)))
    return Trajectories(s.astype(np.float32), Y, domain=Torus([0.0], [TAU]))


def decay(data, factor=0.9):
    stepper = Stepper.of(Decay(Normalization.fit(data.samples()), factor), data)
    return dataclasses.replace(stepper, about=dataclasses.replace(stepper.about, mean=0.0 * stepper.about.mean))


def test_errors_of_an_autoregression(tmp_path):
    data = noisy_decay(100)
    report = loca.evaluate(decay(data), data, steps=10)
    assert report.errors["forecast"]["rmse"].shape == (300, 10, 1)  # three starts in each of 100 trajectories
    lead, sigma2 = np.arange(1, 11), 0.3**2 / (1 - 0.9**2)
    for what, expected in (
        ("forecast", sigma2 * (1 - 0.81**lead)),
        ("persistence", 2 * sigma2 * (1 - 0.9**lead)),
        ("climatology", np.full(10, sigma2)),
    ):
        np.testing.assert_allclose(report.of("rmse", what)[:, 0] ** 2, expected, rtol=0.15)
    np.testing.assert_allclose(report.of("correlation", "persistence")[:, 0], 0.9**lead, atol=0.1)
    assert report.window(6, 10)[0] == pytest.approx(report.of("vrmse")[5:].mean())
    assert report.spectra["truth"].sum(axis=1) == pytest.approx((np.asarray(data.s) ** 2).mean(), rel=0.2)
    assert "geometric mean" in str(report)
    report.save(tmp_path / "report.json")
    again = LeadTimes.load(tmp_path / "report.json")
    np.testing.assert_array_equal(again.of("vrmse"), report.of("vrmse"))
    assert str(again) == str(report)
    with pytest.raises(ValueError, match="have no 40 steps"):
        loca.evaluate(decay(data), data, steps=40)


def test_the_spread_of_a_calibrated_forecast_is_its_error():
    held, test = noisy_decay(60), noisy_decay(60)
    stepper = loca.calibrate(decay(held), held, steps=12, draws=8)
    assert stepper.noise.amplitude.shape == (12, 1)
    np.testing.assert_allclose(stepper.noise.amplitude, 1.0, atol=0.15)  # the errors of a step explain all others
    report = loca.evaluate(stepper, test, steps=12, draws=8)
    np.testing.assert_allclose(report.spread_skill, 1.0, atol=0.15)
    assert (report.of("crps") < report.of("mae")).all()


def test_crps_of_two_draws():
    data = noisy_decay(1, frames=2)
    errors = jnp.asarray(RANDOM.normal(size=(1, len(Y), 1)))
    stepper = dataclasses.replace(decay(data), noise=Noise(errors, jnp.ones((1, 1))))
    key = jax.random.key(3)
    x = stepper.rollout(data.take([0]).s[:, :1], 1, draws=2, key=key)[0, :, 0].astype(float)
    report = loca.evaluate(stepper, data, draws=2, key=key)
    truth = np.asarray(data.s)[0, 1]
    expected = np.abs(x - truth).mean(axis=0) - 0.5 * np.abs(x[0] - x[1])
    np.testing.assert_allclose(report.of("crps")[0, 0], expected.mean(), rtol=1e-4)
