"""`solve`: the search, its files, streams and meshes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Free, Part, Samples, Shared
from loca.domains import Box
from loca.durable import Resumable
from loca.gaussian import Hyperparameters, solve
from loca.gaussian.equation import Accuracy, PreparedData, Ranks
from loca.gaussian.progress import Lines
from loca.gaussian.search import Descent, Stage, Trial, error_of_the_mean, search, table_row, trial
from loca.gaussian.trials import Fold
from loca.metrics import relative_l2
from loca.models import Regression
from loca.typing import Measurements, MultiInput
from stores import stored

FEW = (20, 20)
HYPER = Hyperparameters(length=2.0, noise=1e-3, location_lengths=(0.5,))


def functions(count=40, seed=0):
    """s(y) = sin(3 w·u) cos(2y) + ū y on a line: smooth, and not linear in u."""
    rng = np.random.default_rng(seed)
    y = np.linspace(0.0, 1.0, 16)[:, None]
    a = rng.normal(size=(count, 3))
    x = np.linspace(0.0, 1.0, 12)
    u = a @ np.stack([np.ones(12), np.sin(3 * x), np.cos(5 * x)])
    s = np.sin(a[:, :1]) * np.cos(2 * y[:, 0]) + a[:, 1:2] * y[:, 0] ** 2
    u, y, s, x = (jnp.asarray(a, jnp.float32) for a in (u[:, :, None], y, s[:, :, None], x[:, None]))
    return Samples(u, Shared(y), s, x=x, domain=Box.unit(1))


def error(operator, data):
    return float(jnp.mean(relative_l2(operator.predict(data.u, data.y), data.s)))


@pytest.mark.slow
def test_without_arguments_it_beats_ridge_and_reports_its_search():
    train, test = functions(120), functions(60, 1)
    operator, report = solve(train)
    assert error(operator, test) < 0.2 * error(Regression.fit(train), test)
    assert min(trial.error for trial in report.trials) < report.trials[0].error
    assert "\n".join(str(report).splitlines()[-1:]).startswith("solved in")
    assert max(map(len, str(report).splitlines())) < 80
    assert report.residual < 1e-4
    z = jnp.stack(
        [(s - operator(u, test.y.y)) / operator.std(u, test.y.y) for u, s in zip(test.u, test.s, strict=True)]
    )
    assert 0.8 < float(jnp.mean(jnp.abs(z) < 1.645)) < 0.97  # chosen on held-out functions to be 0.9
    again, _ = solve(train, hyperparameters=report.hyperparameters)
    np.testing.assert_array_equal(again.coefficients, operator.coefficients)
    np.testing.assert_array_equal(again.variance, operator.variance)


@pytest.mark.full
def test_the_better_of_two_transforms_is_chosen():
    """Outputs that are smooth functions of log u."""
    plain = functions(40)
    data = dataclasses.replace(plain, u=jnp.exp(2.0 * plain.u))
    fold = Fold(data.take(jnp.arange(30)), data.take(jnp.arange(30, 40)))
    best, trials = search([fold], HYPER, [Stage(30, Ranks(*FEW), (), 4, 1000)])
    assert dict(best.transforms)[data.inputs[0].name] == "log"
    assert min(trials, key=lambda trial: trial.error).hyperparameters == best


@pytest.mark.full
def test_noisy_inputs_have_a_nugget():
    """With few labels, errors that a function has of its own are not averaged out as noise of labels is."""
    clean = functions(160)
    data = dataclasses.replace(clean, u=clean.u + 0.3 * jax.random.normal(jax.random.key(0), clean.u.shape))
    data = data.observe(jax.random.key(1), 12)
    fold = Fold(data.take(jnp.arange(120)), data.take(jnp.arange(120, 160)))
    stage = Stage(120, Ranks(120, 16), (4.0, 2.0), 40, 5000)
    _, without = search([fold], HYPER, [stage])
    best, found = search([fold], HYPER, [stage._replace(nugget=True)])
    assert best.nugget > 0.0
    assert min(trial.error for trial in found) < 0.98 * min(trial.error for trial in without)


@pytest.mark.slow
def test_further_trials_compile_nothing(caplog):
    """With other numbers but the same sizes, a trial runs the programs of the one before it."""
    data = functions()
    scattered = dataclasses.replace(data, y=Free(jnp.broadcast_to(data.y.points, (40, 16, 1))))
    for each in (data, data.observe(jax.random.key(0), 4), scattered):
        prepared = PreparedData.fit(each, ())
        for nugget in (0.0, 1e-3):
            first = dataclasses.replace(HYPER, nugget=nugget)
            other = dataclasses.replace(HYPER, length=1.5, noise=2e-4, nugget=2.0 * nugget, location_lengths=(0.3,))
            prepared.solve(first, Ranks(*FEW), Accuracy(1e-4, 50))
            with jax.log_compiles():
                prepared.solve(other, Ranks(*FEW), Accuracy(1e-4, 50))
            assert [record.message for record in caplog.records if "Compiling" in record.message] == []


def test_a_trial_starts_from_the_solution_for_other_codes():
    data = functions().observe(jax.random.key(0), 6)
    fold = Fold(data.take(jnp.arange(30)), data.take(jnp.arange(30, 40)))
    other = dataclasses.replace(HYPER, relevances=(0.3,) * 12)
    ranks = Ranks(30, 16)
    (cold, many), (warm, few) = (
        fold.comparison(other.of_codes, None, 30).error(other, ranks, path) for path in ((), (HYPER,))
    )
    assert few < many
    assert warm == pytest.approx(cold, rel=0.01)


@pytest.mark.slow
def test_a_trial_is_not_run_again(tmp_path, monkeypatch, capsys):
    data = functions(20)
    arguments = (
        [Fold(data.take(jnp.arange(15)), data.take(jnp.arange(15, 20)))],
        HYPER,
        [Stage(15, Ranks(*FEW), (2.0,), 3, 99)],
    )
    with Resumable(tmp_path, {}) as work:
        best, trials = search(*arguments, work=work)
        monkeypatch.setattr("loca.gaussian.search.trial", pytest.fail)
        assert search(*arguments, work=work, show=Lines(on=True)) == (best, trials)
    assert capsys.readouterr().err.splitlines()[-1] == table_row(trials[-1])  # the last one of a stage, however short
    own = [each for each in trials if not each.hyperparameters.relevances and not each.hyperparameters.structure]
    assert len(own) == 3  # those with another structure or other lengths are not counted


def test_a_killed_search_ends_with_the_same_trials(tmp_path, monkeypatch):
    """Though iterations start from the solutions of earlier trials."""
    data, compute, done = functions(20).observe(jax.random.key(0), 8), trial, list[int]()

    def resumed(directory):
        folds = [Fold(data.take(jnp.arange(15)), data.take(jnp.arange(15, 20)))]
        with Resumable(directory, {}) as work:
            return search(folds, HYPER, [Stage(15, Ranks(*FEW), (2.0,), 12, 999)], work=work)

    def killed(*arguments):
        done.append(0)
        return compute(*arguments) if len(done) <= 8 else pytest.exit("killed")

    best, trials = resumed(tmp_path / "whole")
    monkeypatch.setattr("loca.gaussian.search.trial", killed)
    with pytest.raises(pytest.exit.Exception):
        resumed(tmp_path / "killed")
    monkeypatch.setattr("loca.gaussian.search.trial", compute)
    again = resumed(tmp_path / "killed")
    assert again[0] == best
    assert [each.error for each in again[1]] == [each.error for each in trials]


def test_an_operator_that_is_not_finite_is_refused():
    """Squares of such values overflow; outputs in other units would be solved for."""
    data = functions(20)
    for large in (dataclasses.replace(data, s=1e30 * data.s), dataclasses.replace(data, u=1e30 * data.u)):
        with pytest.raises(FloatingPointError, match=r"values up to .*e\+30.*Use other units"):
            solve(large)


def test_a_function_that_is_not_finite_is_named():
    data = functions(20)
    broken = dataclasses.replace(data, s=data.s.at[3, 0, 0].set(jnp.nan))
    with pytest.raises(ValueError, match="the data has values that are not finite: function 3, "):
        solve(broken)


@pytest.mark.slow
def test_contradictory_functions_are_reported():
    """Every input comes twice, with opposite outputs: nothing is better than the mean."""
    half = functions(30)
    data = dataclasses.replace(half, u=jnp.tile(half.u, (2, 1, 1)), s=jnp.concatenate([half.s, -half.s]))
    with pytest.warns(UserWarning, match="not better than the mean of the labels"):
        _, report = solve(data, ranks=FEW)
    assert report.mean_error == pytest.approx(1.0, abs=0.1)
    assert "WARNING: the operator is not better than the mean of the labels" in str(report)


def test_the_error_of_the_mean_and_zero_functions():
    data = functions(20)
    held = dataclasses.replace(data.take(jnp.arange(2)), s=data.s[:2].at[1].set(0.0))
    fold = Fold(data, held)
    s, means = np.asarray(held.s[0]), [np.mean(np.asarray(data.s), axis) for axis in ((0, 1), 0)]
    errors = [np.linalg.norm(s - mean) / np.linalg.norm(s) for mean in means]
    assert error_of_the_mean(fold) == pytest.approx(min(errors), rel=1e-5)
    found = trial([fold.comparison(HYPER.of_codes, None, len(data))], HYPER, Ranks(*FEW))
    assert found.error < 0.5  # of the other function; relative to zero every error is infinite


def test_hyperparameters_may_be_a_dictionary():
    """As a line of `trials.jsonl` or its part; other dictionaries are refused by name."""
    line = json.loads(json.dumps({"stage": 0, "hyperparameters": dataclasses.asdict(HYPER), "error": 0.1}))
    hyper = dataclasses.replace(HYPER, transforms=(("u", "log"),), amplitudes=(2.0,))
    assert Hyperparameters.of(line) == Hyperparameters.of(line["hyperparameters"]) == HYPER
    assert Hyperparameters.of(json.loads(json.dumps(dataclasses.asdict(hyper)))) == hyper
    for given in ({"scale": 2.0}, [2.0]):
        with pytest.raises(TypeError, match=r"expected Hyperparameters, a report, a Gaussian.*length, damping"):
            Hyperparameters.of(given)
    for given in ({"length": -1.0}, {"noise": float("nan")}, {"nugget": -1.0}):
        with pytest.raises(ValueError, match="expected"):
            Hyperparameters.of(given)


@pytest.mark.slow
def test_an_operator_knows_its_hyperparameters(tmp_path):
    """Also from a file, and with symmetries: more functions are solved for without another search."""
    hyper = dataclasses.replace(HYPER, transforms=(("s1", "per-location"),), amplitudes=(2.0,), nugget=1e-4)
    train, more = functions(20), functions(40)
    for symmetries in (None, ["scale"]):
        operator, report = solve(train, hyperparameters=hyper, symmetries=symmetries, progress=False)
        loca.save(operator, tmp_path / f"{symmetries is None}.safetensors")
        loaded = loca.load(tmp_path / f"{symmetries is None}.safetensors")
        for given in (report, operator, loaded):
            _, again = solve(more, hyperparameters=given, progress=False)
            assert again.trials == ()
            one, two = (dataclasses.asdict(each) for each in (again.hyperparameters, hyper))
            assert jax.tree.structure(one) == jax.tree.structure(two)
            assert jax.tree.leaves(one) == pytest.approx(jax.tree.leaves(two), rel=1e-6)


def test_progress_is_shown_as_lines(capsys):
    data = functions(8)
    solve(data, hyperparameters=HYPER, ranks=FEW, progress=False)
    assert capsys.readouterr() == ("", "")
    solve(data, hyperparameters=HYPER, ranks=FEW)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[0] == "solve: 8 functions"
    assert "\r" not in shown.err


def test_numbers_that_change_nothing_are_not_searched_for_finely():
    """The error depends on the length alone."""
    tried = []

    def run(hyper, path):
        tried.append(hyper)
        return Trial(0, hyper, 1.0 + abs(np.log(hyper.length / 3.0)), 1, 0.0)

    descent = Descent(run, Stage(10, Ranks(*FEW), (), 100, 1000), is_first=True)
    best = descent.walk(HYPER, 4.0)
    coarse = len(tried)
    best = descent.walk(best, 1.5)
    assert best.length == pytest.approx(3.0)
    assert {(each.noise, each.damping, each.linear, each.location_lengths) for each in tried[coarse:]} == {
        (best.noise, best.damping, best.linear, best.location_lengths)
    }


@pytest.mark.slow
def test_error_bars_of_given_hyperparameters_are_chosen_on_held_out_functions():
    train, test = functions(120), functions(60, 1)
    by_hand = dataclasses.replace(HYPER, noise=1e-6)
    operator, report = solve(train, hyperparameters=by_hand)
    pairs = zip(test.u, test.s, strict=True)
    inside = [abs(s - operator(u, test.y.y)) < 1.645 * operator.std(u, test.y.y) for u, s in pairs]
    assert 0.75 < np.mean(inside) < 0.98
    likely, _ = solve(train, hyperparameters=dataclasses.replace(by_hand, amplitudes=(1.0,)))
    np.testing.assert_allclose(operator.variance, report.hyperparameters.amplitudes[0] * likely.variance, rtol=1e-5)


def test_smaller_eigenvalues_are_kept_in_double_precision():
    """In single precision their features would be round-off."""
    prepared = PreparedData.fit(functions(60), ())

    def count():
        features = prepared.features(Hyperparameters(length=20.0), Ranks(60, 8))
        return np.any(np.asarray(features.f.projection) != 0.0, axis=0).sum()

    single = count()
    with jax.enable_x64(True):
        assert single < 0.5 * count()


@pytest.mark.full
def test_further_blocks_of_a_file_compile_nothing(tmp_path, caplog, monkeypatch):
    """Else compiled programs would fill the memory as functions stream."""
    monkeypatch.setattr("loca.gaussian.equation.STREAMED", 300)  # more than are encoded at once
    data = functions(1200).observe(jax.random.key(0), 6)
    prepared, store = PreparedData.fit(data, ()), stored(tmp_path / "store.zarr", data)
    for count in (600, 1200):
        caplog.clear()
        with jax.log_compiles():
            part = Part(store, np.arange(count))
            prepared.solve(HYPER, Ranks(*FEW), Accuracy(1e-4, 50), stored=(part, tmp_path))
    assert [record.message for record in caplog.records if "Compiling" in record.message] == []


@pytest.mark.slow
def test_functions_from_a_file_give_the_same_operator(tmp_path):
    data = functions(50).observe(jax.random.key(0), 6)
    store = stored(tmp_path / "store.zarr", data)
    hyper = dataclasses.replace(HYPER, nugget=1e-3)
    one, _ = solve(data, hyperparameters=hyper, ranks=(50, 16))
    two, _ = solve(store, hyperparameters=hyper, ranks=(50, 16))
    test = functions(10, 1)
    np.testing.assert_allclose(one.predict(test.u, test.y), two.predict(test.u, test.y), atol=2e-3)
    with pytest.raises(ValueError, match="does not know where its training functions were labeled"):
        two.draws(jax.random.key(0), 2)


def kinds() -> dict[str, Samples]:
    rng = np.random.default_rng(0)
    plain = functions(40)
    own = Measurements(plain.u, jnp.tile(plain.x, (40, 1, 1)), jnp.ones((40, 12), bool))
    several = MultiInput((plain.u, 2.0 * plain.u[:, ::2]), jnp.asarray(rng.normal(size=(40, 2)), jnp.float32))
    return {
        "several inputs": Samples(several, plain.y, plain.s, x=(plain.x, plain.x[::2]), domain=plain.domain),
        "own sensors": dataclasses.replace(plain, u=own, x=None),
    }


@pytest.mark.full
@pytest.mark.parametrize("kind", ["several inputs", "own sensors"])
def test_other_kinds_of_inputs(kind):
    data = kinds()[kind]
    operator, report = solve(data, hyperparameters=HYPER, ranks=FEW)
    assert report.trials == ()
    assert error(operator, data) < 0.5


@pytest.mark.slow
def test_a_directory_of_other_data_is_refused(tmp_path):
    solve(functions(20), hyperparameters=HYPER, ranks=FEW, directory=tmp_path)
    solve(functions(20), hyperparameters=HYPER, ranks=FEW, directory=tmp_path)
    with pytest.raises(FileExistsError, match="started with other arguments"):
        solve(functions(20, 1), hyperparameters=HYPER, ranks=FEW, directory=tmp_path)


@pytest.mark.full
def test_devices_share_the_functions_with_one_sum_per_iteration():
    program = Path(__file__).with_name("mesh_solve.py")
    more = ["--all"] if os.environ.get("LOCA_FULL") else []
    run = subprocess.run([sys.executable, program, *more], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found["differences"]) == (36 if more else 12)
    assert max(found["differences"]) < 1e-10
    for counts, sizes in found["collectives"]:
        assert {kind: count for kind, count in counts.items() if count} == {"all-reduce": 1}
        assert sizes["all-reduce"] == 2 * 16 * 20 * 8  # C of both channels in double precision
