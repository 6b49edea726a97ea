"""What holds for every encoder."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.encoders import (
    Scattering1D,
    Scattering2D,
    Sensors,
    Standardized,
)
from loca.parameters import count
from loca.typing import Measurements

CHANNELS = 2
MAKERS = {
    "Sensors": lambda d_u: (Sensors(16, d_u), 16),
    "harmonics": lambda d_u: (Sensors(16, d_u, num_frequencies=2), 16),
    "Scattering1D": lambda d_u: (Scattering1D.create(32, scales=2, wavelets_per_octave=1, channels=d_u), 32),
    "Scattering2D": lambda d_u: (Scattering2D.create((8, 12), scales=1, angles=2, channels=d_u), 96),
}


@pytest.fixture(params=MAKERS)
def name(request):
    return request.param


def noise(*shape):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype=float)


def test_one_function_gives_one_vector_under_every_transformation(name):
    encoder, m = MAKERS[name](CHANNELS)
    u = noise(3, m, CHANNELS)
    compiled = eqx.filter_jit(encoder)
    codes = jnp.stack([compiled(v) for v in u])
    assert codes.shape == (3, encoder.size)
    np.testing.assert_allclose(encoder(u[0]), codes[0], atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(encoder))(u), codes, atol=1e-5)


def test_channels_are_encoded_by_themselves(name):
    """The numbers of the code of two channels are those of the codes of each."""
    encoder, m = MAKERS[name](CHANNELS)
    single, _ = MAKERS[name](1)
    u = noise(m, CHANNELS)
    both = eqx.filter_jit(encoder)(u)
    each = jnp.concatenate([eqx.filter_jit(single)(u[:, i : i + 1]) for i in range(CHANNELS)])
    if name in ("Sensors", "harmonics"):  # these keep the channels of a sensor next to each other
        both, each = jnp.sort(both), jnp.sort(each)
    np.testing.assert_allclose(both, each, atol=1e-5)


def test_nothing_is_trained(name):
    encoder, _ = MAKERS[name](CHANNELS)
    assert count(encoder) == 0


def test_values_of_another_shape_are_refused(name):
    encoder, m = MAKERS[name](CHANNELS)
    with pytest.raises(ValueError, match=rf"\({m}, {CHANNELS}\).*got"):
        encoder(jnp.zeros((m + 1, CHANNELS)))
    with pytest.raises(ValueError, match=rf"\({m}, {CHANNELS}\).*got"):
        encoder(jnp.zeros((CHANNELS, m)))


def test_locations_of_their_own_are_for_projections(name):
    encoder, m = MAKERS[name](CHANNELS)
    measured = Measurements(jnp.zeros((m, CHANNELS)), jnp.zeros((m, 1)), jnp.ones(m, dtype=bool))
    with pytest.raises((TypeError, ValueError), match="Measurements"):
        encoder(measured)


def test_sensors_keep_values_in_order():
    u = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(Sensors(3, 2)(u), jnp.arange(6.0))


def test_harmonics_of_values_come_in_pairs():
    """With an odd number of them the size promised would not be the size of the code."""
    with pytest.raises(ValueError, match="must be even, got 3; pass 2"):
        Sensors(4, num_frequencies=3)


def test_standardized_codes_have_deviation_one():
    u = noise(1000, 3, 1) * jnp.array([4.0, 2.0, 0.5])[:, None]
    np.testing.assert_allclose(np.std(jax.vmap(Standardized.fit(Sensors(3), u))(u), axis=0), 1.0, rtol=1e-4)
