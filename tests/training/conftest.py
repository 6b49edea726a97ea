"""What tests of training share: a little data, and a model that is quickly trained."""

import jax
import pytest

from loca.encoders import Sensors
from loca.models import LOCA
from loca.problems import Antiderivative


@pytest.fixture(scope="module")
def data():
    return Antiderivative(length=0.3, sensors=40, queries=20).sample(jax.random.key(0), 60)


@pytest.fixture(scope="module")
def model(data):
    widths = {"lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}
    return LOCA.create(data, key=jax.random.key(1), encoder=Sensors(40), num_features=4, lift_size=4, **widths)
