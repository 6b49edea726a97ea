"""A sheet shows every value where it belongs, in colors that can be told apart, and no writing covers another."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PathCollection, QuadMesh

from loca.data import Samples, Variable
from loca.domains import Box, Sphere
from loca.evaluation import Report
from loca.evaluation.report import RELIABILITY_LEVELS
from loca.figures import reliability, sheet
from loca.figures.panels import MAPS, kind_of, norm_of
from loca.typing import Measurements
from writing import check_writing


def grid(*axes):
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def make(u, y, s, x, **options):
    u, y, s = (jnp.asarray(each, jnp.float32) for each in (u, y, s))
    return Samples(u, y, s, x=jnp.asarray(x, jnp.float32), **options)


def curves():
    x = np.linspace(0, 1, 50)[:, None]
    u = np.sin(np.arange(1, 6)[:, None] * 3 * x.T)[..., None]
    return make(u, x, np.cumsum(u, axis=1) * 1e-3, x, outputs=[Variable("integral", "m s-1")])


def fields():
    x = grid(np.linspace(0, 1, 9), np.linspace(1, 0, 7))  # the second axis runs downwards
    u = (np.arange(5)[:, None] + x[:, 0] + 10 * x[:, 1])[..., None]
    return make(
        u,
        x,
        u - 5.0,
        x,
        inputs=[Variable("permeability", "m2")],
        outputs=[Variable("air_pressure_at_mean_sea_level_in_winter", "Pa")],
    )


def waves():
    c = (np.arange(8) + 0.5) / 8
    x, y = grid(c, c), grid(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), c, c)
    names = [Variable("height", "m"), Variable("velocity_x1", "m s-1"), Variable("velocity_x2", "m s-1")]
    u = np.stack([x[:, 0], -x[:, 1], x[:, 0] * x[:, 1]], axis=-1)[None].repeat(4, axis=0)
    s = np.stack([y[:, 0], y[:, 1], y[:, 2]], axis=-1)[None].repeat(4, axis=0)
    box = Box((0.1, 0.0, 0.0), (0.5, 1.0, 1.0))
    axes = [Variable("t", "s"), Variable("x1"), Variable("x2")]
    return make(u, y, s, x, domain=box, inputs=names, outputs=names, query_coordinates=axes)


def globe():
    x = grid(np.arange(87.5, -90, -5.0), np.arange(0, 360, 5.0))  # from the north, longitudes from Greenwich
    u = (250 + 50 * np.cos(np.radians(x[:, 0])) + x[:, 1])[None, :, None].repeat(3, axis=0)
    return make(u, x, u, x, domain=Sphere(), inputs=[Variable("temperature", "K")], outputs=[Variable("T", "K")])


def region():
    x = grid(np.arange(55.0, 30.0, -2.5), np.arange(-15.0, 15.1, 2.5))
    u = (x[:, 0] + 1000 * x[:, 1])[None, :, None].repeat(2, axis=0)
    return make(u, x, u, x, domain=Sphere())


def scattered():
    generator = np.random.default_rng(0)
    x, y = generator.uniform(size=(4, 30, 2)), generator.uniform(size=(4, 40, 2))
    mask = np.arange(30) < np.array([30, 20, 10, 5])[:, None]
    u = Measurements(*(jnp.asarray(a, jnp.float32) for a in (x[..., :1], x)), jnp.asarray(mask))
    return Samples(u, jnp.asarray(y, jnp.float32), jnp.asarray(y[..., 1:], jnp.float32), domain=Box.unit(2))


SETS = [fields, globe, *(pytest.param(each, marks=pytest.mark.full) for each in (curves, waves, region, scattered))]


def mesh_value(ax, x, y):
    """The value of the cell of a drawn mesh that holds a place."""
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    across, up = mesh.get_coordinates()[0, :, 0], mesh.get_coordinates()[:, 0, 1]
    return mesh.get_array()[np.searchsorted(up, y) - 1, np.searchsorted(across, x) - 1]


def panels(figure):
    """The axes of all panels, column by column, without those of color scales."""
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


@pytest.mark.parametrize("samples", SETS)
def test_writing_stays_inside_and_apart(samples):
    check_writing(sheet(samples(), rows=3))


def test_cells_hold_the_values_of_their_places():
    ax = panels(sheet(fields(), rows=3))[1]  # the second function
    for place in ((0.0, 0.0), (0.5, 1.0), (1.0, 0.5)):
        assert mesh_value(ax, *place) == pytest.approx(1 + place[0] + 10 * place[1], rel=1e-6)


def test_a_map_puts_longitudes_and_latitudes_where_they_are():
    ax = panels(sheet(globe(), rows=1))[0]
    for latitude, longitude in ((42.5, 10.0), (-67.5, 350.0), (2.5, 181.0)):
        expected = 250 + 50 * np.cos(np.radians(latitude)) + 5 * round(longitude / 5)
        assert mesh_value(ax, longitude, latitude) == pytest.approx(expected, rel=1e-6)


def test_a_region_is_a_flat_map_with_latitude_upwards():
    ax = panels(sheet(region(), rows=1))[0]
    assert ax.get_xlabel() == "longitude"
    assert mesh_value(ax, -15.0, 55.0) == pytest.approx(55.0 - 15_000.0)


def test_padding_is_not_drawn():
    axes = panels(sheet(scattered(), rows=4))[:4]
    drawn = [sum(len(each.get_offsets()) for each in ax.collections if isinstance(each, PathCollection)) for ax in axes]
    assert drawn == [30, 20, 10, 5]


def test_times_are_the_first_and_the_last():
    axes = panels(sheet(waves(), rows=1))
    titles = [ax.get_title() for ax in axes if "height" in ax.get_title()]
    assert titles[1:] == ["output\n$t$ = 0.1 s\nheight (m)", "$t$ = 0.5 s\nheight (m)"]
    assert mesh_value(axes[6], 0.5, 0.5) == pytest.approx(0.5)  # height = t


def test_times_of_their_own_are_gathered():
    y = jax.random.uniform(jax.random.key(0), (600, 3))
    samples = Samples(jnp.ones((1, 9, 1)), y, y[None, :, :1], x=jnp.asarray(grid(np.arange(3.0), np.arange(3.0))))
    axes = panels(sheet(samples, rows=1))[1:]
    drawn = [np.concatenate([each.get_array() for each in ax.collections if len(each.get_offsets())]) for ax in axes]
    t = np.sort(y[:, 0])
    expected = [np.sum(np.abs(t - level) <= np.ptp(t) / 4) for level in (t[0], t[-1])]
    assert [len(values) for values in drawn] == expected
    assert "≈" in axes[0].get_title()


def test_all_times_share_one_color_scale():
    axes = panels(sheet(waves(), rows=1))[3::3]
    limits = {mesh.get_clim() for ax in axes for mesh in ax.collections if isinstance(mesh, QuadMesh)}
    assert len(axes) == 2
    assert limits == {(np.float32(0.1), np.float32(0.5))}


def test_signed_values_diverge_from_zero_and_others_do_not():
    assert kind_of(np.array([-1.0, 3.0])) == "signed"
    norm = norm_of("signed", np.array([-1.0, 3.0]))
    assert (norm.vmin, norm.vmax) == (-3.0, 3.0)
    assert kind_of(np.array([2.0, 3.0])) == "plain"
    assert kind_of(np.array([-0.01, 3.0, np.nan])) == "plain"
    assert (MAPS["signed"], MAPS["plain"]) == ("RdBu_r", "viridis")


def test_missing_values_are_shown_as_missing():
    samples = fields()
    holed = Samples(samples.u.at[0, 3].set(jnp.nan), samples.y, samples.s, x=samples.x)
    ax = panels(sheet(holed, rows=1))[0]
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    assert mesh.get_array().mask.sum() == 1


def test_drawing_leaves_the_style_of_others_alone():
    before = dict(mpl.rcParams)
    sheet(curves())
    assert dict(mpl.rcParams) == before


def test_matplotlib_is_imported_for_figures_only():
    code = "import sys, loca; loca.fit, loca.evaluate, loca.choose; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_legend_of_coverage_hides_no_line():
    levels = np.array(RELIABILITY_LEVELS)[:, None]
    shares = {"pointwise": levels, "simultaneous": levels}
    report = Report((Variable("s"),), {"rmse": np.ones((3, 1))}, reliability=shares)
    figure = reliability({f"a model with a long name, number {i}": report for i in range(3)})
    (legend,) = figure.legends
    assert legend.get_window_extent().y0 >= max(ax.get_window_extent().y1 for ax in figure.axes)
    assert not reliability(report).legends


def test_a_model_has_one_color_in_both_panels_of_reliability():
    both = {kind: np.full((len(RELIABILITY_LEVELS), 1), 0.5) for kind in ("pointwise", "simultaneous")}
    solved = Report((Variable("s"),), {"rmse": np.ones((3, 1))}, reliability={"pointwise": both["pointwise"]})
    calibrated = Report((Variable("s"),), {"rmse": np.ones((3, 1))}, reliability=both)
    left, right = reliability({"Gaussian": solved, "Gaussian, calibrated": calibrated}).axes
    colors = [{line.get_label(): line.get_color() for line in panel.lines} for panel in (left, right)]
    assert colors[0]["Gaussian, calibrated"] == colors[1]["Gaussian, calibrated"] != colors[0]["Gaussian"]
