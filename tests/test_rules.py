"""Rules: exactness, observed orders, nodes where they belong."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.domains import Box, Sphere, Torus
from loca.positions import Spherical
from loca.rules import GaussLegendre, MonteCarlo, OwnQueries, QuasiMonteCarlo, SphereProduct, Trapezoid, rule_on

SHIFTED = {1: Box((-1.0,), (2.5,)), 2: Box((-1.0, 3.0), (0.5, 7.0)), 3: Box((0.1, -2.0, 0.0), (0.3, 1.0, 1.0))}


@pytest.mark.parametrize("dimension", SHIFTED)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_gauss_legendre_is_exact_to_degree_2q_minus_1_and_no_further(dimension, count):
    with jax.enable_x64(True):
        box = SHIFTED[dimension]
        rule = GaussLegendre(box, count)
        t = box.to_unit(rule.z)
        for degree in range(2 * count):
            exact = box.volume / (degree + 1) ** dimension
            assert rule.w @ jnp.prod(t**degree, axis=1) == pytest.approx(exact, rel=1e-13)
        beyond = 2 * count
        exact = box.volume / (beyond + 1)
        assert abs(rule.w @ (t[:, 0] ** beyond) - exact) > 1e-6 * exact


def test_trapezoid_is_exact_below_its_frequency_and_spectral_beyond():
    with jax.enable_x64(True):
        torus = Torus((1.0, -2.0), (4.0, 0.0))
        rule = Trapezoid(torus, (8, 5))
        t = torus.to_unit(rule.z)
        for j in range(-7, 8):
            for k in range(-4, 5):
                wave = jnp.cos(2 * math.pi * (j * t[:, 0] + k * t[:, 1]))
                assert rule.w @ wave == pytest.approx(torus.volume * (j == k == 0), abs=1e-13)
        errors = []
        for count in (4, 8, 16):  # ∫ exp(cos) = period · I₀(1)
            rule = Trapezoid(Torus((0.0,), (1.0,)), count)
            bessel = np.i0(1.0)
            errors.append(abs(rule.w @ jnp.exp(jnp.cos(2 * math.pi * rule.z[:, 0])) - bessel))
        assert errors[0] > 1e-3 > errors[0] ** 2 > errors[1]  # faster than any power: the digits more than double
        assert errors[2] < 1e-14


def test_sphere_product_is_exact_for_harmonics():
    """∫ Y_ℓᵐ Y_ℓ′ᵐ′ = δ for products of degree below 2·latitudes: orthonormality, and so the area weights."""
    with jax.enable_x64(True):
        rule = SphereProduct(Sphere(), 6)
        harmonics = Spherical(rule.domain, 5)(rule.z)
        gram = jnp.einsum("q,qa,qb->ab", rule.w, harmonics, harmonics)
        assert jnp.allclose(gram, jnp.eye(gram.shape[0]), atol=1e-12)
        assert jnp.sum(rule.w) == pytest.approx(4 * math.pi)
        above = Spherical(rule.domain, 12)(rule.z)[:, 12**2 - 1 + 12]  # Y_12⁰, of degree 2·latitudes
        assert abs(rule.w @ above) > 1e-6


@pytest.mark.parametrize("rule", [MonteCarlo, QuasiMonteCarlo])
def test_random_nodes_depend_on_the_key_only(rule):
    first, again, other = (rule(SHIFTED[2], 8, key=jax.random.key(seed)).z for seed in (0, 0, 1))
    assert jnp.array_equal(first, again)
    assert not jnp.isclose(first, other).any()


def test_own_queries_weigh_the_domain():
    rule = OwnQueries(SHIFTED[2])
    y = rule.domain.sample(jax.random.key(0), 9)
    z, w = rule(y)
    assert z is y
    assert jnp.sum(w) == pytest.approx(rule.domain.volume)


def test_each_domain_has_its_rule():
    assert isinstance(rule_on(SHIFTED[2]), GaussLegendre)
    assert isinstance(rule_on(Torus.unit(1)), Trapezoid)
    assert isinstance(rule_on(Sphere()), SphereProduct)
    for many in (Box.unit(4), Torus.unit(5)):
        rule = rule_on(many)
        assert isinstance(rule, QuasiMonteCarlo)
        assert rule.w @ jnp.prod(many.to_unit(rule.z), axis=1) == pytest.approx(0.5**many.dimension, rel=0.02)


def test_rules_refuse_domains_without_the_coordinates_they_need():
    with pytest.raises(ValueError, match=r"only periodic coordinates, got Box.*use `GaussLegendre`"):
        Trapezoid(Box.unit(2), 4)
    with pytest.raises(ValueError, match="such as `Sphere`, got Torus"):
        SphereProduct(Torus.unit(2), 4)


def test_counts_are_checked():
    with pytest.raises(ValueError, match="use 64 or 128"):
        QuasiMonteCarlo(Box.unit(2), 100, key=jax.random.key(0))
    with pytest.raises(ValueError, match="2 of them for a 2-dimensional domain"):
        GaussLegendre(Box.unit(2), (3, 4, 5))
