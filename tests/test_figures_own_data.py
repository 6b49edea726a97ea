"""Figures of data that users bring: names and units of the data, single numbers, uneven rows, decades, point clouds."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm

from loca.data import Labeled, Samples, Variable
from loca.figures import draw_predictions, fields, sheet
from loca.figures.panels import kind_of, norm_of
from test_figures import fields as field_data
from test_figures import grid, make, panels
from test_figures_results import small
from writing import check_writing


def ocean(leading="depth", **coordinates):
    """Wind stress over (x, y) and temperature over a leading coordinate, x and y."""
    z, x, y = np.linspace(0.0, 40.0, 5), np.linspace(0.0, 10.0, 6), np.linspace(0.0, 8.0, 7)
    stress = np.cos(np.arange(3)[:, None, None] + x[:, None] + y)
    temperature = 15.0 + np.sin(z)[:, None, None] + stress[:, None]
    return xarray.Dataset(
        {
            "wind_stress": (("run", "x", "y"), stress, {"units": "N m-2"}),
            "temperature": (("run", leading, "x", "y"), temperature, {"units": "degC"}),
        },
        {"x": ("x", x, {"units": "km"}), "y": ("y", y, {"units": "km"}), leading: (leading, z, {"units": "m"})}
        | coordinates,
    )


def colorbars(figure):
    return [ax for ax in figure.axes if ax.get_label() == "<colorbar>"]


def norms(figure):
    """The color scale of every panel with a mesh, column by column."""
    found = [[each.norm for each in ax.collections if isinstance(each, QuadMesh)] for ax in panels(figure)]
    return [norm for (norm,) in found]


def test_axes_have_the_names_and_units_of_the_data():
    figure = sheet(Labeled(ocean(), "wind_stress", "temperature", "run").load(), rows=2)
    check_writing(figure)
    axes = panels(figure)
    assert axes[2].get_title() == "output, depth = 0 m\ntemperature (degC)"
    assert [axes[1].get_xlabel(), axes[1].get_ylabel()] == ["$x$ (km)", "$y$ (km)"]
    assert [axes[3].get_xlabel(), axes[3].get_ylabel()] == ["$x$ (km)", "$y$ (km)"]


def test_times_are_in_days():
    days = xarray.date_range("2000-01-01", periods=5)
    records = Labeled(ocean("time", time=days), "wind_stress", "temperature", "run")
    assert [ax.get_title().split("\n")[0] for ax in panels(sheet(records, rows=1))[1:]] == [
        "output, time = 0 days",
        "time = 4 days",
    ]


@pytest.mark.full
def test_channels_without_names_have_those_that_the_model_knows():
    data = field_data()
    model = small(data)
    plain = Samples(data.u, data.y, data.s, x=data.x)
    assert panels(fields(model, plain, rows=1))[0].get_title() == "input\npermeability (m$^{2}$)"


@pytest.mark.full
def test_single_numbers_are_shown_as_values():
    x = grid(np.linspace(0, 2, 8), np.linspace(0, 1, 6))
    u = np.array([[0.0012, 300.0], [0.5, -2.0]])[:, None]
    names = [Variable("dynamic_viscosity", "Pa s"), Variable("T", "K")]
    samples = Samples(*(jnp.asarray(a, jnp.float32) for a in (u, x, np.ones((2, 48, 1)))), inputs=names)
    figure = draw_predictions(samples, samples.s, ["typical", "worst"])
    check_writing(figure)
    axes = panels(figure)
    assert [text.get_text() for ax in axes[:4] for text in ax.texts] == ["0.0012", "0.5", "300", "−2"]
    assert [axes[0].get_title(), axes[2].get_title()] == ["input\ndynamic\nviscosity\n(Pa s)", "T (K)"]
    assert axes[0].get_ylabel() == "typical"
    assert not any(ax.lines for ax in axes[:4])


def pair(amplitude, errors):
    """Fields of the given amplitudes, and predictions with errors of the given sizes."""
    x = grid(np.linspace(0, 1, 9), np.linspace(0, 1, 8))
    s = np.array(amplitude)[:, None] * (1.0 + x[:, 0])
    wrong = s + np.array(errors)[:, None] * np.sin(9 * x[:, 1])
    samples = make(np.ones((len(s), 72, 1)), x, s[..., None], x, outputs=[Variable("pressure", "Pa")])
    return samples, jnp.asarray(wrong, jnp.float32)[..., None]


def test_every_function_has_the_colors_of_its_truth():
    samples, prediction = pair([1.0, 30.0], [0.01, 6.0])
    figure = draw_predictions(samples, prediction, ["typical", "worst"])
    check_writing(figure)
    truth, predicted, error = norms(figure)[2:4], norms(figure)[4:6], norms(figure)[6:8]
    largest = np.abs(prediction - samples.s).max(axis=(1, 2))
    assert [norm.vmax for norm in error] == pytest.approx(largest.tolist(), rel=1e-5)
    assert [(norm.vmin, norm.vmax) for norm in truth] == [(1.0, 2.0), (30.0, 60.0)]
    assert predicted == truth
    assert [bar._colorbar.extend for bar in colorbars(figure)[2:6]] == ["neither", "neither", "both", "both"]


def test_few_large_errors_do_not_hide_the_others():
    assert norm_of("error", np.append(np.full(400, 0.1), 40.0)).vmax == pytest.approx(0.1)


def test_positive_values_over_decades_have_a_logarithmic_scale():
    two = np.geomspace(1.0, 100.0, 200)
    assert kind_of(two) == "plain"  # less than two decades between the quantiles
    assert kind_of(two**1.1) == "log"
    assert kind_of(np.append(two**3, 0.0)) == "plain"
    norm = norm_of("log", np.append(two**2, 1e-30))
    assert norm.vmin > 0.05  # a decade at most below nearly all values
    assert norm(np.array([-1.0]))[0] == 0.0  # below, not missing


def test_a_logarithmic_bar_has_powers_of_ten():
    x = grid(np.linspace(0, 1, 9), np.linspace(0, 1, 8))
    k = np.exp(8.0 * x[:, :1])[None]
    figure = sheet(make(k, x, np.ones((1, 72, 1)), x, inputs=[Variable("permeability", "m2")]), rows=1)
    check_writing(figure)
    assert isinstance(norms(figure)[0], LogNorm)
    bar = colorbars(figure)[0]
    shown = [label.get_text() for label in bar.get_xticklabels() if label.get_text()]
    assert shown
    assert all("10^" in label for label in shown)
