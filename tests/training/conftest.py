"""What tests of training share: a little data, and a model that is quickly trained."""

import jax
import pytest
from lives import PROBLEM

from loca.encoders import Sensors
from loca.models import LOCA
from loca.problems import Antiderivative
from loca.saving import save


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """A small model for the problem of `lives`, as a file that its processes load."""
    path = tmp_path_factory.mktemp("model") / "model.loca"
    widths = {"lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,), "num_features": 4, "lift_size": 4}
    data = PROBLEM.sample(jax.random.key(0), 20)
    save(LOCA.create(data, key=jax.random.key(1), encoder=Sensors(20), **widths), path)
    return path


@pytest.fixture(scope="module")
def data():
    return Antiderivative(length=0.3, sensors=40, queries=20).sample(jax.random.key(0), 60)


@pytest.fixture(scope="module")
def model(data):
    widths = {"lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}
    return LOCA.create(data, key=jax.random.key(1), encoder=Sensors(40), num_features=4, lift_size=4, **widths)
