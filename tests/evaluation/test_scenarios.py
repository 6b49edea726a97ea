"""Scenarios change what they say and nothing else, and a study keeps all that came of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_operator import Scaled, lines

from loca.data import Samples
from loca.evaluation import InputNoise, LabelFraction, OtherTest, Resolution, Study, evaluate, mean_field, run


@pytest.fixture
def data():
    return lines()


class Trainer:
    """Makes the best factor of `Scaled` for the labels that it is given, and remembers them."""

    def __init__(self):
        self.seen = []

    def __call__(self, train: Samples, key) -> Scaled:
        self.seen.append((train, key))
        s = Scaled().predict(train.u, train.y)
        return Scaled(jnp.sum(s * train.s) / jnp.sum(s * s))


def test_a_fraction_of_labels_is_seen_and_all_are_tested(data, getkey):
    scenario = LabelFraction(0.1)
    train = scenario.train(data, getkey())
    assert train.s.shape == (23, 4, 2)
    full = np.asarray(data.s)
    np.testing.assert_array_equal(train.s, np.take_along_axis(full, np.asarray(train.y.index)[..., None], axis=1))
    assert scenario.test(data, getkey()) is data
    assert LabelFraction(1e-9).train(data, getkey()).s.shape[1] == 1
    with pytest.raises(ValueError, match="at most 1"):
        LabelFraction(1.5)


def test_noise_goes_where_it_is_sent(getkey):
    data = lines(count=2000)
    clean_to_noisy, both = InputNoise(0.3), InputNoise(test_std=0.3, train_std=0.2)
    assert clean_to_noisy.train(data, getkey()) is data
    for noisy, std in ((clean_to_noisy.test, 0.3), (both.train, 0.2), (both.test, 0.3)):
        changed = noisy(data, getkey())
        # 10 000 values: the deviation is known to 1/√20000 = 0.7 %; five times that never happens
        assert np.std(changed.u - data.u) == pytest.approx(std, rel=0.035)
        np.testing.assert_array_equal(changed.s, data.s)


def test_a_coarser_grid_is_part_of_the_finer(getkey):
    axis = jnp.linspace(0.0, 1.0, 9)
    y = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    data = Samples(y[None, :, :1], y, y[None], x=y)
    coarse = Resolution(labels=4).train(data, getkey())
    expected = [[a, b] for a in (0.0, 0.5, 1.0) for b in (0.0, 0.5, 1.0)]
    np.testing.assert_array_equal(coarse.y.y, expected)
    np.testing.assert_array_equal(coarse.s[0], expected)
    assert coarse.u.shape == data.u.shape
    assert coarse.domain == data.domain
    blurred = Resolution(sensors=2)
    for seen in (blurred.train(data, getkey()), blurred.test(data, getkey())):
        assert seen.u.shape == (1, 25, 1)
        np.testing.assert_array_equal(seen.u[0, :, 0], seen.x[:, 0])
        assert seen.s.shape == data.s.shape
    with pytest.raises(ValueError, match="share their queries"):
        Resolution(labels=2).train(data.observe(getkey(), 5), getkey())
    strewn = dataclasses.replace(data, x=jax.random.uniform(getkey(), (81, 2)))
    with pytest.raises(ValueError, match="sensors do not form a grid"):
        Resolution(sensors=2).test(strewn, getkey())


def test_a_study_holds_one_report_per_scenario_and_seed(data, tmp_path):
    other = lines(count=9, key=5)
    scenarios = [LabelFraction(0.1), LabelFraction(1.0), InputNoise(0.0), InputNoise(0.5), OtherTest("shifted", other)]
    trainer = Trainer()
    study = run(scenarios, trainer, data, data, seeds=(3, 4), reference=mean_field(data), metrics=("rmse", "skill"))
    assert study.labels == ("10 % of labels", "100 % of labels", "noise 0 → 0", "noise 0 → 0.5", "shifted")
    assert [trial.seed for trial in study.trials] == [3, 4] * 5
    assert [len(report) for report in study.reports("shifted")] == [9, 9]
    # per seed: two label fractions, and one model for the three scenarios that leave the training data alone
    assert [train is data for train, _ in trainer.seen] == [False, False, True] * 2
    keys = [jax.random.key_data(key).tolist() for _, key in trainer.seen]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    clean, noisy = (study.reports(label)[0] for label in ("noise 0 → 0", "noise 0 → 0.5"))
    assert clean == evaluate(Trainer()(data, None), data, reference=mean_field(data), metrics=("rmse", "skill"))
    # F is linear in u(x₁), so the mean square of the error is that of the noise times that of the field of u = 1
    unit = np.mean((np.asarray(data.y.y) + np.array([1.0, 2.0])) ** 2, axis=0)
    measured = np.mean(np.concatenate([r.errors["rmse"] ** 2 for r in study.reports("noise 0 → 0.5")]), axis=0) / unit
    # 46 noises: their mean square is known to √(2/46) = 21 %; both channels see the same noise
    assert measured[0] == pytest.approx(0.25, rel=0.6)
    assert measured[0] == pytest.approx(measured[1], rel=1e-4)
    assert "noise 0 → 0.5" in str(study)
    study.save(tmp_path / "study.json")
    assert Study.load(tmp_path / "study.json") == study
    assert noisy != clean


def test_points_of_a_study_are_means(data):
    study = run([LabelFraction(0.1), LabelFraction(0.5), OtherTest("none", data)], Trainer(), data, data, seeds=(0, 1))
    points = study.points("rmse", "speed")
    assert [(point["value"], point["seed"]) for point in points] == [(0.1, 0), (0.1, 1), (0.5, 0), (0.5, 1)]
    assert points[3]["rmse"] == study.reports("50 % of labels")[1].errors["rmse"][:, 1].mean()
    with pytest.raises(ValueError, match="there are 10 % of labels"):
        study.reports("nothing")
