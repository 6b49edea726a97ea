"""Files of earlier revisions: models load and predict as they did, and a store holds what it did."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Shared, Variable
from loca.saving import inspect

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "0.1.0"
MODELS = ("loca", "deeponet", "fno", "gaussian")

spec = importlib.util.spec_from_file_location("make", HERE.parent / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def same(found, expected, machine):
    """The same bits on a machine that computes as the one that made the files; elsewhere the same up to round-off.

    Another processor sums in another order. 64 units of round-off are far below any change of a model.
    """
    assert found.dtype == expected.dtype
    if str(machine) == make.machine():
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=64 * np.finfo(np.float32).eps * np.std(expected))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_as_it_did(name):
    file = HERE / f"exports/{name}.safetensors"
    model = loca.load(file)
    with np.load(file.with_suffix(".npz")) as expected:
        u, y = jnp.asarray(expected["u"]), Shared(jnp.asarray(expected["y"]))
        same(np.asarray(model.predict(u, y)), expected["s"], expected["machine"])
    header = inspect(file)
    assert header.inputs == (Variable("depth", "m"),)
    assert header.outputs == (Variable("height", "m"), Variable("speed", "m/s"))
    assert header.metrics == {"relative_l2": 0.25}


def test_a_store_is_read_and_verified():
    store = loca.data.open(HERE / "antiderivative.zarr")
    store.verify()
    assert store.digest == "26d7ab037d406f844205789d2cf19aa375502d1e75882a767ae88e0d03d9be09"
    assert len(store) == 40
