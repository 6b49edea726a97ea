"""The best of several models: never worse than ridge, whatever fails, and resumed where it was killed."""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca import choosing
from loca.choosing import (
    COMPETITORS,
    ChoiceEntry,
    ChoiceReport,
    NoTimeError,
    Task,
    Trained,
    choose,
    gaussian,
    steps_within,
)
from loca.data import Samples
from loca.evaluation import evaluate
from loca.gaussian import GaussianOperator, Hyperparameters, solve
from loca.models import LOCA, Regression, mean_error
from loca.training import History, Progress

mean_field, ridge = COMPETITORS["mean field"], COMPETITORS["ridge"]

SMALL = {"num_features": 3, "lift_size": 4, "lift_widths": (5,), "proposal_widths": (5,), "feature_widths": (5,)}


def pairs(seed=0, functions=30, curved=0.0):
    """A smooth operator of three numbers; linear unless `curved`."""
    x, y = jnp.linspace(0.0, 1.0, 8), jnp.linspace(0.0, 1.0, 5)
    a = jax.random.normal(jax.random.key(seed), (functions, 3))
    u = a @ jnp.stack([jnp.ones(8), jnp.sin(3.0 * x), jnp.cos(5.0 * x)])
    s = (a[:, :1] + curved * jnp.sin(2.0 * a[:, :1])) * jnp.cos(2.0 * y) + a[:, 1:2] * y**2
    return Samples(u, y, s, x=x)


@pytest.fixture
def compete(monkeypatch):
    """Functions that let given models compete: small ones, without a search."""
    quick = functools.partial(solve, hyperparameters=Hyperparameters())
    monkeypatch.setattr("loca.choosing.solve", quick)
    monkeypatch.setattr("loca.choosing.steps_within", lambda *_: 5)

    def compete(models, *data, **options):
        monkeypatch.setattr(choosing, "COMPETITORS", models)
        return choose(*data, **options)

    return compete


@pytest.mark.slow
def test_the_best_is_returned_with_a_table(compete, capsys):
    train, validation = pairs(curved=1.0), pairs(1, curved=1.0)
    small = Trained(functools.partial(LOCA.create, **SMALL))
    models = {"mean field": mean_field, "ridge": ridge, "Gaussian": gaussian, "LOCA": small}
    operator, report = compete(models, train, validation=validation, progress=True)
    assert isinstance(operator, GaussianOperator)
    error = evaluate(operator, validation, metrics=["relative_l2"]).errors["relative_l2"].mean()
    assert report.winner.error == pytest.approx(error, rel=1e-4)
    header, *rows, about = str(report).splitlines()
    assert header.split() == ["model", "error", "seconds", "parameters", "MB"]
    assert rows[0].startswith("Gaussian ")
    assert sorted(row[:11].strip() for row in rows) == sorted([*models, "combination"])
    assert float(rows[0].split()[1]) == pytest.approx(100.0 * error, rel=1e-3)
    assert "30 validation functions" in about
    shown = capsys.readouterr().err
    assert all(str(entry) in shown for entry in report.entries)
    sizes = {entry.model: entry.parameters for entry in report.entries}
    assert sizes["mean field"] == 5
    assert sizes["Gaussian"] == operator.coefficients.size


def test_what_fails_or_does_not_apply_loses_nothing(compete):
    """Ridge wins on a linear map, although one model fails, one refuses the data and one predicts NaN."""

    def failing(task):
        raise MemoryError("out of memory\nwith details")

    def refusing(data, **_):
        raise ValueError("no grid")

    def broken(task):
        return Regression.fit(task.train, transforms={"s1": "log"}), {}

    def wrong(task):
        operator = Regression.fit(task.train, 0)
        return Regression(operator.normalization, operator.components, operator.responses * jnp.nan, operator.y), {}

    models = {"a": failing, "b": Trained(refusing), "c": wrong, "d": broken, "mean field": mean_field, "ridge": ridge}
    operator, report = compete(models, pairs(), validation=pairs(1))
    assert report.winner.model == "ridge"
    np.testing.assert_allclose(operator.predict(pairs(1).u, pairs(1).y), pairs(1).s, atol=1e-2)
    a, c, d, mean, best, b, tie = report.entries
    assert a.reason == "failed: MemoryError: out of memory"
    assert b.reason == "does not apply: no grid"
    assert "not finite" in c.reason
    assert "positive" in d.reason
    assert best.error <= mean.error
    assert tie.reason.startswith("not adopted: ")
    with pytest.raises(RuntimeError, match="no model has a result"):
        compete({"a": failing}, pairs(), validation=pairs(1))


