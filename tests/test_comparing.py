"""`compare`: every model on the same data."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from commands import command, words
from loca.choosing import COMPETITORS
from loca.comparing import COMPARISON_FILE, Comparison, ComparisonEntry
from loca.problems import Darcy

MINUTES = (0.05,)
RIDGE = """
import sys
import numpy as np

data = dict(np.load(sys.argv[1]))
assert "test_s" not in data
u, s = data["train_u"][..., 0], data["train_s"][..., 0]
known = ~np.isnan(s).any(axis=0)
coefficients = np.linalg.lstsq(np.c_[u, np.ones(len(u))], np.where(known, s, 0.0), rcond=None)[0]
predictions = {
    f"{part}_s": (np.c_[data[f"{part}_u"][..., 0], np.ones(len(data[f"{part}_u"]))] @ coefficients)[..., None]
    for part in ("validation", "test")
}
np.savez(sys.argv[2], **predictions, parameters=coefficients.size)
"""


@pytest.fixture(scope="module")
def data():
    return Darcy(resolution=6, preset="easy").sample(jax.random.key(0), 100)


@pytest.fixture(scope="module")
def parts(data):
    return tuple(data.take(jnp.arange(*ends)) for ends in ((0, 60), (60, 80), (80, 100)))


@pytest.fixture(scope="module")
def compared(parts, tmp_path_factory):
    directory = tmp_path_factory.mktemp("compare")
    script = directory / "ridge.py"
    script.write_text(RIDGE)
    others = {"least squares": [sys.executable, str(script)], "absent": ["no-such-program"], "fails": ["false"]}
    train, validation, test = parts
    options = {"minutes": MINUTES, "validation": validation, "others": others, "directory": directory / "work"}
    return loca.compare(train, test, **options), train, test, options


@pytest.fixture
def closed(monkeypatch):
    """Only the models that need no time."""
    fast = {name: loca.comparing.COMPETITORS[name] for name in ("mean field", "ridge")}
    monkeypatch.setattr(loca.comparing, "COMPETITORS", fast)


@pytest.mark.full
def test_rows_with_symmetries_stand_beside_those_without(parts, tmp_path, monkeypatch):
    """Those without are not fitted again."""
    able = COMPETITORS["mean field"], loca.choosing.gaussian
    models = {name: compete for name, compete in loca.comparing.COMPETITORS.items() if compete in able}
    monkeypatch.setattr(loca.comparing, "COMPETITORS", models)
    train, validation, test = parts
    plain = loca.compare(train, test, validation=validation, directory=tmp_path)
    found = loca.compare(train, test, validation=validation, directory=tmp_path, symmetries=["reflect y"])
    assert [each.model for each in found.entries] == [*models, f"{list(models)[1]}, symmetric", "combination"]
    assert found.entries[:2] == plain.entries[:2]
    assert found.entries[2].settings["symmetries"] == ["reflect y"]
    assert found.entries[2].error < found.entries[1].error


def test_every_model_has_a_result_or_a_reason(compared):
    found, train, test, _ = compared
    assert [each.model for each in found.entries] == [
        *loca.choosing.COMPETITORS, "combination", "least squares", "absent", "fails",
    ]  # fmt: skip
    for entry in found.entries:
        if entry.error is None:
            assert entry.reason.startswith(("failed: ", "not trained: ", "not adopted: "))
        elif entry.model != "least squares":
            assert entry.core_seconds > 0.0
            assert entry.milliseconds is not None
            assert entry.coverage is not None
            assert 0.0 <= entry.coverage <= 1.0
    mean = jnp.broadcast_to(train.s.mean(axis=0), test.s.shape)
    assert found.entries[0].error == pytest.approx(float(jnp.mean(loca.metrics.relative_l2(mean, test.s))), rel=1e-4)


@pytest.mark.full
def test_longer_training_is_another_point_of_the_curve(parts):
    train, validation, test = parts
    found = loca.compare(train, test, minutes=[0.3, 0.9], validation=validation)
    assert {minutes for model, minutes in found.groups() if model == "FNO"} == {0.3, 0.9}


def test_other_program_is_measured_as_ours_are(compared):
    found, train, test, _ = compared
    u, s = (np.asarray(values)[..., 0] for values in (train.u, train.s))
    coefficients = np.linalg.lstsq(np.c_[u, np.ones(len(u))], s, rcond=None)[0]
    prediction = np.c_[np.asarray(test.u)[..., 0], np.ones(len(test))] @ coefficients
    error = float(np.mean(loca.metrics.relative_l2(prediction[..., None], test.s)))
    entry = next(each for each in found.entries if each.model == "least squares")
    assert entry.error == pytest.approx(error, rel=1e-4)
    assert entry.parameters == coefficients.size


def test_same_call_reads_what_is_finished(compared):
    found, train, test, options = compared
    assert loca.compare(train, test, **options) == found
    assert Comparison.load(Path(options["directory"], COMPARISON_FILE)) == found
    with pytest.raises(FileExistsError, match="data is"):
        loca.compare(test, train, **options)


@pytest.mark.slow
def test_more_seeds_extend_a_comparison(compared, closed):
    found, train, test, options = compared
    more = loca.compare(train, test, **options | {"seeds": 2})
    assert more.entries[0] == found.entries[0]
    assert {entry.seed for entry in more.entries} == {0, 1}


@pytest.mark.slow
def test_a_combination_is_a_row_with_its_members(closed, monkeypatch, parts):
    def noisy(seed):
        def compete(task):
            found, settings = COMPETITORS["ridge"](task)
            errors = 0.05 * found.responses.std() * jax.random.normal(jax.random.key(seed), found.responses.shape)
            return dataclasses.replace(found, responses=found.responses + errors), settings

        return compete

    monkeypatch.setattr(loca.comparing, "COMPETITORS", {"a": noisy(1), "b": noisy(2)})
    found = loca.compare(parts[0], parts[2], validation=parts[1], minutes=MINUTES)
    a, b, combination = found.entries
    assert found.best == combination.model == "combination"
    assert combination.error < min(a.error, b.error)
    assert combination.core_seconds > a.core_seconds + b.core_seconds
    assert set(combination.settings["weights"]) == {"a", "b"}


@pytest.mark.full
def test_verdict_agrees_with_choose(compared, parts):
    _, report = loca.choose(parts[0], minutes=0.15, validation=parts[1])
    assert compared[0].best == report.winner.model


@pytest.mark.slow
def test_persistence_is_a_row_where_inputs_and_outputs_are_the_same_variable(closed):
    x = jnp.linspace(0.0, 1.0, 8)[:, None]
    u = jax.random.normal(jax.random.key(0), (30, 8, 1))
    names = {"inputs": ["height"], "outputs": ["height"]}
    same = loca.Samples(u, x, 1.1 * u, x=x, **names)
    found = loca.compare(same, minutes=MINUTES)
    entry = next(each for each in found.entries if each.model == "persistence")
    assert entry.error == pytest.approx(0.1 / 1.1, rel=1e-4)
    other = loca.Samples(u, x, 1.1 * u, x=x)
    assert "persistence" not in {each.model for each in loca.compare(other, minutes=MINUTES).entries}


@pytest.mark.parametrize("value", [0.0, np.inf])
def test_a_model_that_fails_on_the_test_functions_has_a_reason(value, closed, monkeypatch, parts):
    def failing(operator, data):
        if not value:
            raise ValueError("log needs positive values")
        return value

    monkeypatch.setattr(loca.comparing, "mean_error", failing)
    found = loca.compare(parts[0], parts[2], validation=parts[1])
    mean, ridge, combination = found.entries
    assert {mean.error, ridge.error, combination.error} == {None}
    assert all(each.reason.startswith("failed on the test functions: ") for each in (mean, ridge))
    assert combination.reason.startswith("not adopted: it needs two models")
    assert found.best is None
    assert ridge.reason in str(found)
    assert "prefer: none" in str(found)


def test_picture_has_every_model(compared):
    figure = loca.figures.comparison(compared[0])
    assert {text.get_text() for text in figure.axes[0].texts} == {model for model, _ in compared[0].groups()}


def test_names_of_models_with_nearly_equal_results_do_not_overlap():
    entries = (
        ComparisonEntry("LOCA", error=0.060, validation=0.06, core_seconds=28.0),
        ComparisonEntry("FNO", error=0.058, validation=0.06, core_seconds=30.0),
        ComparisonEntry("ridge", error=0.2, validation=0.2, core_seconds=3.0),
    )
    figure = loca.figures.comparison(Comparison(entries, 100, 20, 100))
    first, second, _ = (text.get_window_extent() for text in figure.axes[0].texts)
    assert not first.overlaps(second)


@pytest.mark.slow
def test_command_draws_the_picture(closed, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("runs.npz", u=data.u, s=data.s, x=data.x, y=data.y.points)
    said = command("compare", "runs.npz", "--minutes", 0.05, "--labels", 12, "--out", "found")
    found = Comparison.load("found/comparison.json")
    assert f"prefer: {found.best}" in words(said)
    assert found.test == 20
    assert Path("found/comparison.png").stat().st_size > 10_000
    said = words(command("compare", "runs.npz", "--minutes", "some", "--out", "other", code=2))
    assert "expected numbers such as 1,4, got 'some'" in said
