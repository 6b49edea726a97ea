"""Position encodings: the features promised, and the continuity of each domain."""

import math

import jax
import jax.numpy as jnp
import pytest

from loca.domains import Box, Sphere, Torus, unit_vectors
from loca.positions import Harmonic, Periodic, Spherical, position_on


def test_harmonic_features_in_order():
    e = Harmonic(Box((0.0, 2.0), (1.0, 4.0)), 4)
    t = (0.3, 0.7)
    waves = [f(2**j * math.pi * c) for c in t for j in (0, 1) for f in (math.cos, math.sin)]
    assert jnp.allclose(e(jnp.array([0.3, 3.4])), jnp.array([*t, *waves]), atol=1e-6)
    assert e.size == 2 * (1 + 4)


def test_the_printed_encoding_confuses_the_ends():
    """With j from 1 and no coordinates, as the paper prints it, y = 0 and y = 1 are the same point; ours differ."""
    ends = jnp.array([[0.0], [1.0]])
    printed = Harmonic(Box.unit(1), 6, start=1, include_raw=False)(ends)
    assert jnp.allclose(printed[0], printed[1], atol=1e-5)
    ours = Harmonic(Box.unit(1), 6)(ends)
    assert jnp.linalg.norm(ours[0] - ours[1]) > 2.0


def test_periodic_features_and_derivatives_agree_across_the_seam():
    e = Periodic(Torus((-1.0, 0.0), (1.0, 3.0)), 6)
    a, b = jnp.array([-1.0, 1.1]), jnp.array([1.0, 1.1])
    assert jnp.allclose(e(a), e(b), atol=1e-5)
    assert jnp.allclose(jax.jacobian(e)(a), jax.jacobian(e)(b), atol=1e-4)


def test_spherical_harmonics_obey_the_addition_theorem(getkey):
    """Σ_m Y_ℓᵐ(a) Y_ℓᵐ(b) = (2ℓ + 1)/4π · P_ℓ(a·b)."""
    with jax.enable_x64(True):
        sphere, degree = Sphere(), 7
        e = Spherical(sphere, degree)
        a, b = sphere.sample(getkey(), 50), sphere.sample(getkey(), 50)
        cosine = jnp.sum(unit_vectors(a) * unit_vectors(b), axis=1)
        y_a, y_b = e(a), e(b)
        legendre = [jnp.ones_like(cosine), cosine]
        for ell in range(1, degree + 1):
            block = slice(ell**2 - 1, (ell + 1) ** 2 - 1)
            sums = jnp.sum(y_a[:, block] * y_b[:, block], axis=1)
            assert jnp.allclose(sums, (2 * ell + 1) / (4 * math.pi) * legendre[ell], atol=1e-12)
            legendre.append(((2 * ell + 1) * cosine * legendre[ell] - ell * legendre[ell - 1]) / (ell + 1))


def test_each_domain_has_its_encoding():
    assert isinstance(position_on(Box.unit(2)), Harmonic)
    assert isinstance(position_on(Torus.unit(2)), Periodic)
    assert isinstance(position_on(Sphere()), Spherical)
    assert isinstance(position_on(Torus((0.0, 0.0), (1.0, 1.0), (False, True))), Periodic)


def test_on_a_cylinder_only_the_periodic_coordinate_wraps():
    cylinder = Torus((-1.0, 0.0), (1.0, 3.0), (False, True))
    e = Periodic(cylinder, 6)
    y = jnp.array([0.3, 0.1])
    assert e(y).shape == (e.size,) == (13,)
    assert jnp.allclose(e(y), e(y + jnp.array([0.0, 3.0])), atol=1e-5)
    assert not jnp.allclose(e(y), e(y + jnp.array([2.0, 0.0])), atol=1e-2)
    ends = e(jnp.array([[-1.0, 0.1], [1.0, 0.1]]))
    assert not jnp.allclose(ends[0], ends[1], atol=1e-2)


def test_errors_say_the_way_out():
    with pytest.raises(ValueError, match="must be even, got 5; pass 4"):
        Harmonic(Box.unit(1), 5)
    with pytest.raises(ValueError, match="2-dimensional"):
        Harmonic(Box.unit(2), 4)(jnp.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"a domain with periodic coordinates, got Box.*use `Harmonic`"):
        Periodic(Box.unit(2))
    with pytest.raises(ValueError, match=r"domain of \(latitude, longitude\), got Torus.*use `Harmonic`"):
        Spherical(Torus.unit(2))
