"""Domains: volumes, maps of constant Jacobian, uniform sampling, facts; and domains that are not built in."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.domains import Box, Sphere, Torus, area_weights, domain_from_json, unit_vectors
from loca.positions import Harmonic, position_on
from loca.rules import QuasiMonteCarlo, rule_on
from outside import UnitDisk

ZONE, CYLINDER = Sphere(-60.0, 30.0), Torus((1.0, 0.0), (3.0, 7.0), (False, True))
DOMAINS = [Box((-1.0, 2.0), (0.5, 4.0)), Torus((1.0, 0.0), (3.0, 7.0)), Sphere(), Box.unit(3), ZONE, CYLINDER]


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
    assert Sphere(0.0, 30.0).volume == pytest.approx(math.pi)
    assert CYLINDER.volume == 14.0


def test_the_sphere_knows_no_date_line():
    sphere = Sphere()
    west, east = jnp.array([[10.0, -170.0]]), jnp.array([[10.0, 190.0]])
    assert jnp.allclose(unit_vectors(west), unit_vectors(east), atol=1e-6)
    assert jnp.allclose(sphere.to_unit(west), sphere.to_unit(east), atol=1e-6)


def test_the_torus_has_no_edges():
    torus = Torus((1.0, 0.0), (3.0, 7.0))
    y = jnp.array([[1.5, 6.0]])
    for periods in ([1.0, 0.0], [0.0, -1.0], [-2.0, 3.0]):
        shifted = y + jnp.array(periods) * jnp.array(torus.periods)
        assert jnp.allclose(torus.to_unit(shifted), torus.to_unit(y), atol=1e-6)


def test_wrong_corners_are_refused():
    with pytest.raises(ValueError, match="low < high"):
        Box((0.0, 1.0), (1.0, 1.0))
    with pytest.raises(ValueError, match="low < high"):
        Torus((0.0,), (1.0, 2.0))
    with pytest.raises(ValueError, match="-90 ≤ south < north ≤ 90, got south=30"):
        Sphere(30.0, 10.0)
    for periodic in [(True,), (False, False)]:
        with pytest.raises(ValueError, match="each of 2 coordinates"):
            Torus((0.0, 0.0), (1.0, 1.0), periodic)


def test_wrong_columns_are_refused():
    with pytest.raises(ValueError, match=r"3 columns but .* 2-dimensional; pass locations as an array of shape"):
        Box.unit(2).check(jnp.zeros((5, 3)))


def test_json_is_what_stores_hold():
    written = [
        (Box((-1.0, 2.0), (0.5, 4.0)), {"type": "Box", "low": [-1.0, 2.0], "high": [0.5, 4.0]}),
        (Torus((1.0,), (3.0,)), {"type": "Torus", "low": [1.0], "high": [3.0], "periodic": [True]}),
        (ZONE, {"type": "Sphere", "south": -60.0, "north": 30.0}),
    ]
    for domain, description in written:
        assert list(domain.to_json().items()) == list(description.items())  # in this order, which digests depend on
        assert domain_from_json(description) == domain


@pytest.mark.parametrize("description", [{"type": "Moebius"}, {"type": "Box", "low": [0.0]}, {}], ids=str)
def test_an_unknown_description_is_refused(description):
    with pytest.raises(ValueError, match=r"unknown domain .* expected one of Box, .*Sphere, Torus"):
        domain_from_json(description)


def test_periods_bounds_and_names():
    assert Box((-1.0, 2.0), (0.5, 4.0)).periods == (None, None)
    assert Torus((1.0, 0.0), (3.0, 7.0)).periods == (2.0, 7.0)
    assert Sphere().periods == ZONE.periods == (None, 360.0)
    assert CYLINDER.periods == (None, 7.0)
    assert ZONE.bounds == ((-60.0, 30.0), (0.0, 360.0))
    assert Torus((1.0, 0.0), (3.0, 7.0)).bounds == ((1.0, 3.0), (0.0, 7.0))
    assert Sphere().bounds == ((-90.0, 90.0), (0.0, 360.0))
    assert Box.unit(2).coordinate_names == ("y1", "y2")
    assert dict(zip(Sphere().coordinate_names, Sphere().coordinate_units, strict=True)) == {
        "latitude": "degrees_north",
        "longitude": "degrees_east",
    }


def test_contains():
    y = np.array([[0.5, 0.5], [-0.001, 0.5], [0.5, 1.1]])
    assert Box.unit(2).contains(y).tolist() == [True, False, False]
    assert Box.unit(2).contains(y, tolerance=0.01).tolist() == [True, True, False]
    assert Torus.unit(2).contains(y).all()
    assert Torus((0.0, 0.0), (1.0, 1.0), (False, True)).contains(y).tolist() == [True, False, True]
    places = np.array([[90.0, -180.0], [-90.0, 360.0], [91.0, 0.0], [0.0, 361.0]])
    assert Sphere().contains(places).tolist() == [True, True, False, False]
    assert ZONE.contains(np.array([[-60.0, 355.0], [-61.0, 0.0], [30.5, 0.0]])).tolist() == [True, False, False]
    assert ZONE.contains(np.array([[-60.5, 0.0]]), tolerance=0.01).all()


def test_a_domain_without_facts_has_defaults():
    disk = UnitDisk()
    np.testing.assert_allclose(disk.bounds, [(-1.0, 1.0), (-1.0, 1.0)], atol=1e-6)
    assert disk.periods == (None, None)
    assert disk.contains(np.array([[0.6, 0.6], [0.8, 0.8]])).tolist() == [True, False]
    np.testing.assert_array_equal(area_weights(disk, np.zeros((4, 2))), 0.25)
    rule = rule_on(disk)
    assert isinstance(rule, QuasiMonteCarlo)
    assert rule.w @ jnp.sum(rule.z**2, axis=1) == pytest.approx(math.pi / 2, rel=1e-3)
    assert isinstance(position_on(disk), Harmonic)
    assert domain_from_json(disk.to_json()) == disk


def test_a_domain_whose_fields_are_no_json_needs_methods():
    class Cloud(UnitDisk):
        points: jax.Array = eqx.field(default_factory=lambda: jnp.zeros((3, 2)))

    with pytest.raises(
        ValueError, match=r"a Cloud cannot be stored.* give Cloud the methods `to_json` and `from_json`"
    ):
        Cloud().to_json()
