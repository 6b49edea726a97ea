"""Area weights: exact areas, observed order, poles, patches."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from loca.domains import Box, Sphere, Torus, area_weights


def grid(latitude, longitude):
    return np.stack(np.meshgrid(latitude, longitude, indexing="ij"), axis=-1).reshape(-1, 2)


def with_poles(rows):
    return np.linspace(90.0, -90.0, rows)


def centered(rows):
    return 90.0 - 180.0 / rows * (np.arange(rows) + 0.5)


def gaussian(rows):
    return np.degrees(np.arcsin(np.polynomial.legendre.leggauss(rows)[0]))


LAYOUTS = [with_poles, centered, gaussian]


def longitudes(count):
    return 360.0 / count * np.arange(count)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_cells_cover_the_sphere(layout):
    """The areas, of bands computed here one by one, add up to 4π; the weights are their shares."""
    latitude = np.sort(layout(24))
    edges = np.concatenate([[-90.0], 0.5 * (latitude[1:] + latitude[:-1]), [90.0]])
    areas = 2.0 * math.pi / 48 * np.repeat(np.diff(np.sin(np.radians(edges))), 48)
    assert areas.sum() == pytest.approx(4.0 * math.pi, rel=1e-14)
    weights = area_weights(Sphere(), grid(latitude, longitudes(48)))
    np.testing.assert_allclose(Sphere().volume * weights, areas, rtol=1e-12)


# closed forms of means over the sphere, not all of them zero; all but the first vary along both coordinates
MEANS = {
    "sin²": (lambda f, g: np.sin(f) ** 2, 1 / 3),
    "Y₂ even": (lambda f, g: (np.cos(f) * np.cos(g)) ** 2, 1 / 3),
    "Y₃": (lambda f, g: np.sin(f) * (5 * np.sin(f) ** 2 - 3) + np.cos(f) * np.cos(g), 0.0),
    "exp z": (lambda f, g: np.exp(np.sin(f)), math.sinh(1.0)),
    "exp x": (lambda f, g: np.exp(np.cos(f) * np.cos(g)), math.sinh(1.0)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_constants_are_exact_and_smooth_functions_converge_at_order_two(layout):
    for name, (function, exact) in MEANS.items():
        errors = []
        for rows in (16, 32, 64):
            y = grid(layout(rows), longitudes(2 * rows))
            weights = area_weights(Sphere(), y)
            assert weights.sum() == pytest.approx(1.0, rel=1e-14)
            errors.append(abs(weights @ function(*np.radians(y.T)) - exact))
        if name == "Y₃":  # odd: symmetric rows cancel
            assert max(errors) < 1e-14
        else:
            orders = np.log2(np.divide(errors[:-1], errors[1:]))
            np.testing.assert_allclose(orders, 2.0, atol=0.2, err_msg=name)


def test_the_paper_s_grid_without_its_southern_pole_covers_the_sphere():
    """72 × 72: row 87.5° S takes the place of the pole that was left out."""
    weights = area_weights(Sphere(), grid(np.linspace(90.0, -87.5, 72), np.linspace(0.0, 355.0, 72))).reshape(72, 72)
    assert weights[-1].sum() == pytest.approx(0.5 * (1.0 - math.cos(math.radians(3.75))), rel=1e-12)
    assert weights[0].sum() == pytest.approx(0.5 * (1.0 - math.cos(math.radians(1.25))), rel=1e-12)


def test_order_of_points_and_convention_of_longitudes_do_not_matter(getkey):
    y = grid(gaussian(12), longitudes(24))
    weights = area_weights(Sphere(), y)
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(area_weights(Sphere(), y[order]), weights[order], rtol=1e-12)
    west = np.stack([y[:, 0], (y[:, 1] + 180.0) % 360.0 - 180.0], axis=-1)
    np.testing.assert_allclose(area_weights(Sphere(), west), weights, rtol=1e-12)
    np.testing.assert_allclose(area_weights(Sphere(), jnp.asarray(y, jnp.float32)), weights, rtol=1e-4)


def test_a_meridian_given_twice_counts_once():
    closed = area_weights(Sphere(), grid(gaussian(6), np.linspace(0.0, 360.0, 13))).reshape(6, 13)
    once = area_weights(Sphere(), grid(gaussian(6), longitudes(12))).reshape(6, 12)
    np.testing.assert_allclose(closed[:, 1:-1], once[:, 1:], rtol=1e-12)
    np.testing.assert_allclose(closed[:, 0] + closed[:, -1], once[:, 0], rtol=1e-12)


def test_uneven_longitudes_share_the_circle():
    uneven = np.array([0.0, 10.0, 90.0, 180.0, 200.0, 290.0])
    weights = area_weights(Sphere(), grid(centered(4), uneven)).reshape(4, 6)
    cells = [(70 + 10) / 2, (10 + 80) / 2, (80 + 90) / 2, (90 + 20) / 2, (20 + 90) / 2, (90 + 70) / 2]
    np.testing.assert_allclose(weights.sum(0), np.array(cells) / 360.0, rtol=1e-12)


def test_an_even_patch_weighs_cos_latitude():
    """sin(φ + h/2) − sin(φ − h/2) = 2 cos φ sin(h/2): on even rows away from the poles bands are cosines exactly."""
    y = grid(np.arange(55.0, 29.0, -2.5), np.arange(-15.0, 16.0, 2.5))
    cosines = np.cos(np.radians(y[:, 0]))
    np.testing.assert_allclose(area_weights(Sphere(), y), cosines / cosines.sum(), rtol=1e-12)


def test_points_out_of_a_grid_weigh_cos_latitude():
    y = grid(with_poles(19)[1:-1], longitudes(36))[np.random.default_rng(1).permutation(17 * 36)[:200]]
    cosines = np.cos(np.radians(y[:, 0]))
    np.testing.assert_allclose(area_weights(Sphere(), y), cosines / cosines.sum(), rtol=1e-12)


@pytest.mark.parametrize("domain", [Box((0.0, 0.0), (90.0, 360.0)), Torus.unit(2)], ids=repr)
def test_elsewhere_weights_are_equal(domain):
    np.testing.assert_array_equal(area_weights(domain, grid([10.0, 60.0], [0.0, 90.0])), 0.25)


def test_what_is_not_a_latitude_is_refused():
    with pytest.raises(ValueError, match=r"\(latitude, longitude\)"):
        area_weights(Sphere(), grid(longitudes(8), centered(4)))
    with pytest.raises(ValueError, match="2-dimensional"):
        area_weights(Sphere(), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="more than once"):
        area_weights(Sphere(), grid(centered(4), np.arange(-180.0, 360.0, 30.0)))