def test_a_closed_form_is_fitted_again_to_all_functions(compete):
    train = pairs(functions=20)
    operator, report = compete({"mean field": mean_field, "ridge": ridge}, train)
    assert (report.functions, report.validation) == (16, 4)
    expected = Regression.fit(train, **report.winner.settings)
    np.testing.assert_array_equal(operator.responses, expected.responses)


def test_ridge_tries_the_transforms_that_the_search_tries(compete):
    """A map that is linear in log u; a function with u = 0, whose logarithm is infinite, rules the transform out."""
    train, validation = (Samples(jnp.exp(data.u), data.y, data.s, x=data.x) for data in (pairs(), pairs(1)))
    _, report = compete({"ridge": ridge}, train, validation=validation)
    assert report.winner.settings["transforms"]["u1"] == "log"
    assert report.winner.error < 1e-3
    zero = Samples(validation.u.at[0].set(0.0), validation.y, validation.s, x=validation.x)
    _, report = compete({"ridge": ridge}, train, validation=zero)
    assert "u1" not in report.winner.settings["transforms"]


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.slow
def test_a_killed_choice_resumes(compete, tmp_path):
    ran = []

    def counted(name, model):
        def compete(task):
            ran.append(name)
            return model(task)

        return compete

    def create(data, **options):
        ran.append("LOCA")
        if ran.count("LOCA") == 3:  # after the short trainings, alone and around ridge regression
            raise Killed
        return LOCA.create(data, **options, **SMALL)

    data = {"validation": pairs(1, curved=1.0), "directory": tmp_path}
    closed = {"ridge": counted("ridge", ridge), "Gaussian": counted("Gaussian", gaussian)}
    train = pairs(curved=1.0)
    with pytest.raises(Killed):
        compete({**closed, "LOCA": Trained(create)}, train, **data)
    operator, report = compete({**closed, "LOCA": Trained(create)}, train, **data)
    assert ran == ["ridge", "Gaussian", *["LOCA"] * 4]
    assert ChoiceReport.load(tmp_path / "choice.json") == report
    expected, _ = compete({"Gaussian": gaussian}, train, validation=data["validation"])
    np.testing.assert_array_equal(operator.coefficients, expected.coefficients)
    again, same = compete({**closed, "LOCA": Trained(create)}, train, **data)
    assert ran == ["ridge", "Gaussian", *["LOCA"] * 4]
    assert same == report
    np.testing.assert_array_equal(again.coefficients, operator.coefficients)


