"""The page docs/your-data.md: short examples with their pictures, and messages as the package prints them."""

import importlib.util
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

import loca
from loca.data import Labeled
from loca.domains import OutsideDomainWarning

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/your-data.md").read_text()


def test_every_example_is_short_and_has_its_picture():
    spec = importlib.util.spec_from_file_location("your_data", ROOT / "tools/your_data.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    examples = tool.examples(PAGE)
    assert len(examples) == len(re.findall(r"^## \d\. ", PAGE, re.MULTILINE)) == 6
    for name, code in examples.items():
        assert len([line for line in code.splitlines() if line]) <= 15, name
        assert f"](figures/your_data_{name}.png)" in PAGE.partition(code)[2].partition("\n## ")[0]
        assert (ROOT / f"docs/figures/your_data_{name}.png").stat().st_size < 200_000, name


def wells(rows=8, unit="mD", zeros=None, missing=None):
    """A data set like that of the page."""
    values = np.random.default_rng(0).uniform(1.0, 2.0, (2, 20, rows, 6)).astype("float32")
    for field, hole in zip(values, (zeros, missing), strict=True):
        if hole is not None:
            field[3, 2:4, 1] = hole
    u, s = ((("case", "x", "y"), each, {"units": of}) for each, of in zip(values, (unit, "Pa"), strict=True))
    axes = {"x": np.linspace(0.0, 1.0, rows), "y": np.linspace(0.0, 2.0, 6)}
    return xarray.Dataset({"permeability": u, "pressure": s}, axes)


def pairs(**change):
    return Labeled(wells(**change), "permeability", "pressure", "case", source="wells.nc")


@pytest.fixture(scope="module")
def model():
    sizes = {"num_features": 4, "branch_widths": (8,), "trunk_widths": (8,)}
    return loca.DeepONet.create(pairs().load(), key=jax.random.key(0), **sizes)


def pass_images(model):
    data = pairs().load()
    loca.Samples(data.u, data.y, data.s.reshape(20, 8, 6))


def fit_to_other_data(model):
    for change in ({}, {"zeros": 1.5}):
        loca.fit(model, pairs(**change).load(), steps=1, directory="run", progress=False)


MISTAKES = [
    lambda model: Labeled(wells(), "perm", "pressure", "case", source="wells.nc"),
    pass_images,
    lambda model: loca.LOCA.create(pairs(missing=np.nan).load(), key=jax.random.key(0)),
    lambda model: loca.LOCA.create(pairs(), key=jax.random.key(0)),
    lambda model: loca.evaluate(model, pairs(rows=12)),
    lambda model: loca.evaluate(model, pairs(unit="m2")),
    lambda model: loca.LOCA.create(pairs(zeros=0.0).load(), key=jax.random.key(0), transforms={"permeability": "log"}),
    lambda model: model(pairs().load().u[0], [[0.5, 3.0]]),
    lambda model: model(pairs().load().u, [[0.5, 1.0]]),
    pytest.param(fit_to_other_data, marks=pytest.mark.slow),
]
"""One for each message of the page."""


@pytest.mark.parametrize("make", MISTAKES)
def test_a_mistake_has_a_message_of_the_page(make, model, unchecked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    messages = [message.split() for message in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)]
    assert len(messages) == len(MISTAKES)
    with pytest.raises((ValueError, TypeError, OutsideDomainWarning)) as error:
        make(model)
    assert re.sub(r"[0-9a-f]{32}", "…", str(error.value)).split() in messages
