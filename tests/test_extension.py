"""A domain, a kernel, an encoder and an operator from outside the package take part in everything, one class each."""

import jax
import numpy as np
import pytest
import xarray

import loca
from commands import command
from loca.prediction import predict_to
from loca.rules import QuasiMonteCarlo
from loca.saving import ModelFileError
from outside import Cauchy, Means, Nomad, UnitDisk, samples
from stores import stored

CLASSES = {"loca": [UnitDisk, Cauchy, Means], "nomad": [Nomad, UnitDisk, Means]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Training data, and test data in a store."""
    return samples(60, 0), stored(tmp_path_factory.mktemp("data") / "test.zarr", samples(20, 1))


@pytest.fixture(scope="module", params=["loca", pytest.param("nomad", marks=pytest.mark.full)])
def trained(request, data, tmp_path_factory):
    """A model made of outside parts, trained and saved: (the model, its file, its classes)."""
    train, _ = data
    key = jax.random.key(0)
    if request.param == "nomad":
        model = Nomad.create(train, key=key)
    else:
        small = {"num_features": 8, "lift_size": 8, "lift_widths": (16,), "proposal_widths": (16,)}
        rule = QuasiMonteCarlo(train.domain, 32, key=key)
        model = loca.LOCA.create(train, key=key, kernel=Cauchy(), encoder=Means(), rule=rule, **small)
    model, history = loca.fit(model, train, steps=300, batch_size=20)
    assert history.moments[-1].loss < 0.5, "the mean field has a loss of 1"
    path = tmp_path_factory.mktemp(request.param) / "model.safetensors"
    loca.save(model, path, data=train)
    return model, path, CLASSES[request.param]


@pytest.mark.slow
def test_it_loads_if_its_classes_are_named_and_only_then(trained, data):
    model, path, classes = trained
    u, y = data[0].u[:2], data[0].y
    np.testing.assert_array_equal(loca.load(path, classes=classes).predict(u, y), model.predict(u, y))
    with pytest.raises(ModelFileError, match="classes="):
        loca.load(path)


def test_it_is_evaluated_and_predicts_to_a_file(trained, data, tmp_path):
    model, _, _ = trained
    _, store = data
    assert loca.evaluate(model, store).errors["relative_l2"].mean() < 0.7
    written = predict_to(model, store, tmp_path / "prediction.zarr")
    expected = model.predict(store.load().u, store.load().y)[..., 0]
    np.testing.assert_allclose(written.s1, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_the_command_line_takes_it(trained, data, tmp_path):
    _, path, classes = trained
    named = [word for cls in classes for word in ("--class", f"outside:{cls.__name__}")]
    store = str(data[1].path)

    def run(*arguments):
        return command(*arguments, *named)

    assert type(trained[0]).__name__ in run("inspect", path)
    run("evaluate", path, store, "--out", tmp_path / "report.json")
    run("predict", path, store, "--out", tmp_path / "prediction.nc")
    assert xarray.open_dataset(tmp_path / "prediction.nc").s1.shape == (20, 40)
    run("figures", path, store, "--out", tmp_path / "figures")
    assert (tmp_path / "figures/fields.png").stat().st_size > 10_000
