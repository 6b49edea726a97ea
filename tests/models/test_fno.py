"""Fourier neural operators: what theory says of their layers, their grid, and their units."""

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Normalization, Samples
from loca.domains import Box, Sphere, Torus
from loca.models import FNO, Grid
from loca.models.grid import SpectralLayer, to_frequencies, to_grid


def frequencies(modes):
    """The integer frequencies that a layer keeps, one array for each axis, each of the shape of the whole."""
    *others, last = modes
    return np.meshgrid(*(np.r_[:m, -m:0] for m in others), np.arange(last), indexing="ij")


def make_layer(modes, R, weight=0.0, bias=0.0):
    """The layer with given numbers; R has shape (*modes, w, w), or (*modes) for the same on every channel."""
    R = np.asarray(R, complex)
    if R.ndim == len(modes):
        R = R[..., None, None] * np.eye(3)
    width = R.shape[-1]
    parts = (R.real, R.imag, np.broadcast_to(weight, (width, width)), np.broadcast_to(bias, (width,)))
    empty = eqx.filter_eval_shape(SpectralLayer, modes, width, key=jax.random.key(0))
    numbers = tuple(jnp.asarray(part, float) for part in parts)
    return eqx.tree_at(lambda layer: (layer.real, layer.imag, layer.weight, layer.bias), empty, numbers)


@eqx.filter_jit
def apply(layer, h):
    """The layer on one function, with channels last."""
    return jnp.moveaxis(layer(jnp.moveaxis(h, -1, 0)[:, None])[:, 0], 0, -1)