def test_steps_fill_the_time_that_a_model_has(monkeypatch):
    """20 s to compile, then 0.1 s for a step."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def fit(model, data, *, steps, callbacks, **_):
        clock[0] += 20.0
        for step in (1, 6, 21, 81):
            clock[0] = 20.0 + 0.1 * (step - 1)
            for callback in callbacks:
                callback(Progress(step, steps, 0.0, 0.0, History()))

    monkeypatch.setattr(choosing, "fit", fit)
    model = Regression.fit(pairs(), 0)
    task = Task("LOCA", pairs(), pairs(), {}, 100.0, 0, False, None)
    left = 0.9 * 100.0 - 2.0  # without compilation, with the measurement
    assert steps_within(model, task) == pytest.approx(left / 0.1, rel=0.01)
    clock[0] = 0.0
    with pytest.raises(NoTimeError, match="enough for 29 steps"):
        steps_within(model, task._replace(seconds=5.5))


def test_every_model_gets_a_run_that_can_win(monkeypatch):
    """A short training of all, then the rest of the time for those that are not far behind."""
    errors = {
        ("Gaussian", ""): 0.03, ("a", "short"): 0.10, ("b", "short"): 0.12, ("c", "short"): 0.16, ("a", ""): 0.02,
        ("b", ""): 0.13, ("late", ""): 0.05,
    }  # fmt: skip
    given = {}

    def run(compete, task, found):
        given[task.model, task.stage] = task.seconds
        found.append(Regression.fit(task.train, 0))
        error = errors.get((task.model, task.stage))
        reason = {"late": "not trained: its 9 s are enough for 7 steps", "grid": "does not apply: no grid"}
        return ChoiceEntry(task.model, error, 20.0, reason=reason[task.model] if error is None else "")

    models = {"Gaussian": gaussian, **dict.fromkeys(("a", "b", "c", "late", "grid"), Trained(LOCA.create))}
    monkeypatch.setattr(choosing, "COMPETITORS", models)
    monkeypatch.setattr(choosing, "run", run)
    monkeypatch.setattr(choosing, "combine", lambda *_: pytest.fail("no combination of stand-ins"))
    monkeypatch.setattr(choosing, "FEWEST_COMBINED", 1000)
    _, report = choose(pairs(), minutes=2.0, validation=pairs(1))
    time_of_networks = 120.0 - 20.0
    short = 0.25 * time_of_networks / 5
    assert [given[name, "short"] for name in ("a", "b", "c", "late", "grid")] == [short] * 5
    assert [given.get((name, "")) for name in ("a", "b", "late")] == [(time_of_networks - 3 * short) / 3] * 3
    assert ("c", "") not in given
    assert ("grid", "") not in given
    entries = {entry.model: entry for entry in report.entries}
    assert {name: entry.error for name, entry in entries.items()} == {
        "Gaussian": 0.03, "a": 0.02, "b": 0.12, "c": 0.16, "late": 0.05, "grid": None,
    }  # fmt: skip
    assert "stopped" in str(entries["c"])
    assert entries["b"].reason == "a longer training was not better"
    assert entries["grid"].reason == "does not apply: no grid"


def test_a_network_is_trained_around_a_map_if_that_is_much_better(monkeypatch):
    """After short trainings; the better of the maps is tried."""
    errors = {("a", ""): 0.10, ("a", "ridge"): 0.095, ("b", ""): 0.10, ("b", "ridge"): 0.08}
    given = []

    def run(compete, task, found):
        around = "" if task.around is None else task.around[0]
        if around:  # fitted with the settings that were chosen
            assert isinstance(task.around[1](task.train), Regression)
        given.append((task.model, around, task.seconds))
        found.append(Regression.fit(task.train, 0))
        closed = {"ridge": 0.3, "s = c·u": 0.5}
        settings = {"components": 1, "strength": 1.0} if task.model == "ridge" else {}
        return ChoiceEntry(task.model, closed.get(task.model) or errors[task.model, around], settings=settings)

    models = {"s = c·u": mean_field, "ridge": ridge, "a": Trained(LOCA.create), "b": Trained(LOCA.create)}
    monkeypatch.setattr(choosing, "COMPETITORS", models)
    monkeypatch.setattr(choosing, "run", run)
    monkeypatch.setattr(choosing, "FEWEST_COMBINED", 1000)
    choose(pairs(), minutes=1.0, validation=pairs(1))
    short, long = 0.25 * 60.0 / 4, 0.75 * 60.0 / 2
    tries = [(name, around, short) for name in "ab" for around in ("", "ridge")]
    assert given[2:] == [*tries, ("a", "", long), ("b", "ridge", long)]


def noisy(seed):
    """Ridge regression whose coefficients have errors of their own."""

    def compete(task):
        found, settings = ridge(task)
        errors = 0.05 * jax.random.normal(jax.random.key(seed), found.responses.shape)
        return dataclasses.replace(found, responses=found.responses + errors), settings

    return compete


@pytest.mark.slow
@pytest.mark.parametrize("holds_out", [False, True])
def test_a_combination_wins_if_it_is_better(compete, tmp_path, holds_out):
    train, validation, test = pairs(functions=60), pairs(1), pairs(2)
    models = {"a": noisy(1), "b": noisy(2), "mean field": mean_field}
    data = {} if holds_out else {"validation": validation}
    operator, report = compete(models, train, **data, directory=tmp_path)
    assert report.winner.model == "combination"
    weights = report.winner.settings["weights"]
    assert set(weights) == {"a", "b"}
    assert sum(weights.values()) == pytest.approx(1.0)
    assert ChoiceReport.load(tmp_path / "choice.json") == report
    again, _ = compete(models, train, **data, directory=tmp_path)
    np.testing.assert_array_equal(again.predict(test.u, test.y), operator.predict(test.u, test.y))
    if holds_out:  # fitted again to all functions, without the errors
        np.testing.assert_allclose(operator.predict(test.u, test.y), test.s, atol=1e-2)
    else:
        errors = [mean_error(member, test) for member in operator.operators]
        assert mean_error(operator, test) < 0.95 * min(errors)


def test_a_combination_of_equals_is_not_adopted(compete):
    _, report = compete({"a": noisy(1), "b": noisy(1)}, pairs(), validation=pairs(1))
    assert report.winner.model == "a"
    assert report.entries[-1].error is None
