"""A small model and its file, and files forged byte by byte."""

import hashlib
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
from loca.saving.container import BEGINNING, DIGEST_AT, NO_DIGEST


def sealed(contents: bytes) -> bytes:
    """The same file with the digest that belongs to it, as a careful forger would have it."""
    zeroed = contents[:DIGEST_AT] + NO_DIGEST + contents[DIGEST_AT + 64 :]
    return contents[:DIGEST_AT] + hashlib.sha256(zeroed).hexdigest().encode() + contents[DIGEST_AT + 64 :]


def taken_apart(contents: bytes) -> tuple[dict, dict, bytes]:
    """Our part of the header, the list of arrays, and their bytes."""
    length = int.from_bytes(contents[:8], "little")
    table = json.loads(contents[8 : 8 + length])
    document = json.loads(table.pop("__metadata__")["loca"])
    return document, table, contents[8 + length :]


def forged(document: dict | str, table: dict | str, body: bytes, length: int | None = None) -> bytes:
    """A file with these parts and the digest that belongs to it."""
    text = document if isinstance(document, str) else json.dumps(document)
    rest = table if isinstance(table, str) else json.dumps(table)[1:]
    header = BEGINNING + NO_DIGEST + f'","loca":{json.dumps(text)}}}'.encode()
    header += b"}" if rest == "}" else b"," + rest.encode()
    return sealed((len(header) if length is None else length).to_bytes(8, "little") + header + body)


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
