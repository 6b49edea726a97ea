"""Filters on grids and the structure tensor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Samples
from loca.domains import Torus, grid
from loca.encoders import Beside, Sensors, StructureTensor, along, curvature, slope, smoothing
from loca.gaussian import Hyperparameters
from loca.gaussian.equation import PreparedData, Ranks, codes_of
from loca.gaussian.search import Stage, search
from loca.gaussian.trials import Fold
from loca.typing import MultiInput


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("count", [8, 31])
def test_filters_have_the_moments_of_their_definitions(periodic, count):
    i = np.arange(float(count))
    inner = slice(None) if not periodic else slice(1, -1)
    np.testing.assert_allclose((slope(count, periodic) @ (2.0 * i + 1.0))[inner], 2.0, rtol=1e-12)
    np.testing.assert_allclose((curvature(count, periodic) @ (i**2))[1:-1], 2.0, rtol=1e-12)
    for width in (0.0, 0.7, 2.0, 9.0):
        matrix = smoothing(count, width, periodic)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)  # so means are kept
    if periodic:
        wave, k = np.exp(2j * np.pi * 3 * i / count), 2.0 * np.pi * 3 / count
        np.testing.assert_allclose(slope(count, True) @ wave, 1j * np.sin(k) * wave, atol=1e-12)
        np.testing.assert_allclose(curvature(count, True) @ wave, 2.0 * (np.cos(k) - 1.0) * wave, atol=1e-12)


@pytest.mark.parametrize("k", [(2, 0), (0, 2), (1, 1), (2, -1)])
def test_the_structure_tensor_has_twice_the_angle_of_layers(k):
    n = 32
    phase = 2.0 * np.pi * (grid(np.arange(n), np.arange(n)) @ np.array(k)) / n
    u = jnp.asarray(np.stack([np.cos(phase), np.sin(phase)])[..., None], jnp.float32)
    both = StructureTensor.fit(u, (n, n), (True, True))
    found = np.asarray(jax.vmap(both)(u), np.float64).reshape(2, 3, 2, -1).sum(axis=0)  # cos² + sin² is constant
    expected = np.array([np.sin(2 * np.pi * k[0] / n) ** 2 - np.sin(2 * np.pi * k[1] / n) ** 2,
                         2 * np.sin(2 * np.pi * k[0] / n) * np.sin(2 * np.pi * k[1] / n)])  # fmt: skip
    for each in found:
        direction = each.mean(axis=1)
        np.testing.assert_allclose(each, np.broadcast_to(direction[:, None], each.shape), atol=1e-4)
        cosine = direction @ expected / np.linalg.norm(direction) / np.linalg.norm(expected)
        np.testing.assert_allclose(cosine, 1.0, atol=1e-5)


@pytest.mark.parametrize(("shape", "channels"), [((12,), 1), ((8, 9, 10), 2), ((70, 65), 1)])
def test_codes_have_their_size_and_shift_with_a_periodic_field(shape, channels):
    u = jax.random.normal(jax.random.key(0), (2, np.prod(shape), channels))
    tensor = StructureTensor.fit(u, shape, (True,) * len(shape))
    codes = jax.vmap(tensor)(u)
    assert codes.shape == (2, tensor.size)
    np.testing.assert_allclose(float(jnp.mean(codes**2)), 1.0, rtol=1e-4)
    if max(shape) <= 12:
        moved = jnp.roll(u.reshape(2, *shape, channels), 3, axis=1).reshape(u.shape)
        parts = codes.reshape(2, -1, *shape), jax.vmap(tensor)(moved).reshape(2, -1, *shape)
        np.testing.assert_allclose(jnp.roll(parts[0], 3, axis=2), parts[1], atol=1e-4)


def layered(count, key=0):
    """Random fields u on a torus, and s = G ∗ (∂₁u² − ∂₂u²)."""
    n, rng = 12, np.random.default_rng(key)
    noise = rng.normal(size=(count, n, n))
    u = np.asarray(along(jnp.asarray(noise), [smoothing(n, 1.0, True)] * 2))
    a, b = (np.asarray(along(jnp.asarray(u), each)) for each in ([slope(n, True), None], [None, slope(n, True)]))
    s = np.asarray(along(jnp.asarray(a**2 - b**2), [smoothing(n, 2.0, True)] * 2))
    x = grid(np.arange(n) / n, np.arange(n) / n)
    domain = Torus((0.0, 0.0), (1.0, 1.0))
    return Samples(u.reshape(count, -1, 1), x, s.reshape(count, -1, 1), x=x, domain=domain)


@pytest.mark.slow
def test_the_search_keeps_a_structure_tensor_only_where_it_helps():
    data, stage = layered(150), Stage(100, Ranks(100, 60), (2.0,), 3, 100)
    start = Hyperparameters(length=4.0, noise=1e-3, location_lengths=(0.25, 0.25))
    linear = Samples(data.u, data.y, data.u, x=data.x, domain=data.domain)
    for each, expected in ((data, True), (linear, False)):
        rows = jnp.arange(100), jnp.arange(100, 150)
        best, trials = search([Fold(*(each.take(part) for part in rows))], start, [stage])
        assert (best.structure > 0.0) is expected
        assert {trial.hyperparameters.structure for trial in trials} >= {0.0, 0.25, 0.5}
        own = [trial.error for trial in trials if trial.hyperparameters.structure]
        plain = [trial.error for trial in trials if not trial.hyperparameters.structure]
        assert (min(own) < 0.5 * min(plain)) is expected


def test_codes_in_numpy_are_those_of_the_encoder():
    data = layered(20)
    both = Samples(MultiInput((data.u, data.u), jnp.ones((20, 1))), data.y, data.s, x=(data.x, data.x))
    prepared = PreparedData.fit(both, (), 0.25)
    u = prepared.normalization.standardized_input(both.u)
    np.testing.assert_allclose(codes_of(prepared.encoder, u), jax.vmap(prepared.encoder)(u), atol=1e-4)
    pair = Beside((Sensors(3), Sensors(3)), (1.0, 0.5))
    np.testing.assert_allclose(pair(jnp.ones((3, 1))), [1.0, 1.0, 1.0, 0.5, 0.5, 0.5])
    assert pair.size == 6