class Waves:
    """Σⱼ aⱼ cos(2π kⱼ·x + pⱼ) on the unit torus, three channels."""

    def __init__(self, rng, k):
        self.k = np.asarray(k)  # (waves, d)
        self.a, self.p = rng.normal(size=(2, len(self.k), 3))

    def angle(self, shape):
        x = np.stack(np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij"), axis=-1)
        return 2 * np.pi * (x @ self.k.T)[..., None] + self.p

    def __call__(self, *shape):
        return jnp.asarray(np.sum(self.a * np.cos(self.angle(shape)), axis=-2), float)

    def derivative(self, axis, *shape):
        slopes = -2 * np.pi * self.k[:, axis, None] * self.a
        return jnp.asarray(np.sum(slopes * np.sin(self.angle(shape)), axis=-2), float)


def waves_inside(rng, modes, count=5):
    """A function of the frequencies |kᵢ| < mᵢ."""
    return Waves(rng, np.stack([rng.integers(1 - m, m, count) for m in modes], axis=-1))


def close(a, b, tolerance=1e-5):
    assert a.shape == b.shape
    return float(jnp.max(jnp.abs(a - b))) <= tolerance * float(jnp.max(jnp.abs(b)))


SHAPES = [
    ((16,), (4,)),
    ((15,), (8,)),
    ((12, 13), (3, 4)),
    pytest.param((9, 8), (4, 5), marks=pytest.mark.full),
    ((7, 8, 9), (2, 3, 3)),
    pytest.param((6, 5, 8), (3, 2, 4), marks=pytest.mark.full),
]


@pytest.mark.parametrize(("shape", "modes"), SHAPES)
def test_identity_on_kept_frequencies_is_the_ideal_low_pass(shape, modes):
    rng = np.random.default_rng(0)
    *others, last = modes
    layer = functools.partial(apply, make_layer(modes, np.ones_like(frequencies(modes)[0])))
    low = waves_inside(rng, modes)
    assert close(layer(low(*shape)), low(*shape))
    # one frequency too many along the last axis, if the grid has it: nothing passes
    if last <= shape[-1] // 2:
        high = Waves(rng, [(*(0 for _ in others), last)])
        assert close(layer(low(*shape) + high(*shape)), low(*shape))
    # along the others −m … m − 1 are kept, so that −m passes and m does not
    if others and others[0] < shape[0] / 2:
        edge = [[sign * others[0], *(0 for _ in others[1:]), 1] for sign in (-1, 1)]
        passes, stops = (Waves(rng, [k]) for k in edge)
        assert close(layer(passes(*shape) + stops(*shape)), passes(*shape))


@pytest.mark.parametrize(
    ("shape", "modes"),
    [((16,), (5,)), pytest.param((15,), (8,), marks=pytest.mark.full), ((9, 8), (4, 4)), ((5, 6, 7), (2, 3, 3))],
)
def test_symbol_of_the_derivative_differentiates(shape, modes):
    wave = waves_inside(np.random.default_rng(0), modes)
    for axis, k in enumerate(frequencies(modes)):
        layer = make_layer(modes, 2j * np.pi * k)
        assert close(apply(layer, wave(*shape)), wave.derivative(axis, *shape))


@pytest.mark.parametrize(("grid", "kept"), [((9,), (5,)), ((8, 5), (8, 3)), ((9, 7, 6), (4, 6, 4))])
def test_transforms_are_the_fast_ones_at_the_kept_frequencies(grid, kept):
    h = np.random.default_rng(4).normal(size=(2, 3, *grid))
    with jax.enable_x64(True):
        spectrum = to_frequencies(jnp.asarray(h), kept)
        back = to_grid(spectrum, kept, grid)
    fast = np.fft.rfftn(h, axes=range(2, h.ndim))
    *others, last = kept
    places = np.ix_(*(np.r_[: k // 2, -(k // 2) : 0] for k in others), range(last))
    low = fast[(..., *places)]
    # the last axis of the grid varies slowest
    by_hand = np.moveaxis(low, range(2, h.ndim), range(h.ndim - 1, 1, -1)).reshape(2, 3, -1)
    assert np.allclose(np.asarray(spectrum) @ [1, 1j], by_hand, rtol=0, atol=1e-12)
    only = np.zeros_like(fast)
    only[(..., *places)] = low
    assert np.allclose(back, np.fft.irfftn(only, grid, axes=range(2, h.ndim)), rtol=0, atol=1e-13)


def random_model(normalization, grid, **options):
    """A model of two layers filled by NumPy, which saves compiling its own initialization."""
    empty = eqx.filter_eval_shape(lambda: FNO(normalization, grid, width=4, depth=2, **options, key=KEY))
    rng = np.random.default_rng(13)
    filled = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) / 2, float), empty)
    return eqx.tree_at(lambda m: (m.normalization, m.grid), filled, (normalization, grid))


def plain_layer(layer, h):
    """The layer as a plain sum over frequencies, without any fast transform."""
    *grid, _ = h.shape
    modes = (*(n // 2 for n in layer.real.shape[: len(grid) - 1]), layer.real.shape[len(grid) - 1])
    points = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1)
    out = h @ np.asarray(layer.weight) + np.asarray(layer.bias)
    for place, k in zip(
        np.ndindex(*layer.real.shape[:-2]), zip(*(f.flat for f in frequencies(modes)), strict=True), strict=True
    ):
        wave = np.exp(2j * np.pi * points @ (np.array(k) / grid))
        coefficient = np.einsum("p,pi->i", wave.conj().reshape(-1), h.reshape(-1, h.shape[-1])) / math.prod(grid)
        R = np.asarray(layer.real[place]) + 1j * np.asarray(layer.imag[place])
        twice = 1 if k[-1] == 0 or 2 * k[-1] == grid[-1] else 2  # for the conjugate frequency, which is not stored
        out = out + twice * np.real(wave[..., None] * (coefficient @ R))
    return out


@pytest.mark.usefixtures("x64")
def test_formula_with_padding():
    """The whole model against a plain transcription."""
    axes = (jnp.linspace(1.0, 3.0, 4), jnp.linspace(0.0, 1.0, 5))
    normalization = Normalization.identity(2, 3)
    model = random_model(normalization, Grid(axes, (None, None)), modes=(3, 4), padding=(2, 3))
    rng = np.random.default_rng(5)
    u = rng.normal(size=(20, 2))
    t = np.stack(np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 5), indexing="ij"), axis=-1)
    h = np.concatenate([u.reshape(4, 5, 2), t], axis=-1) @ np.asarray(model.lift.weights[0]) + model.lift.biases[0]
    h = np.pad(h, ((0, 2), (0, 3), (0, 0)))
    h = plain_layer(model.layers[1], np.asarray(jax.nn.gelu(plain_layer(model.layers[0], h))))[:4, :5]
    y = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    s, by_hand = eqx.filter_jit(lambda u, h: (model(u, y), model.project(h)))(jnp.asarray(u), jnp.asarray(h))
    assert close(s, by_hand.reshape(20, 3), 1e-12)


