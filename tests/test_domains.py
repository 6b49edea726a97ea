"""Domains: volumes, maps of constant Jacobian, uniform sampling."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.domains import Box, Sphere, Torus

DOMAINS = [Box((-1.0, 2.0), (0.5, 4.0)), Torus((1.0, 0.0), (3.0, 7.0)), Sphere(), Box.unit(3)]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_maps_are_inverse_to_each_other(domain, getkey):
    with jax.enable_x64(True):
        t = jax.random.uniform(getkey(), (100, domain.dimension), minval=0.01, maxval=0.99)
        assert jnp.allclose(domain.to_unit(domain.from_unit(t)), t, atol=1e-12)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_the_map_from_the_cube_has_constant_jacobian(domain, getkey):
    """|det ∂y/∂t| times the density of the measure is the volume, everywhere."""
    with jax.enable_x64(True):
        t = jax.random.uniform(getkey(), (20, domain.dimension), minval=0.05, maxval=0.95)
        jacobian = jnp.abs(jnp.linalg.det(jax.vmap(jax.jacobian(domain.from_unit))(t)))
        density = 1.0
        if isinstance(domain, Sphere):  # area element in degrees: cos(latitude) (π/180)²
            density = jnp.cos(jnp.radians(domain.from_unit(t)[:, 0])) * (math.pi / 180.0) ** 2
        assert jnp.allclose(jacobian * density, domain.volume, rtol=1e-10)


def test_volumes():
    assert Box((-1.0, 2.0), (0.5, 4.0)).volume == 3.0
    assert Torus((0.0,), (2.5,)).volume == 2.5
    assert Sphere().volume == pytest.approx(4 * math.pi)


def test_uniform_on_the_sphere(getkey):
    """A cap above latitude 30° holds a quarter of the area; cells of a lat–lon grid do not count alike."""
    latitude = Sphere().sample(getkey(), 40_000)[:, 0]
    assert np.mean(latitude > 30.0) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 40_000))


def test_the_sphere_knows_no_date_line():
    sphere = Sphere()
    west, east = jnp.array([[10.0, -170.0]]), jnp.array([[10.0, 190.0]])
    assert jnp.allclose(sphere.to_cartesian(west), sphere.to_cartesian(east), atol=1e-6)
    assert jnp.allclose(sphere.to_unit(west), sphere.to_unit(east), atol=1e-6)


def test_wrong_corners_are_refused():
    with pytest.raises(ValueError, match="low < high"):
        Box((0.0, 1.0), (1.0, 1.0))
    with pytest.raises(ValueError, match="low < high"):
        Torus((0.0,), (1.0, 2.0))


def test_wrong_columns_are_refused():
    with pytest.raises(ValueError, match=r"3 columns but .* 2-dimensional; pass locations as an array of shape"):
        Box.unit(2).check(jnp.zeros((5, 3)))
