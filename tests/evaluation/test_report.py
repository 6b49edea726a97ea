"""A report keeps every number, in memory, in files and in tables."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loca.data import Variable
from loca.evaluation import MEASURES, Distribution, Report, short

ANY = st.floats(-1e100, 1e100) | st.sampled_from([math.nan, math.inf, -math.inf])


@st.composite
def contents(draw):
    """Arguments of a report, which the test makes itself: type checks draw random numbers of their own."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 3)))
    names = st.lists(st.sampled_from(list(MEASURES)), min_size=1, unique=True)

    def errors():
        return {name: draw(arrays.arrays(np.float64, shape, elements=ANY)) for name in draw(names)}

    names_and_units = st.tuples(st.text(max_size=5), st.text(max_size=5))
    outputs = tuple(Variable(*draw(names_and_units)) for _ in range(shape[1]))
    baseline = errors() if draw(st.booleans()) else None
    return (outputs, errors(), baseline, draw(st.booleans()), draw(st.text(max_size=8)))


@pytest.mark.slow
@given(contents())
def test_json_keeps_every_bit_and_every_reader_takes_it(content):
    report = Report(*content)
    text = json.dumps(report.to_json(), allow_nan=False)
    again = Report.from_json(json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON")))
    assert again == report
    for name, values in report.errors.items():
        known = ~np.isnan(values)  # there are many that are not a number; all are read as the same one
        np.testing.assert_array_equal(again.errors[name].view(np.int64)[known], values.view(np.int64)[known])


@given(contents())
@settings(max_examples=20)
def test_any_report_can_be_printed(content):
    report = Report(*content)
    assert f"Errors of {len(report)} functions" in str(report)


def test_files(tmp_path):
    report = Report((Variable("T", "K"),), {"rmse": np.array([[0.1], [math.nan]])}, None, True, "t.nc")
    report.save(tmp_path / "report.json")
    assert Report.load(tmp_path / "report.json") == report
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["errors"]["rmse"] == [[0.1], [None]]
    assert content["summary"]["rmse"]["T"]["missing"] == [1]
    assert content["summary"]["rmse"]["T"]["median"] == 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": 2}, "upgrade"), ({"format": None}, "format None"), ({"functions": 3}, "changed")],
)
def test_other_files_are_refused(change, message):
    content = Report((Variable("T"),), {"rmse": np.ones((2, 1))}).to_json() | change
    with pytest.raises(ValueError, match=message):
        Report.from_json(content)


def test_the_table_says_what_is_worst_in_which_unit():
    report = Report(
        (Variable("T", "K"), Variable("speed", "[m/s]")),  # brackets are not markup
        {
            "rmse": np.array([[1.0, 4.0], [3.0, 2.0], [8.0, 3.0]]),
            "skill": np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.6]]),
        },
        {"rmse": np.array([[7.0, 8.0], [9.0, 8.0], [11.0, 8.0]])},
    )
    heads = ["mean", "25", "%", "median", "75", "%", "worst", "outliers"]
    assert [line.split() for line in str(report).splitlines() if line and "─" not in line] == [
        ["Errors", "of", "3", "functions"],
        ["T", "(K)"],
        heads,
        ["RMSE", "4", "2", "3", "5.5", "8", "(#2)", "0"],
        ["reference", "9", "8", "9", "10"],
        ["skill", "0.6", "0.45", "0.7", "0.8", "0.2", "(#1)", "0"],
        ["speed", "([m/s])"],
        heads,
        ["RMSE", "3", "2.5", "3", "3.5", "4", "(#0)", "0"],
        ["reference", "8", "8", "8", "8"],
        ["skill", "0.5", "0.35", "0.6", "0.7", "0.1", "(#0)", "0"],
    ]


def test_a_report_is_text_in_a_notebook_too(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert "RMSE" in str(Report((Variable("s"),), {"rmse": np.ones((3, 1))}))


def test_a_table_of_awkward_numbers_fits_into_80_columns():
    """All metrics that a report has by default, thousands of functions, and numbers of all sizes."""
    metrics = [name for name in MEASURES if name not in ("relative_l2_squared", "spectral")]
    random = np.random.default_rng(0)
    outputs = (Variable("air_pressure_at_mean_sea_level", "Pa"), Variable("eastward_wind_at_10_m", "m s-1"))
    errors = {name: random.lognormal(-8.0, 5.0, (9999, 2)) for name in metrics}
    lines = str(Report(outputs, errors, errors, True, "somewhere/test.zarr")).splitlines()
    assert max(map(len, lines)) <= 80
    # title; for each channel an empty line, its name, heads, a rule, and one line each for model and reference
    assert len(lines) == 1 + 2 * (4 + 2 * len(metrics) + 1)
    for line in (line for line in lines if "#" in line):
        assert line.split()[-1].isdigit()  # the outliers, the last number: nothing is cut off


@given(st.floats(-1e100, 1e100))
def test_numbers_in_tables_are_right_to_three_digits(value):
    text = short(value)
    assert float(text) == pytest.approx(value, rel=0.005, abs=1e-320)
    assert len(text.lstrip("-")) <= 7 or not 1e-9 < abs(value) < 1e9


def test_the_worst_come_first_and_the_hopeless_before_them():
    values = np.array([0.1, math.nan, 0.5, 0.3, math.inf, 0.5])[:, None]
    report = Report((Variable("s"),), {"relative_l2": values, "skill": values})
    assert report.worst(count=5).tolist() == [1, 4, 2, 5, 3]
    assert report.worst("skill", count=4).tolist() == [1, 4, 0, 3]


@pytest.mark.parametrize(("metric", "channel"), [("rmse", 0), ("relative_l2", 1), ("relative_l2", "T"), ("x", 0)])
def test_what_is_not_there_is_named(metric, channel):
    with pytest.raises(ValueError, match="no"):
        Report((Variable("s"),), {"relative_l2": np.ones((2, 1))}).of(metric, channel)


def test_what_has_no_value_is_counted_apart():
    found = Distribution.of(np.array([math.nan, 1.0, 2.0, math.inf, 3.0]))
    assert found.missing == (0, 3)
    assert (found.mean, found.maximum) == (2.0, 3.0)
    nothing = Distribution.of(np.array([math.nan]))
    assert math.isnan(nothing.median)
    assert nothing.missing == (0,)


@given(arrays.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6, width=32)))
def test_a_box_is_that_of_matplotlib(values):
    from matplotlib.cbook import boxplot_stats

    found, (other,) = Distribution.of(values), boxplot_stats(values)
    for name, theirs in (("lower_quartile", "q1"), ("median", "med"), ("upper_quartile", "q3")):
        assert getattr(found, name) == pytest.approx(other[theirs], rel=1e-12, abs=1e-300)
    assert sorted(values[list(found.outliers)]) == pytest.approx(sorted(other["fliers"]))
