"""A small model and its file, and files forged byte by byte."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Variable
from loca.encoders import Sensors
from loca.rules import GaussLegendre
from loca.saving import save
from loca.saving.container import BEGINNING, NO_DIGEST, digest_of

WIDTHS = {"F32": np.float32}


def taken_apart(contents: bytes) -> tuple[dict, dict, bytes]:
    """Our part of the header, the list of arrays, and their bytes."""
    length = int.from_bytes(contents[:8], "little")
    table = json.loads(contents[8 : 8 + length])
    document = json.loads(table.pop("__metadata__")["loca"])
    del document["sha256"]
    return document, table, contents[8 + length :]


def forged(document: dict | str, table: dict, body: bytes, length: int | None = None) -> bytes:
    """A file with these parts and the digest that belongs to it, as a careful forger would have it."""
    text = document if isinstance(document, str) else json.dumps(document)
    try:
        arrays = {
            name: np.frombuffer(body[slice(*entry["data_offsets"])], WIDTHS[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in table.items()
        }
        digest = digest_of(f'{BEGINNING}{NO_DIGEST}",{text[1:]}', arrays)
    except (TypeError, ValueError, KeyError, AttributeError):  # the list of arrays makes no sense
        digest = NO_DIGEST
    header = json.dumps({"__metadata__": {"loca": f'{BEGINNING}{digest}",{text[1:]}'}, **table}).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + body


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
