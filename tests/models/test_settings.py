"""The paper's settings: parameter counts of its table, 14 of 15, and coordinates of any domain."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Normalization, Samples
from loca.domains import Box, Sphere
from loca.encoders import HarmonicSensors
from loca.models import FNO, LOCA, SETTINGS, DeepONet, Grid
from loca.models.settings import coordinates
from loca.nets import MLP
from loca.parameters import count
from loca.positions import Harmonic


def data(setting):
    y = setting.domain.sample(jax.random.key(0), 4)
    sensors = math.prod(setting.sensors)
    return Samples(
        jnp.zeros((1, sensors, setting.input_size)), y, jnp.zeros((1, 4, setting.output_size)), domain=setting.domain
    )


def loca_count(name, **changes):
    setting = dataclasses.replace(SETTINGS[name], **changes)
    return count(setting.loca(data(setting), key=jax.random.key(0))) - 1  # the rate is not in the paper's count


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("antiderivative", {"sensors": (1000,)}, 1_677_300),  # the paper's count needs m = 1000, its text says 500
        ("mechanical-mnist", {}, 2_475_060),
        ("shallow-water", {}, 5_528_484),
        ("climate", {}, 1_239_500),
    ],
)
def test_loca_has_the_parameters_of_the_paper(name, changes, expected):
    assert loca_count(name, **changes) == expected


def test_loca_for_darcy_cannot_have_those_of_the_paper():
    """No layout of the sizes it states gives 381,000; they give this."""
    assert loca_count("darcy") == 149_100


@pytest.mark.parametrize(
    ("name", "sensors", "harmonics", "query_dimension", "expected"),
    [
        ("antiderivative", 1000, 2, 1, 2_186_672),
        ("darcy", 1024, 2, 2, 449_400),  # the table says H = 6; the count needs 2
        ("mechanical-mnist", 784, 4, 3, 3_050_300),  # H = 10 and two coordinates; the count needs 4 and three
        ("shallow-water", 1024, 2, 3, 5_565_660),
        ("climate", 5184, 10, 2, 5_805_800),
    ],
)
def test_deeponet_has_the_parameters_of_the_paper(name, sensors, harmonics, query_dimension, expected):
    """Every count needs the last layer twice, which no text mentions, and no bias."""
    setting = SETTINGS[name]
    outputs = setting.num_features * setting.output_size
    don = DeepONet.create(
        data(setting),
        key=jax.random.key(0),
        encoder=HarmonicSensors(sensors, setting.input_size, num_frequencies=harmonics),
        position=Harmonic(Box.unit(query_dimension), harmonics),
        num_features=setting.num_features,
        branch_widths=(*setting.deeponet_widths, outputs),
        trunk_widths=(*setting.deeponet_widths, outputs),
    )
    assert count(don) - setting.output_size == expected


@pytest.mark.parametrize(
    ("name", "grid", "printed", "real"),
    [
        ("antiderivative", (1000,), 1_333_757, 2_613_757),
        ("darcy", (32, 32), 532_993, 1_057_281),
        ("mechanical-mnist", (28, 28), 1_188_514, 2_368_162),
        ("shallow-water", (5, 32, 32), 5_126_690, 10_246_690),
        ("climate", (72, 72), 1_188_353, 2_368_001),
    ],
)
def test_fno_has_the_parameters_of_the_paper(name, grid, printed, real):
    """The paper counts a complex weight as one; shallow water's count holds 200 numbers that nothing uses."""
    setting = SETTINGS[name]
    unused = 200 if name == "shallow-water" else 0
    axes = Grid(tuple(jnp.linspace(0, 1, n) for n in grid), (None,) * len(grid), len(grid) - len(setting.sensors))
    norm = Normalization.identity(setting.input_size, setting.output_size)
    fno = FNO(norm, axes, modes=setting.modes, width=setting.width, padding=setting.padding, key=jax.random.key(0))
    assert count(fno) + unused == real
    complex_weights = sum(layer.real.size for layer in fno.layers)
    assert count(fno) + unused - complex_weights == printed


def test_default_settings_are_those_of_the_tables():
    """Sizes of f, q and g of LOCA as the paper's tables give them."""
    darcy = SETTINGS["darcy"].loca(data(SETTINGS["darcy"]), key=jax.random.key(0))
    assert isinstance(darcy, LOCA)
    assert darcy.q.sizes == (14, 100, 100, 100)
    assert darcy.f.sizes == (768, 100, 100, 100)
    assert isinstance(darcy.g, MLP)
    assert float(darcy.k.rate()) == pytest.approx(0.2)


def test_the_unit_of_length_does_not_matter(getkey):
    setting = SETTINGS["mechanical-mnist"]
    u, s = jax.random.normal(getkey(), (2, 784, 2)), jax.random.normal(getkey(), (2, 5, 2))
    y = jnp.array([[0.0, 0.0], [0.25, 0.5], [0.5, 0.125], [0.75, 1.0], [1.0, 0.0]])
    key = getkey()
    in_sides = setting.loca(Samples(u, y, s, domain=Box.unit(2)), key=key)
    in_pixels = setting.loca(Samples(u, 28.0 * y, s, domain=Box((0.0, 0.0), (28.0, 28.0))), key=key)
    np.testing.assert_allclose(in_pixels(u[0], 28.0 * y), in_sides(u[0], y), rtol=1e-4, atol=1e-5)


def test_the_globe_is_read_as_the_paper_reads_it():
    # (latitude + 90)/180 and longitude/360
    t = coordinates(Sphere()).to_unit(jnp.array([[-90.0, 0.0], [0.0, 90.0], [87.5, 357.5]]))
    np.testing.assert_allclose(t, [[0.0, 0.0], [0.5, 0.25], [177.5 / 180.0, 357.5 / 360.0]], rtol=1e-6)


def on_a_grid(shape, channels=1):
    axes = [np.linspace(0.0, 1.0, n) for n in shape]
    x = jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape)), jnp.float32)
    u = jax.random.normal(jax.random.key(0), (2, len(x), channels))
    return Samples(u, x, u[..., :1], x=x, domain=Box.unit(len(shape)))


@pytest.mark.parametrize("kind", ["loca", "deeponet", "fno"])
def test_a_setting_takes_the_grid_of_the_data(kind):
    """The climate record at hand has 48 x 96 points where the paper has 72 x 72."""
    samples = on_a_grid((24, 40))
    model = getattr(SETTINGS["climate"], kind)(samples, key=jax.random.key(1))
    assert model.predict(samples.u, samples.y).shape == samples.s.shape


@pytest.mark.parametrize("kind", ["loca", "deeponet"])
@pytest.mark.parametrize(
    ("samples", "said"),
    [(on_a_grid((64,)), r"1 channels on a grid \(64,\)"), (on_a_grid((16, 16), 2), "has 2 channels")],
)
def test_a_setting_refuses_data_of_another_kind(kind, samples, said):
    with pytest.raises(ValueError, match=f"1 input channels on a grid of 2 dimensions.*{said}"):
        getattr(SETTINGS["darcy"], kind)(samples, key=jax.random.key(1))
