"""The shallow-water scheme keeps what the equations keep."""

import jax
import numpy as np
import pytest

from loca.problems import ShallowWater


def drop(k: int, xi: float, zeta: float) -> np.ndarray:
    x = (np.arange(k) + 0.5) / k
    U = np.zeros((3, k, k))
    U[0] = 1.0 + 2.0 * np.exp(-((x[:, None] - xi) ** 2 + (x - zeta) ** 2) / 0.005)
    return U


def test_mass_is_conserved():
    problem = ShallowWater()
    U = problem.solve(drop(32, 0.42, 0.57)[None])[0, :, 0]
    mass = U.sum(axis=(1, 2))
    assert np.abs(mass / drop(32, 0.42, 0.57)[0].sum() - 1.0).max() <= 1e-12


def test_mirror_images_stay_mirror_images():
    problem = ShallowWater()
    starts = drop(32, 0.42, 0.57), drop(32, 0.58, 0.57), drop(32, 0.57, 0.42)
    left, right, turned = (problem.solve(start[None])[0] for start in starts)  # one compiled program for all tests
    mirrored = right[:, :, ::-1] * np.array([1.0, -1.0, 1.0])[:, None, None]
    np.testing.assert_allclose(left, mirrored, atol=1e-12)
    np.testing.assert_allclose(left, turned.transpose(0, 1, 3, 2)[:, [0, 2, 1]], atol=1e-12)


def test_still_water_stays_still():
    start = np.zeros((1, 3, 32, 32))
    start[:, 0] = 1.7
    np.testing.assert_array_equal(ShallowWater().solve(start)[0], np.broadcast_to(start, (6, 3, 32, 32)))


def test_waves_travel_at_the_speed_of_shallow_water():
    # a small plane hump splits in two that run at √(gρ); after 0.16 s each has gone 0.16·√9.81 = 0.501
    k, t = 200, 0.16
    x = (np.arange(k) + 0.5) / k
    start = np.zeros((1, 3, k, k))
    start[:, 0] = 1.0 + 1e-3 * np.exp(-((x[:, None] - 0.25) ** 2) / 0.002)
    problem = ShallowWater(resolution=k, time_step=0.001, times=(t,))
    rho = problem.solve(start)[0, 1, 0, :, 0]
    assert x[75 + np.argmax(rho[75:])] == pytest.approx(0.25 + t * np.sqrt(9.81), abs=0.01)


def test_times_and_places_of_the_outputs():
    problem = ShallowWater()
    start = drop(32, 0.5, 0.5)[None]
    late = ShallowWater(times=(0.21,)).solve(start)[0, 1]
    np.testing.assert_allclose(problem.solve(start)[0, 3], late, atol=1e-14)
    u, s = problem.pairs(jax.random.key(0), range(1))
    y = problem.y
    at = (y[:, 0] == 0.21) & (np.abs(y[:, 1] - 0.5 / 32) < 1e-12)
    assert at.sum() == 32
    assert s[:, at].shape == (1, 32, 3)
    assert u[..., 0].max() > s[..., 0].max()  # the drop spreads