UNEVEN = (
    np.array([0.0, 0.1, 0.5, 0.7, 2.0]),
    np.array([90.0, 60.0, 10.0, -20.0, -90.0]),  # downwards
    np.array([-1.0, 0.0, 3.0]),
)


def interpolate(axes, values, y, periods=None):
    grid = Grid(tuple(jnp.asarray(axis, float) for axis in axes), periods or (None,) * len(axes))
    return interpolate_on(grid, jnp.asarray(values, float), jnp.asarray(y, float))


@eqx.filter_jit
def interpolate_on(grid, values, y):
    return grid.interpolation(y)(values)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_interpolation_is_exact_on_multilinear_functions(dimension):
    rng = np.random.default_rng(6)
    axes = UNEVEN[:dimension]
    a, b = rng.normal(size=(2, dimension, 2))

    def s(y):
        return np.prod(a + b * y[..., None], axis=-2)

    low, high = np.array([(min(axis), max(axis)) for axis in axes]).T
    y = rng.uniform(low, high, size=(40, dimension))
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    assert close(interpolate(axes, s(points), y), s(y))
    # beyond the ends, the value at the end
    beyond = y + (high - low) * rng.choice([-1, 1], size=y.shape)
    assert close(interpolate(axes, s(points), beyond), s(np.clip(beyond, low, high)))


def test_interpolation_gives_back_the_values_on_the_grid():
    rng = np.random.default_rng(7)
    points = np.stack(np.meshgrid(*UNEVEN, indexing="ij"), axis=-1)
    values = jnp.asarray(rng.normal(size=(*points.shape[:-1], 2)), float)
    assert jnp.array_equal(interpolate(UNEVEN, values, points.reshape(-1, 3)), values.reshape(-1, 2))


@pytest.mark.parametrize("start", [0.0, -180.0])
@pytest.mark.parametrize("direction", [1, -1])
def test_longitude_wraps(start, direction):
    longitude = start + np.arange(0.0, 360.0, 5.0)
    values = np.random.default_rng(9).normal(size=72)
    y = np.array([359.0, -1.0, 719.0, 357.5, 0.0, 360.0, 181.0, -179.0])[:, None]
    # by hand: how far from the multiple of five below, and which values are there
    at = {float(d) % 360.0: v for d, v in zip(longitude, values, strict=True)}
    by_hand = [
        (1 - part) * at[below % 360.0] + part * at[(below + 5.0) % 360.0]
        for below, part in ((355.0, 0.8), (355.0, 0.8), (355.0, 0.8), (355.0, 0.5), (0.0, 0.0), (0.0, 0.0))
        + ((180.0, 0.2),) * 2
    ]
    s = interpolate([longitude[::direction]], values[::direction, None], y, (360.0,))
    assert close(s[:, 0], jnp.asarray(by_hand))


def test_an_axis_with_both_ends_of_its_period_gives_numbers():
    """−1e-9 modulo 1 is 1 in 32 bits: the query falls into the gap of zero between the last point and the first."""
    axis = jnp.linspace(0.0, 1.0, 5)
    values = jnp.cos(2 * jnp.pi * axis)
    s = interpolate([axis], values[:, None], jnp.array([[-1e-9], [0.0], [1.0], [0.99]]), (1.0,))
    assert close(s[:, 0], jnp.array([1.0, 1.0, 1.0, 0.96]))


def test_an_axis_of_one_point_is_constant():
    s = interpolate([np.array([2.0]), np.array([0.0, 1.0])], [[[3.0], [5.0]]], [[2.0, 0.5], [9.0, 1.0]])
    assert jnp.array_equal(s, jnp.array([[4.0], [5.0]]))
    grid = Grid((jnp.array([2.0]), jnp.array([0.0, 1.0])), (None, None))
    assert jnp.array_equal(grid.coordinates(), jnp.array([[[0.0, 0.0], [0.0, 1.0]]]))


def test_grid_of_a_sphere():
    """Latitude from the north, longitude around: read off the sensors, in their order."""
    latitude, longitude = np.array([60.0, 0.0, -60.0]), np.arange(0.0, 360.0, 90.0)
    x = jnp.asarray([*itertools.product(latitude, longitude)], float)
    data = Samples(jnp.ones((2, 12, 1)), x, jnp.ones((2, 12, 1)), x=x, domain=Sphere())
    grid = Grid.of(data)
    assert [axis.tolist() for axis in grid.axes] == [latitude.tolist(), longitude.tolist()]
    field = jnp.arange(12.0).reshape(3, 4, 1)
    assert interpolate_on(grid, field, jnp.array([[30.0, 315.0]])).item() == pytest.approx((3 + 0 + 7 + 4) / 4)


