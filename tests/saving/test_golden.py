"""The file of an earlier release: it loads and answers as it did."""

from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Shared, Variable
from loca.domains import Box
from loca.saving import inspect, load

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.safetensors"))


def test_the_first_release_is_kept():
    assert "loca-0.1.0.safetensors" in [file.name for file in GOLDEN]


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_golden_file_answers_as_it_did(file):
    # Another machine adds the same numbers in another order. When the file was made, that of single precision was 9
    # units of round-off of the answers' spread away from the exact answer; another may be as far on the other side,
    # and with processors of other widths the sums differ by small factors: 64 units are 8e-6, far below any change of
    # the model, such as a swapped weight, which is of order one.
    model = load(file)
    with np.load(file.with_suffix(".npz")) as expected:
        u, y = jnp.asarray(expected["u"]), Shared(jnp.asarray(expected["y"]))
        s = np.asarray(eqx.filter_jit(lambda model: model.predict(u, y))(model))
        allowed = 64 * np.finfo(np.float32).eps * np.std(expected["double"])
        assert s.dtype == expected["single"].dtype
        np.testing.assert_allclose(s, expected["double"], rtol=0, atol=allowed)
        np.testing.assert_allclose(s, expected["single"], rtol=0, atol=allowed)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_golden_file_says_what_it_said(file):
    header = inspect(file)
    assert header.versions["loca-jax"] == file.stem.removeprefix("loca-")
    assert header.inputs == (Variable("conductivity", "W/(m K)"),)
    assert header.outputs == (Variable("temperature", "°C"), Variable("flux", "W/m²"))
    assert header.domain == Box.unit(2)
    assert header.metrics == {"relative_l2": 0.25}
    assert file.stat().st_size < 200_000
