"""`loca figures` draws the functions and the numbers of the report."""

import json

import numpy as np
import pytest

from commands import command
from loca.cli.models import typical_and_worst
from loca.data import Variable
from loca.evaluation import Report
from loca.problems import Antiderivative, generate

PROBLEM = Antiderivative(length=0.3, sensors=40, queries=20)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A LOCA and a DeepONet, shortly trained."""
    place = tmp_path_factory.mktemp("figures")
    generate(PROBLEM, 60, place / "train.zarr")
    generate(PROBLEM, 31, place / "test.zarr", seed=1)
    for kind, widths in (
        ("loca", ["lift_widths", "proposal_widths", "feature_widths"]),
        ("deeponet", ["branch_widths", "trunk_widths"]),
    ):
        sizes = "".join(f"{name} = [8]\n" for name in widths)
        (place / "run.toml").write_text(f'[model]\nkind = "{kind}"\nnum_features = 5\n{sizes}[training]\nevery = 10\n')
        command("train", place / "run.toml", "--data", place / "train.zarr", "--steps", 30, "--batch-size", 20,
                "--out", place / kind)  # fmt: skip
    return place


@pytest.fixture
def saved(monkeypatch):
    """Every figure that is written, by the name of its file."""
    from matplotlib.figure import Figure

    found, write = {}, Figure.savefig

    def keep(figure, path, **options):
        found[path.name] = figure
        write(figure, path, **{**options, "dpi": 50})  # most of the time goes into pixels

    monkeypatch.setattr(Figure, "savefig", keep)
    return found


def panels(figure):
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


@pytest.mark.slow
def test_pictures_show_what_the_report_says(place, saved):
    out = place / "pictures"
    said = command("figures", place / "loca", place / "test.zarr", "--beside", place / "deeponet", "--out", out)
    names = ["box_plots.png", "curves.png", "fields.png", "attention.png"]
    assert said.split() == [str(out / name) for name in names]
    assert list(saved) == names
    for name in names:
        assert (out / name).read_bytes().startswith(b"\x89PNG")

    reports = {}
    for kind in ("loca", "deeponet"):
        command("evaluate", place / kind, place / "test.zarr", "--out", place / f"{kind}.json")
        reports[kind] = Report.load(place / f"{kind}.json")
    (ax,) = saved["box_plots.png"].axes
    assert [label.get_text() for label in ax.get_xticklabels()] == list(reports)
    medians = [line.get_ydata()[0] for line in ax.lines if line.get_linewidth() == 1.1]
    np.testing.assert_allclose(medians, [each.distribution().median for each in reports.values()])

    losses = [line.get_ydata() for line in saved["curves.png"].axes[0].lines]
    for kind, drawn in zip(reports, losses, strict=True):
        moments = [json.loads(line) for line in (place / kind / "history.jsonl").read_text().splitlines()]
        np.testing.assert_array_equal(drawn, [moment["loss"] for moment in moments])

    report = reports["loca"]
    errors = report.of()
    typical = int(np.flatnonzero(errors == np.median(errors)).item())  # one of an odd number has the median error
    numbers = [typical, *report.worst(count=2).tolist()]
    rows = panels(saved["fields.png"])[:3]
    assert [int(ax.get_ylabel().split("#")[1].split(")")[0]) for ax in rows] == numbers
    assert [ax.get_ylabel().split()[0] for ax in rows] == ["typical", "worst", "worst"]


@pytest.mark.slow
def test_a_model_file_alone_has_no_curves_and_other_models_no_attention(place, saved):
    moved = place / "moved.safetensors"
    moved.write_bytes((place / "deeponet/model.safetensors").read_bytes())
    command("figures", moved, place / "test.zarr", "--out", place / "alone", "--pdf", "--count", 2)
    assert list(saved) == ["box_plots.pdf", "fields.pdf"]
    assert len(panels(saved["fields.pdf"])) == 3 * 2
    assert (place / "alone/box_plots.pdf").read_bytes().startswith(b"%PDF")


def test_what_cannot_be_drawn_is_said(place):
    generate(Antiderivative(sensors=30, queries=20), 4, place / "other.zarr")  # other sensors than those of the model
    for model, data, said in (("nothing", "test.zarr", "nothing"), ("loca", "other.zarr", "other.zarr")):
        assert said in command("figures", place / model, place / data, "--out", place / "none", code=2)
    assert not (place / "none").exists()


def test_a_function_without_an_error_is_worse_than_any_other():
    """Several channels count by their mean, and a relative error of a truth that is 0 is infinite."""
    values = np.array([[0.1, 0.3], [0.5, 0.1], [np.inf, 0.1], [0.1, 0.9], [0.0, 0.1]])
    report = Report((Variable("a"), Variable("b")), {"relative_l2": values})
    chosen = typical_and_worst(report, 4)
    assert list(chosen) == [0, 2, 3, 1]
    assert chosen[0] == "typical (#0)\nerror 0.2"
    assert chosen[2] == "worst (#2)\nerror inf"
    assert list(typical_and_worst(Report(report.outputs, {"relative_l2": values[:1]}), 3)) == [0]
    hopeless = Report(report.outputs, {"relative_l2": np.full((2, 2), np.nan)})
    assert set(typical_and_worst(hopeless, 3)) == {0, 1}
