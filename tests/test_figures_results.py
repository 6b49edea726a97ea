"""Figures of results show the numbers of the report, the prediction and the model, and no text overlaps."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import rgb_to_hsv, to_hex, to_rgb

from loca.attention import Uncoupled
from loca.data import Variable
from loca.encoders import Sensors
from loca.evaluation import Report
from loca.figures import attention, box_plots, curves, fields, line_styles
from loca.figures.fields import interior_points
from loca.figures.panels import MAPS, norm_of
from loca.models import LOCA, DeepONet
from loca.training import History
from loca.training.history import Moment
from test_figures import curves as curve_data
from test_figures import fields as field_data
from test_figures import globe, mesh_value, panels, waves
from writing import check_writing

SETS = {"curves": curve_data, "fields": field_data, "waves": waves, "globe": globe}


def small(data, kind=LOCA, **options):
    """An untrained model."""
    if kind is LOCA:
        options |= dict.fromkeys(("lift_widths", "proposal_widths", "feature_widths"), (8,))
    encoder = Sensors(data.u.shape[1], data.input_size)
    return kind.create(data, key=jax.random.key(0), encoder=encoder, num_features=7, **options)


@pytest.fixture(
    scope="module",
    params=[name if name == "fields" else pytest.param(name, marks=pytest.mark.full) for name in SETS],
)
def case(request):
    """An untrained model and data of one kind; all kinds but one are drawn in the full tests only."""
    data = SETS[request.param]()
    return small(data), data


MOTION = (Variable("height", "m"), Variable("speed", "m s-1"))


def report(seed, outputs=MOTION, baseline=True):
    random = np.random.default_rng(seed)
    shape = (200, len(outputs))
    errors = {"relative_l2": random.lognormal(-4.0, 0.8, shape), "rmse": random.lognormal(2.0, 0.5, shape)}
    errors["skill"] = 1.0 - random.lognormal(-4.0, 0.8, shape)
    return Report(outputs, errors, {"relative_l2": np.full(shape, 0.3)} if baseline else None)


def boxes_of(ax):
    """What boxes are drawn, from left to right: (place, lower quartile, upper quartile)."""
    found = []
    for patch in ax.patches:
        x, y = patch.get_path().vertices[:-1].T
        found.append((x.mean(), y.min(), y.max()))
    return sorted(found)


@pytest.mark.parametrize("metric", ["relative_l2", "rmse", "skill"])
def test_boxes_are_those_of_the_reports(metric):
    named = {"LOCA": report(0), "DeepONet": report(1), "FNO": report(2)}
    figure = box_plots(named, metric)
    check_writing(figure)
    assert len(figure.axes) == (2 if metric == "rmse" else 1)  # meters and meters per second have no common axis
    drawn = [box for ax in figure.axes for box in boxes_of(ax)]
    expected = [each.distribution(metric, channel) for channel in range(2) for each in named.values()]
    np.testing.assert_allclose([box[1] for box in drawn], [each.lower_quartile for each in expected])
    np.testing.assert_allclose([box[2] for box in drawn], [each.upper_quartile for each in expected])
    points = np.concatenate([np.empty(0), *(line.get_ydata() for ax in figure.axes for line in ax.lines
                                            if line.get_marker() == "o")])  # fmt: skip
    beyond = [
        each.of(metric, c)[list(each.distribution(metric, c).outliers)] for each in named.values() for c in (0, 1)
    ]
    np.testing.assert_allclose(np.sort(points), np.sort(np.concatenate(beyond)))
    medians = {float(y) for ax in figure.axes for line in ax.lines for y in line.get_ydata()}
    assert all(each.median in medians for each in expected)
    assert {ax.get_yscale() for ax in figure.axes} == {"linear" if metric == "skill" else "log"}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(named)


def test_one_channel_names_its_models_below_and_shows_the_reference():
    outputs = (Variable("air_pressure"),)
    figure = box_plots({"LOCA": report(0, outputs), "FNO": report(1, outputs)})
    (ax,) = figure.axes
    check_writing(figure)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["LOCA", "FNO"]
    assert not figure.legends
    (line,) = (each for each in ax.collections if len(each.get_segments()) == 1)
    assert line.get_segments()[0][:, 1] == pytest.approx([0.3, 0.3])
    alone = box_plots(report(0, outputs, baseline=False))
    assert [label.get_text() for label in alone.axes[0].get_xticklabels()] == ["air pressure"]


def test_long_names_of_models_lie_side_by_side():
    outputs = (Variable("air_pressure"),)
    names = ["a_model_of_the_globe_that_took_weeks", "runs/2026-11-15/loca-large-relative", "c"]
    figure = box_plots({name: report(i, outputs) for i, name in enumerate(names)})
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    assert figure.bbox.x0 <= boxes[0].x0
    assert boxes[-1].x1 <= figure.bbox.x1


def test_errors_that_hardly_differ_still_have_numbers_beside_them():
    errors = np.random.default_rng(0).uniform(0.0271, 0.0289, (50, 1))
    (ax,) = box_plots(Report((Variable("T"),), {"relative_l2": errors})).axes
    low, high = ax.get_ylim()
    shown = [label.get_text() for y, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True) if low < y < high]
    assert 2 <= len(shown) <= 6
    assert max(map(len, shown)) <= len("0.0285")


@pytest.mark.slow
def test_curves_of_truth_prediction_and_error():
    data = curve_data()
    model = small(data)
    prediction = np.asarray(model.predict(data.u, data.y))
    axes = panels(fields(model, data, rows=(3, 1)))
    truth, predicted = axes[2].lines[:2]
    np.testing.assert_array_equal(truth.get_ydata(), data.s[3, :, 0])
    np.testing.assert_allclose(predicted.get_ydata(), prediction[3, :, 0], rtol=1e-5)
    assert (truth.get_linestyle(), predicted.get_linestyle()) == ("-", "--")
    np.testing.assert_allclose(axes[5].lines[0].get_ydata(), (prediction - data.s)[1, :, 0], atol=1e-7)


@pytest.mark.slow
def test_truth_prediction_and_error_are_where_they_belong():
    data = field_data()
    model = small(data)
    s = np.asarray(model(data.u[1], jnp.array([[0.5, 1.0]]))).item()
    figure = fields(model, data, rows=2)
    _, truth, prediction, error = (panels(figure)[2 * j + 1] for j in range(4))
    assert mesh_value(truth, 0.5, 1.0) == pytest.approx(1 + 0.5 + 10 - 5)
    assert mesh_value(prediction, 0.5, 1.0) == pytest.approx(s, rel=1e-5)
    assert mesh_value(error, 0.5, 1.0) == pytest.approx(s - 6.5, rel=1e-4)
    scales = [mesh.get_clim() for ax in (truth, prediction, error) for mesh in ax.collections]
    assert scales[0] == scales[1]
    assert scales[2][0] == -scales[2][1]
    assert [panels(figure)[2 * j].get_title().split("\n")[0] for j in range(4)] == [
        "input",
        "truth",
        "prediction",
        "error",
    ]


@pytest.mark.slow
def test_captions_stand_on_the_left_of_their_rows(case):
    figure = fields(*case, rows=(2, 0), captions=["typical (#2)\nerror 0.1", "worst (#0)\nerror 0.9"])
    check_writing(figure)
    assert [ax.get_ylabel().split()[0] for ax in panels(figure)[:2]] == ["typical", "worst"]
    assert not any("#" in ax.get_ylabel() for ax in panels(figure)[2:])
    with pytest.raises(ValueError, match="got 1 captions for 2 functions"):
        fields(*case, rows=2, captions=["one"])


def test_a_bad_prediction_does_not_make_a_quantity_signed():
    data = field_data()
    figure = fields(small(data), dataclasses.replace(data, s=data.s - data.s.min()), rows=1)
    meshes = [mesh for ax in panels(figure)[1:3] for mesh in ax.collections]
    assert [mesh.get_cmap().name for mesh in meshes] == ["viridis", "viridis"]


def test_errors_are_centered_at_zero_in_colors_of_their_own():
    norm = norm_of("error", np.array([0.1, 3.0, np.nan]))
    assert (MAPS["error"], norm.vmin, norm.vmax) == ("PuOr", -3.0, 3.0)
    assert norm_of("error", np.zeros(3)).vmax > 0.0


def test_loss_and_validation_over_steps():
    history = History(tuple(Moment(10 * i, 1.0 / (i + 1), None if i % 2 else 0.5**i, float(i)) for i in range(6)))
    figure = curves({"LOCA": history, "other": history.to_json()})
    check_writing(figure)
    loss, validation = figure.axes
    np.testing.assert_array_equal(loss.lines[0].get_xdata(), 10 * np.arange(6))
    np.testing.assert_allclose(loss.lines[1].get_ydata(), 1.0 / np.arange(1, 7))
    np.testing.assert_array_equal(validation.lines[0].get_xdata(), [0, 20, 40])  # where it was measured
    assert validation.get_ylabel() == "validation error"
    assert len({line.get_linestyle() for line in loss.lines}) == 2  # told apart without color
    unmeasured = History(tuple(dataclasses.replace(moment, validation=None) for moment in history))
    assert len(curves(unmeasured).axes) == 1


def test_seeds_make_a_band_around_their_median():
    values = {0.1: [3.0, 1.0, 2.0], 0.5: [0.5, 0.6, 0.1]}
    points = [{"value": x, "rmse": y} for x, ys in values.items() for y in ys]
    (ax,) = curves(points[::-1], x="value", y="rmse", x_label="fraction of labels").axes
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0.1, 2.0], [0.5, 0.5]])
    band = ax.collections[0].get_paths()[0].vertices
    for x, ys in values.items():
        assert {min(ys), max(ys)} == {y for place, y in band if place == x}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("fraction of labels", "RMSE")


def test_every_model_has_one_color_everywhere():
    alone, together = (line_styles(names) for names in (["FNO"], ["runs/deeponet", "mine", "FNO", "LOCA", "loca-2"]))
    assert alone["FNO"] == together["FNO"]
    assert line_styles(["LOCA"])["LOCA"] == together["LOCA"]
    assert len({tuple(look.values()) for look in together.values()}) == 5
    color = together["FNO"]["color"]
    assert curves({"FNO": [{"step": 1, "loss": 2.0}]}).axes[0].lines[0].get_color() == color
    assert to_hex(box_plots({"FNO": report(0)}).axes[0].patches[0].get_facecolor()) == color.lower()
    assert line_styles([str(i) for i in range(40)])["39"]
    solved, calibrated = (line_styles(["Gaussian", f"Gaussian{end}"])[f"Gaussian{end}"] for end in ("", ", calibrated"))
    hues = [rgb_to_hsv(to_rgb(look["color"]))[0] for look in (solved, calibrated)]
    assert hues == pytest.approx([hues[0]] * 2, abs=0.01)
    assert all(solved[part] != calibrated[part] for part in solved)


def test_boxes_are_above_the_names_of_their_models():
    reports = {name: report(seed, MOTION[:1]) for seed, name in enumerate(["mine", "Gaussian", "LOCA"])}
    _, lower, _ = zip(*boxes_of(box_plots(reports).axes[0]), strict=True)
    np.testing.assert_allclose(lower, [each.distribution().lower_quartile for each in reports.values()])


@pytest.mark.full
def test_figures_of_every_kind_keep_their_writing_apart(case):
    check_writing(fields(*case, rows=2))
    check_writing(attention(*case))


def test_the_largest_weights_are_drawn():
    data = field_data()
    model = small(data)
    (phi,) = model.weights(data.y.y)
    axes = panels(attention(model, data))
    order = np.argsort(-phi.mean(axis=0))
    there = model.weights(jnp.array([[1.0, 0.5]]))[0][0]
    for ax, i in zip(axes[:2], order[:2], strict=True):
        assert ax.texts[0].get_text() == f"$i = {i}$"
        assert mesh_value(ax, 1.0, 0.5) == pytest.approx(float(there[i]), rel=1e-4)
    limits = [mesh.get_clim() for ax in axes[:2] for mesh in ax.collections if isinstance(mesh, QuadMesh)]
    assert limits[0] == limits[1]


def test_kappa_is_that_of_the_scores():
    """g̃ = Σ w κ g: with the queries as nodes, κ as drawn gives back the scores of the model."""
    data = curve_data()
    model = small(data)
    z, w = model.rule(data.y.y)
    at_nodes = dataclasses.replace(data, y=type(data.y)(z), s=jnp.zeros((5, len(z), 1)))
    line = panels(attention(model, at_nodes))[-1].lines[0]
    (chosen,) = interior_points(np.asarray(z), 1)
    order = np.argsort(np.asarray(z)[:, 0], kind="stable")
    (g,) = model.propose(model.lift(z))
    by_hand = np.sum(np.asarray(w)[order, None] * line.get_ydata()[:, None] * np.asarray(g)[order], axis=0)
    np.testing.assert_allclose(by_hand, model.scores(z)[0][chosen], rtol=1e-3, atol=1e-5)


def test_without_coupling_there_is_no_kappa():
    data = curve_data()
    assert len(panels(attention(small(data, attention=Uncoupled()), data))) == 3


def test_other_models_have_no_attention():
    data = curve_data()
    with pytest.raises(ValueError, match="only LOCA has attention weights to draw, got a DeepONet"):
        attention(small(data, DeepONet), data)
