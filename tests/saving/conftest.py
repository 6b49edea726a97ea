"""A small model and its file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Variable
from loca.encoders import Sensors
from loca.rules import GaussLegendre
from loca.saving import save


@pytest.fixture(scope="session")
def data():
    rng = np.random.default_rng(0)
    y = jnp.asarray(rng.uniform(size=(7, 1)), jnp.float32)
    u, s = (jnp.asarray(rng.normal(size=(4, n, 1)), jnp.float32) for n in (5, 7))
    return loca.Samples(u, y, s, inputs=[Variable("force", "N")], outputs=[Variable("strain")])


@pytest.fixture(scope="session")
def small(data):
    return loca.LOCA.create(
        data,
        key=jax.random.key(0),
        encoder=Sensors(5),
        rule=GaussLegendre(data.domain, 4),
        num_features=2,
        lift_size=3,
        lift_widths=(3,),
        proposal_widths=(3,),
        feature_widths=(3,),
    )


@pytest.fixture(scope="session")
def contents(small, data, tmp_path_factory) -> bytes:
    """The bytes of a small model file."""
    path = tmp_path_factory.mktemp("saving") / "small.safetensors"
    save(small, path, data=data, metrics={"relative_l2": 0.25}, provenance={"seed": 3, "where": ["Θήβα", None, True]})
    return path.read_bytes()