KEY = jax.random.key(0)
AXES = (np.arange(6) / 6, np.arange(8) / 8)
X = jnp.asarray([*itertools.product(*AXES)], float)


def make_data():
    """Three pairs of smooth functions on the unit torus, with two input and two output channels."""
    rng = np.random.default_rng(10)
    u = rng.normal(size=(3, 48, 2))
    s = np.stack([np.sin(u[..., 0]), u[..., 0] * u[..., 1]], axis=-1)
    return Samples(jnp.asarray(u, float), X, jnp.asarray(s, float), x=X, domain=Torus.unit(2))


def test_input_without_time_is_repeated_along_it():
    """With output on (t, x₁, x₂) and input on (x₁, x₂), the model is that of the input repeated at every time."""
    t = np.array([0.0, 1.0, 3.0, 4.0])
    y = jnp.asarray([(a, *x) for a in t for x in itertools.product(*AXES)], float)
    data = make_data()
    s = jnp.tile(data.s, (1, 4, 1))
    data = Samples(data.u, y, s, x=X, domain=Box((0.0, 0.0, 0.0), (4.0, 1.0, 1.0)))
    grid = Grid.of(data)
    assert grid.axes[0].tolist() == t.tolist()
    evolving, full = (
        random_model(Normalization.identity(2, 2), grid, modes=(1, 2, 3))
        for grid in (grid, Grid(grid.axes, grid.periods))
    )
    u = data.u[0]
    queries = jnp.asarray([[0.0, 0.3, 0.2], [2.0, 0.3, 0.2], [2.0, 0.7, 0.9], [4.0, 0.0, 0.5]])
    s, by_hand = eqx.filter_jit(lambda u: (evolving(u, queries), full(jnp.tile(u, (4, 1)), queries)))(u)
    assert close(s, by_hand)
    assert not close(s[:1], s[1:2], 1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modes": (4, 3)}, "axis 0 .* 6 points and 0 of padding, which resolve 3 .* keep at most 3 or pad more"),
        ({"modes": 2, "padding": (1, 2, 3)}, "one number for each axis of the grid"),
    ],
)
def test_frequencies_must_fit_the_grid(options, message):
    with pytest.raises(ValueError, match=message):
        FNO.create(make_data(), **options, key=KEY)


def test_sensors_must_form_a_grid():
    data = make_data()
    scattered = jnp.asarray(np.random.default_rng(12).uniform(size=(48, 2)), float)
    with pytest.raises(ValueError, match="do not form one; interpolate the inputs to a grid first, or use LOCA"):
        Grid.of(Samples(data.u, data.y, data.s, x=scattered))
    with pytest.raises(ValueError, match=r"2-dimensional but its queries only 1-dimensional.* use LOCA"):
        Grid.of(Samples(data.u, X[:, 1:], data.s, x=X, domain=Torus.unit(1)))


def test_numbers_of_sensors_are_no_coordinates():
    """Five parameters at 0 … 4 are no grid for a curve over [0, 2]; pixels at 0 … 4 are one for points between them."""
    u, t = jnp.ones((2, 5)), jnp.linspace(0.0, 2.0, 9)
    with pytest.raises(ValueError, match="which numbers them, but the queries are from 0 to 2"):
        Grid.of(Samples(u, t, jnp.ones((2, 9)), x=jnp.arange(5.0)))
    assert Grid.of(Samples(u, 2.0 * t, jnp.ones((2, 9)), x=jnp.arange(5.0))).shape == (5,)
    assert Grid.of(Samples(u, t[::4], jnp.ones((2, 3)), x=jnp.arange(5.0))).shape == (5,)


def test_inputs_and_queries_must_be_on_the_grid():
    data = make_data()
    model = FNO.create(data, modes=(2, 3), width=4, depth=2, key=KEY)
    with pytest.raises(ValueError, match=r"expected u of shape \(48, 2\).* got \(47, 2\); interpolate to that grid"):
        model(data.u[0, :47], X)
    with pytest.raises(ValueError, match="`y` has 1 columns but the grid has 2 axes"):
        model.at(X[:, :1])
